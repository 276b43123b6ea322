//! What next hops stand for, by number. A change copies the part that it is in: readers keep theirs.

use std::sync::Arc;

use lpm::NextHop;

use crate::forward::{Family, Forwarding, Punt};

/// Next hops that are copied together.
const PART: usize = 64;

/// The meaning of every next hop of both families.
#[derive(Clone, Debug, Default)]
pub struct Hops {
    v4: Vec<Arc<Vec<Forwarding>>>,
    v6: Vec<Arc<Vec<Forwarding>>>,
}

impl Hops {
    /// What packets to this next hop meet; one without a meaning, and none at all (0), are left to
    /// the kernel.
    #[inline]
    pub fn get(&self, family: Family, hop: u16) -> &Forwarding {
        const UNKNOWN: &Forwarding = &Forwarding::Punt(Punt::Unresolved);
        let parts = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let part = parts.get(usize::from(hop) / PART);
        part.map_or(UNKNOWN, |part| &part[usize::from(hop) % PART])
    }

    /// The same, but for one.
    pub(super) fn with(&self, family: Family, hop: NextHop, to: &Forwarding) -> Self {
        let mut hops = self.clone();
        let parts = match family {
            Family::V4 => &mut hops.v4,
            Family::V6 => &mut hops.v6,
        };
        let at = usize::from(hop.get());
        let missing = (at / PART + 1).saturating_sub(parts.len());
        parts
            .extend((0..missing).map(|_| Arc::new(vec![Forwarding::Punt(Punt::Unresolved); PART])));
        Arc::make_mut(&mut parts[at / PART])[at % PART] = to.clone();
        hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_of_one_next_hop_of_one_family() {
        let hop = |number| NextHop::new(number).unwrap();
        let before = Hops::default();
        let after = before.with(Family::V4, hop(200), &Forwarding::Drop);
        let last = after.with(Family::V6, hop(NextHop::MAX), &Forwarding::Drop);
        assert_eq!(last.get(Family::V4, 200), &Forwarding::Drop);
        assert_eq!(last.get(Family::V6, NextHop::MAX), &Forwarding::Drop);
        for (hops, family, hop) in [
            (&before, Family::V4, 200),
            (&after, Family::V6, NextHop::MAX),
            (&last, Family::V6, 200),
            (&last, Family::V4, 199),
            (&last, Family::V4, 0),
            (&last, Family::V4, NextHop::MAX),
        ] {
            let unknown = Forwarding::Punt(Punt::Unresolved);
            assert_eq!(hops.get(family, hop), &unknown, "{family:?} {hop}");
        }
    }
}
