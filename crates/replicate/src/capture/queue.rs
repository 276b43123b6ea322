//! Takes events out of the ring, puts them in their order, and counts those that were lost.

use std::time::{Duration, Instant};

use super::Error;
use super::event::{Event, HOOKS};
use super::maps::Counters;
use super::order::{LateEvent, Order};
use super::program::Programs;
use crate::record::File;

/// A write, and a change of an inode's times, may be seen at functions in place of events.
const WRITE: &str = HOOKS[0];
const TIME: &str = HOOKS[7];

/// To read the counters between two operations.
const TRIES: u32 = 16;

/// The events of the attached programs.
#[derive(Debug)]
pub(super) struct EventQueue {
    programs: Programs,
    order: Order,
    /// Events that were taken out of the ring.
    received: u64,
    /// When one was last.
    last_event: Instant,
    /// Dropped events of which [`Self::losses`] has returned the files.
    dropped: u64,
    /// The same of dropped events of which not even the file is known.
    forgotten: u64,
    /// Where events came from: a bit for each hook.
    hooks: u16,
}

/// Events that were lost since they were asked for.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// All dropped events until now.
    pub(super) dropped: u64,
    /// The files of which events were dropped. None where no more were.
    pub(super) files: Option<Vec<File>>,
    /// There are more of which not even the file is known.
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

    /// Dropped events, as [`Self::losses`] counted them last.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// For how long no event came.
    pub(super) fn idle_for(&self) -> Duration {
        self.last_event.elapsed()
    }

    /// Takes events out of the ring, and those that came too late out of the order; whether there are more in the ring.
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

    /// The event that is due, if it has come and its number is below this one.
    pub(super) fn pop(&mut self, end: u64) -> Option<Event> {
        let event = self.order.pop(end)?;
        self.hooks |= event.hooks;
        Some(event)
    }

    /// What was lost since the last call.
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

    /// Whether nothing was lost that [`Self::losses`] did not return.
    pub(super) fn is_accounted(&self) -> Result<bool, Error> {
        let counters = self.programs.counters()?;
        Ok((counters.dropped, counters.forgotten) == (self.dropped, self.forgotten))
    }

    /// Gives up the numbers before the first event that waits, if that many events are lost; whether it did.
    pub(super) fn skip(&mut self, dropped: u64) -> bool {
        self.order.skip(dropped);
        self.order.gap()
    }

    /// Whether numbers were given up since this was asked last.
    pub(super) fn has_gap(&mut self) -> bool {
        self.order.gap()
    }

    /// Whether every event before this number has been taken, or is lost and accounted for.
    pub(super) fn reached(&mut self, number: u64) -> Result<bool, Error> {
        let lost = self.programs.counters()?.dropped;
        Ok(lost == self.dropped && self.order.reached(number, lost))
    }

    /// As [`Self::reached`], with the losses that are accounted for.
    pub(super) fn covers(&mut self, number: u64) -> bool {
        self.order.reached(number, self.dropped)
    }

    pub(super) fn counters(&self) -> Result<Counters, Error> {
        self.programs.counters()
    }

    /// The number of the next event, read while no operation was under way; none where one was each time.
    pub(super) fn quiet(&self) -> Result<Option<u64>, Error> {
        for _ in 0..TRIES {
            // What is counted is not read in one step: what did not change meanwhile was so at one time.
            let counters = self.counters()?;
            if counters.operations == 0 && self.counters()? == counters {
                return Ok(Some(counters.next));
            }
        }
        Ok(None)
    }

    /// Where the kernel showed the events since the last call.
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
