//! Plain counters of one worker thread, and their form for everyone else.

use crate::counters::{DROP_REASONS, DropReason, Drops, Traffic};

/// Packets that passed, and those dropped by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    passed: Traffic,
    drops: [u64; DROP_REASONS],
}

impl Tally {
    pub(crate) fn passed(&mut self, packets: u64, bytes: usize) {
        self.passed.add(Traffic {
            packets,
            bytes: bytes as u64,
        });
    }

    pub(crate) fn dropped(&mut self, reason: DropReason, packets: u64) {
        self.drops[reason as usize] += packets;
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.passed
    }

    pub(crate) fn drops(&self) -> Drops {
        let mut drops = Drops::default();
        for reason in DropReason::ALL {
            drops.add(reason, self.drops[reason as usize]);
        }
        drops
    }
}
