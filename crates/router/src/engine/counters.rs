//! What became of packets: verdicts that add up to the packets.

use super::{Decision, KeyError, Verdict};

/// Packets and what was decided about them. `packets` is the sum of everything else but `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets: u64,
    /// Of the frames, without preamble and checksum.
    pub bytes: u64,
    /// To a next hop, or accepted.
    pub forwarded: u64,
    /// By a rule, or by a route that leads nowhere.
    pub dropped: u64,
    /// To the kernel, by a rule or a route.
    pub punted: u64,
    pub no_route: u64,
    /// To the kernel, for want of a key, by reason.
    pub unkeyed: [u64; KeyError::ALL.len()],
}

impl Counters {
    /// Counts packets that had keys.
    pub(super) fn decided(&mut self, decisions: &[Decision]) {
        let mut counts = [0_u64; Verdict::ALL.len()];
        for decision in decisions {
            counts[decision.verdict() as usize] += 1;
        }
        self.packets += decisions.len() as u64;
        self.forwarded += counts[Verdict::Forward as usize];
        self.dropped += counts[Verdict::Drop as usize];
        self.punted += counts[Verdict::Punt as usize];
        self.no_route += counts[Verdict::NoRoute as usize];
    }

    pub(super) fn unkeyed(&mut self, why: KeyError) {
        self.packets += 1;
        self.unkeyed[why as usize] += 1;
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.forwarded += other.forwarded;
        self.dropped += other.dropped;
        self.punted += other.punted;
        self.no_route += other.no_route;
        for (count, other) in self.unkeyed.iter_mut().zip(other.unkeyed) {
            *count += other;
        }
    }

    /// What was counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut unkeyed = self.unkeyed;
        for (count, earlier) in unkeyed.iter_mut().zip(earlier.unkeyed) {
            *count -= earlier;
        }
        Self {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            forwarded: self.forwarded - earlier.forwarded,
            dropped: self.dropped - earlier.dropped,
            punted: self.punted - earlier.punted,
            no_route: self.no_route - earlier.no_route,
            unkeyed,
        }
    }

    /// Each verdict's packets, by name.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let decided = [
            ("forwarded", self.forwarded),
            ("dropped", self.dropped),
            ("punted", self.punted),
            ("no_route", self.no_route),
        ];
        let unkeyed = KeyError::ALL
            .map(KeyError::name)
            .into_iter()
            .zip(self.unkeyed);
        decided.into_iter().chain(unkeyed)
    }
}
