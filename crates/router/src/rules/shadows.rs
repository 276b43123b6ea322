//! Rules that never come first, because one earlier rule matches all of their packets.

use std::collections::HashMap;

use acl::{Address, Prefix, Rule};
use foldhash::fast::RandomState;

use super::RuleSet;

/// Comparisons of rules that are made at most, in about a second.
const WORK: usize = 20_000_000;

/// The shadowed rules of one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shadows {
    pub count: usize,
    /// The origin of the first.
    pub first: Option<u32>,
    /// Rules that were not compared with those before them, as it would take long.
    pub unknown: usize,
}

/// Finds the shadowed rules of IPv4 and those of IPv6. Rules that several others cover together are not among them.
pub fn find_shadows(set: &RuleSet) -> [Shadows; 2] {
    [of_family(&set.v4), of_family(&set.v6)]
}

/// Whether all packets of `inner` fall under `outer`.
pub(crate) fn covers<A: Address>(outer: &Rule<A>, inner: &Rule<A>) -> bool {
    outer.source.covers(inner.source)
        && outer.destination.covers(inner.destination)
        && covers_ports(outer, inner)
        && outer.protocol.mask & !inner.protocol.mask == 0
        && outer.protocol.contains(inner.protocol.value)
}

fn covers_ports<A: Address>(outer: &Rule<A>, inner: &Rule<A>) -> bool {
    let covers = |outer: &std::ops::RangeInclusive<u16>, inner: &std::ops::RangeInclusive<u16>| {
        inner.is_empty() || (outer.contains(inner.start()) && outer.contains(inner.end()))
    };
    covers(&outer.source_ports, &inner.source_ports)
        && covers(&outer.destination_ports, &inner.destination_ports)
}

/// What rules say beside ports: prefixes and protocol.
type Key<A> = (Prefix<A>, Prefix<A>, u8);

/// Rules whose prefixes are of the same lengths, and whose protocols have the same mask.
struct Group<A: Address> {
    lengths: (u8, u8),
    mask: u8,
    rules: HashMap<Key<A>, Vec<usize>, RandomState>,
}

impl<A: Address> Group<A> {
    /// What a rule of the group has that covers `rule`, if any can.
    fn key(&self, rule: &Rule<A>) -> Option<Key<A>> {
        if self.mask & !rule.protocol.mask != 0 {
            return None;
        }
        let shorter = |prefix: Prefix<A>, length: u8| {
            let fits = length <= prefix.len();
            fits.then(|| Prefix::containing(prefix.first(), length).ok())
                .flatten()
        };
        let source = shorter(rule.source, self.lengths.0)?;
        let destination = shorter(rule.destination, self.lengths.1)?;
        Some((source, destination, rule.protocol.value & self.mask))
    }
}

fn of_family<A: Address>(rules: &[Rule<A>]) -> Shadows {
    let mut found = Shadows::default();
    let mut groups: Vec<Group<A>> = Vec::new();
    let mut work = 0;
    for (at, rule) in rules.iter().enumerate() {
        if work > WORK {
            found.unknown = rules.len() - at;
            break;
        }
        let covered = groups.iter().any(|group| {
            work += 1;
            let known = group.key(rule).and_then(|key| group.rules.get(&key));
            known.is_some_and(|known| {
                work += known.len();
                known
                    .iter()
                    .any(|before| covers_ports(&rules[*before], rule))
            })
        });
        if covered {
            found.count += 1;
            found.first.get_or_insert(rule.id);
            continue;
        }
        let (lengths, mask) = (
            (rule.source.len(), rule.destination.len()),
            rule.protocol.mask,
        );
        let own = groups
            .iter()
            .position(|group| group.lengths == lengths && group.mask == mask);
        let own = own.unwrap_or_else(|| {
            groups.push(Group {
                lengths,
                mask,
                rules: HashMap::default(),
            });
            groups.len() - 1
        });
        let key = (
            rule.source,
            rule.destination,
            rule.protocol.value & rule.protocol.mask,
        );
        groups[own].rules.entry(key).or_default().push(at);
    }
    found
}

#[cfg(test)]
mod tests {
    use acl::generate::{self, Kind};

    use super::*;

    #[test]
    fn shadowed_rules_are_those_that_an_earlier_one_covers() {
        for (count, seed) in [(300, 1), (300, 2), (1000, 3)] {
            let mut rules = generate::rules::<u32>(Kind::NestedAndRanges, count, seed);
            let again: Vec<_> = rules.iter().take(50).cloned().collect();
            rules.extend(again);
            for (at, rule) in (0..).zip(&mut rules) {
                rule.id = at;
            }
            let covered: Vec<u32> = (0..rules.len())
                .filter(|at| (0..*at).any(|before| covers(&rules[before], &rules[*at])))
                .map(|at| rules[at].id)
                .collect();
            assert!(covered.len() >= 50);
            let set = RuleSet {
                v4: rules,
                ..RuleSet::default()
            };
            let [found, v6] = find_shadows(&set);
            assert_eq!(v6, Shadows::default());
            assert_eq!(
                (found.count, found.first, found.unknown),
                (covered.len(), covered.first().copied(), 0)
            );
        }
    }
}
