//! What is decided about a packet, in four bytes.

use std::fmt::{self, Debug};

use acl::Action;
use lpm::NO_ROUTE;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// Sent on: to the decision's next hop, or, where nothing was routed, accepted by the rules.
    Forward = 0,
    /// Dropped by a rule.
    Drop = 1,
    /// Left to the kernel: by a rule, or because it has no key.
    Punt = 2,
    /// No prefix covers its destination.
    NoRoute = 3,
}

impl Verdict {
    pub const ALL: [Self; 4] = [Self::Forward, Self::Drop, Self::Punt, Self::NoRoute];
}

/// A verdict in bits 16 and 17, and below it the number of the destination's next hop, whatever
/// the verdict: 0 for none, or where nothing was routed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Decision(u32);

impl Decision {
    pub const fn new(verdict: Verdict, hop: u16) -> Self {
        Self((verdict as u32) << 16 | hop as u32)
    }

    /// As a device writes it: gpu/kernels.h is the twin.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// What a routed packet meets: the rules' drop wins, then the rules' punt, then the route.
    #[inline]
    pub fn combine(action: Action, hop: u16) -> Self {
        let verdict = match action {
            Action::Drop => Verdict::Drop,
            Action::Punt => Verdict::Punt,
            Action::Accept if hop == NO_ROUTE => Verdict::NoRoute,
            Action::Accept => Verdict::Forward,
        };
        Self::new(verdict, hop)
    }

    /// What the rules alone say.
    #[inline]
    pub fn filtered(action: Action) -> Self {
        Self::new(
            match action {
                Action::Drop => Verdict::Drop,
                Action::Punt => Verdict::Punt,
                Action::Accept => Verdict::Forward,
            },
            NO_ROUTE,
        )
    }

    #[inline]
    pub fn verdict(self) -> Verdict {
        Verdict::ALL[self.0 as usize >> 16 & 3]
    }

    /// The number of the next hop; 0 for none.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub fn hop(self) -> u16 {
        self.0 as u16
    }
}

impl Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({})", self.verdict(), self.hop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_wins_then_a_punt_then_the_route() {
        for (action, hop, verdict) in [
            (Action::Drop, 7, Verdict::Drop),
            (Action::Drop, 0, Verdict::Drop),
            (Action::Punt, 7, Verdict::Punt),
            (Action::Punt, 0, Verdict::Punt),
            (Action::Accept, 0x7fff, Verdict::Forward),
            (Action::Accept, 0, Verdict::NoRoute),
        ] {
            let decision = Decision::combine(action, hop);
            assert_eq!((decision.verdict(), decision.hop()), (verdict, hop));
        }
    }
}
