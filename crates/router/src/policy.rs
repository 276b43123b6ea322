//! Which packets a data plane forwards past the kernel, because the kernel would forward all of their kind unchanged.
//! What the kernel would do is found out elsewhere.

use std::collections::{BTreeMap, BTreeSet};

pub use netdev::policy::ReversePath;

use crate::forward::Family;

/// What a data plane leaves to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Ports that are not among these leave everything to the kernel.
    pub ports: BTreeMap<Place, PortPolicy>,
    /// The pairs that no rule of the kernel's is about, of ports that are [`PortPolicy::by_pair`].
    pub pairs: BTreeSet<Pair>,
}

/// Where frames come in or leave: a device, and the VLAN id that they have there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub ifindex: u32,
    pub vlan: Option<u16>,
}

/// Packets of an IP version that come in at one place and leave at another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    pub from: Place,
    pub to: Place,
    pub family: Family,
}

/// What of a port's packets is left to the kernel. Arrays are of IPv4 and IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortPolicy {
    /// All of them.
    pub kernel: [bool; 2],
    /// Those that do not leave by one of [`Policy::pairs`].
    pub by_pair: [bool; 2],
    /// IPv4 packets whose source is not where this wants it.
    pub reverse_path: ReversePath,
    /// Fragments, which the kernel puts together before its rules see them.
    pub fragments: bool,
}

impl PortPolicy {
    /// Everything is the kernel's.
    pub const KERNEL: Self = Self {
        kernel: [true; 2],
        by_pair: [false; 2],
        reverse_path: ReversePath::Off,
        fragments: true,
    };
}

/// `enum reverse_path` of the programs.
pub(crate) fn code(wanted: ReversePath) -> u8 {
    match wanted {
        ReversePath::Off => 0,
        ReversePath::Strict => 1,
        ReversePath::Loose => 2,
    }
}

/// A policy, and the families that a plane has no room for: what a plane keeps of both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restraint {
    /// None: nothing is left to the kernel.
    pub(crate) policy: Option<Policy>,
    /// IP versions of which the tables lack routes.
    pub(crate) withheld: [bool; 2],
    /// IP versions of whose rules the kernel lacks one that drops packets.
    pub(crate) sole_filter: [bool; 2],
}

impl Restraint {
    /// What holds for a port.
    pub(crate) fn of(&self, place: Place) -> PortPolicy {
        let mut port = match &self.policy {
            None => PortPolicy::default(),
            Some(policy) => {
                let known = policy.ports.get(&place).copied();
                known.unwrap_or(PortPolicy::KERNEL)
            }
        };
        for (kernel, withheld) in port.kernel.iter_mut().zip(self.withheld) {
            *kernel |= withheld;
        }
        port
    }

    /// Whether packets that come in and leave this way are the plane's.
    pub(crate) fn is_fast(&self, pair: &Pair) -> bool {
        let (port, at) = (self.of(pair.from), pair.family as usize);
        let listed = |policy: &Policy| policy.pairs.contains(pair);
        !port.kernel[at] && (!port.by_pair[at] || self.policy.as_ref().is_some_and(listed))
    }

    pub(crate) fn withhold(&mut self, family: Family, on: bool) {
        self.withheld[family as usize] = on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_policy_names_is_the_kernels() {
        let place = |ifindex| Place {
            ifindex,
            vlan: None,
        };
        let pair = |from, to| Pair {
            from: place(from),
            to: place(to),
            family: Family::V6,
        };
        let mut restraint = Restraint::default();
        assert!(restraint.is_fast(&pair(1, 2)), "without a policy");
        let port = PortPolicy {
            by_pair: [false, true],
            ..PortPolicy::default()
        };
        restraint.policy = Some(Policy {
            ports: BTreeMap::from([(place(1), port), (place(2), PortPolicy::default())]),
            pairs: BTreeSet::from([pair(1, 2)]),
        });
        assert!(restraint.is_fast(&pair(1, 2)), "listed");
        assert!(!restraint.is_fast(&pair(1, 3)), "not listed");
        assert!(restraint.is_fast(&pair(2, 3)), "a port without rules");
        assert!(!restraint.is_fast(&pair(3, 2)), "an unknown port");
        restraint.withhold(Family::V6, true);
        assert!(!restraint.is_fast(&pair(2, 3)), "routes are missing");
    }
}
