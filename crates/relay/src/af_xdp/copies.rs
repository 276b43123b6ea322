//! What all ports share: the frames that nobody uses, and what became of each subscriber's copies.

use xsk::Frame;

use crate::counters::{DropReason, SubscriberCounters};
use crate::plan::MAX_SUBSCRIBERS;
use crate::userspace::tally::Tally;

#[derive(Debug)]
pub(super) struct Copies {
    /// The last used is used next, while it is in the cache.
    pub(super) free: Vec<Frame>,
    /// By subscriber slot.
    tallies: Vec<Tally>,
}

impl Copies {
    pub(super) fn new(free: Vec<Frame>) -> Self {
        Self {
            free,
            tallies: vec![Tally::default(); MAX_SUBSCRIBERS as usize],
        }
    }

    pub(super) fn delivered(&mut self, subscriber: u32, bytes: u16) {
        if let Some(tally) = self.tallies.get_mut(subscriber as usize) {
            tally.passed(1, bytes.into());
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
