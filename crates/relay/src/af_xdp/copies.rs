//! The results of each subscriber's copies.

use xsk::Outcome;

use crate::counters::{DropReason, SubscriberCounters};
use crate::plan::MAX_SUBSCRIBERS;
use crate::userspace::tally::Tally;

/// A copy that is to be sent: whose it is, and its payload's length.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedCopy {
    pub(super) subscriber: u32,
    pub(super) bytes: u16,
}

#[derive(Debug)]
pub(super) struct Copies {
    /// By subscriber slot.
    tallies: Vec<Tally>,
}

impl Copies {
    pub(super) fn new() -> Self {
        Self {
            tallies: vec![Tally::default(); MAX_SUBSCRIBERS as usize],
        }
    }

    pub(super) fn count(&mut self, copy: StagedCopy, outcome: Outcome) {
        if let Some(tally) = self.tallies.get_mut(copy.subscriber as usize) {
            match outcome {
                Outcome::Sent => tally.passed(1, copy.bytes.into()),
                Outcome::Lost => tally.dropped(DropReason::Transmit, 1),
            }
        }
    }

    pub(super) fn dropped(&mut self, subscriber: u32, reason: DropReason) {
        if let Some(tally) = self.tallies.get_mut(subscriber as usize) {
            tally.dropped(reason, 1);
        }
    }

    /// The slot has a new subscriber.
    pub(super) fn restart(&mut self, subscriber: u32) {
        if let Some(tally) = self.tallies.get_mut(subscriber as usize) {
            *tally = Tally::default();
        }
    }

    pub(super) fn counters(&self, subscriber: u32) -> SubscriberCounters {
        let tally = self.tallies.get(subscriber as usize);
        tally.map_or_else(SubscriberCounters::default, |tally| SubscriberCounters {
            delivered: tally.traffic(),
            drops: tally.drops(),
        })
    }
}
