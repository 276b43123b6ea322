//! Takes events out of the ring, sorts them, and counts lost ones.

use std::time::{Duration, Instant};

use super::Error;
use super::event::{Event, HOOKS};
use super::maps::Counters;
use super::order::{LateEvent, Order};
use super::program::Programs;
use crate::record::File;

/// Writes and changes of an inode's times may be reported by function hooks instead of tracepoint
/// events.
const WRITE: &str = HOOKS[0];
const TIME: &str = HOOKS[7];

/// Attempts to read the counters between two operations.
const TRIES: u32 = 16;

/// The events of the attached programs.
#[derive(Debug)]
pub(super) struct EventQueue {
    programs: Programs,
    order: Order,
    /// The number of events taken out of the ring.
    received: u64,
    /// When the last event arrived.
    last_event: Instant,
    /// The number of dropped events whose files [`Self::losses`] has returned.
    dropped: u64,
    /// The same for dropped events whose file is unknown.
    forgotten: u64,
    /// The hooks that reported events, one bit for each.
    hooks: u16,
}

/// Events that were lost since the last query.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The total number of dropped events so far.
    pub(super) dropped: u64,
    /// The files of the dropped events, or `None` if no more were dropped.
    pub(super) files: Option<Vec<File>>,
    /// Further events were dropped, and their files are unknown.
    pub(super) any_file: bool,
}

impl EventQueue {
    pub(super) fn new(programs: Programs) -> Self {
        Self {
            programs,
            order: Order::new(0),
            received: 0,
            last_event: Instant::now(),
            dropped: 0,
            forgotten: 0,
            hooks: 0,
        }
    }

    pub(super) fn programs(&self) -> &Programs {
        &self.programs
    }

    pub(super) fn programs_mut(&mut self) -> &mut Programs {
        &mut self.programs
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// The number of dropped events at the last call of [`Self::losses`].
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The time since the last event.
    pub(super) fn idle_for(&self) -> Duration {
        self.last_event.elapsed()
    }

    /// Takes events out of the ring, and from the order those that arrived too late. Returns
    /// whether the ring has more.
    pub(super) fn drain(&mut self, late: &mut Vec<Event>) -> Result<bool, Error> {
        let Self {
            programs,
            order,
            received,
            ..
        } = self;
        let before = *received;
        let more = programs.drain(|event| {
            *received += 1;
            if let Err(LateEvent(event)) = order.push(event) {
                late.push(*event);
            }
        })?;
        if self.received != before {
            self.last_event = Instant::now();
        }
        Ok(more)
    }

    /// Returns the due event if it has arrived and its number is below `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<Event> {
        let event = self.order.pop(end)?;
        self.hooks |= event.hooks;
        Some(event)
    }

    /// Returns the events lost since the last call.
    pub(super) fn losses(&mut self) -> Result<Losses, Error> {
        let counters = self.programs.counters()?;
        let dropped = std::mem::replace(&mut self.dropped, counters.dropped);
        let files = match counters.dropped == dropped {
            true => None,
            false => Some(self.programs.take_lost()?),
        };
        let forgotten = std::mem::replace(&mut self.forgotten, counters.forgotten);
        let any_file = counters.forgotten != forgotten;
        Ok(Losses {
            dropped: counters.dropped,
            files,
            any_file,
        })
    }

    /// Whether [`Self::losses`] has returned every lost event.
    pub(super) fn is_accounted(&self) -> Result<bool, Error> {
        let counters = self.programs.counters()?;
        Ok((counters.dropped, counters.forgotten) == (self.dropped, self.forgotten))
    }

    /// Skips the numbers before the first waiting event if that many events are lost. Returns
    /// whether it did.
    pub(super) fn skip(&mut self, dropped: u64) -> bool {
        self.order.skip(dropped);
        self.order.gap()
    }

    /// Whether numbers were skipped since the last call.
    pub(super) fn has_gap(&mut self) -> bool {
        self.order.gap()
    }

    /// Whether every event below this number has been taken, or is lost and accounted for.
    pub(super) fn reached(&mut self, number: u64) -> Result<bool, Error> {
        let lost = self.programs.counters()?.dropped;
        Ok(lost == self.dropped && self.order.reached(number, lost))
    }

    /// As [`Self::reached`], counting only losses that are accounted for.
    pub(super) fn covers(&mut self, number: u64) -> bool {
        self.order.reached(number, self.dropped)
    }

    pub(super) fn counters(&self) -> Result<Counters, Error> {
        self.programs.counters()
    }

    /// The number of the next event, read while no operation was under way. `None` if one was under
    /// way at every attempt.
    pub(super) fn quiet(&self) -> Result<Option<u64>, Error> {
        for _ in 0..TRIES {
            // The counters cannot be read in one step. If they are unchanged at a second look, they
            // were valid together.
            let counters = self.counters()?;
            if counters.operations == 0 && self.counters()? == counters {
                return Ok(Some(counters.next));
            }
        }
        Ok(None)
    }

    /// The kernel hooks that reported events since the last call.
    pub(super) fn take_hooks(&mut self) -> Vec<&'static str> {
        let seen = std::mem::take(&mut self.hooks);
        let functions = self.programs.functions();
        let names = HOOKS.into_iter().enumerate();
        names
            .filter(|(bit, name)| seen >> bit & 1 == 1 && !name.is_empty())
            .map(|(_, name)| match name {
                WRITE => functions.write.unwrap_or(WRITE),
                TIME if functions.changes() => "current_time",
                name => name,
            })
            .collect()
    }
}
