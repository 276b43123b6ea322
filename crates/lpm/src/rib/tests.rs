use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Prefix4;

fn prefix4() -> impl Strategy<Value = Prefix4> {
    // Few distinct bits, so that prefixes nest and repeat.
    (0..64u32, 0..64u32, 0..=32u8)
        .prop_map(|(high, low, len)| Prefix::containing(high << 26 | low, len).unwrap())
}

fn hop() -> impl Strategy<Value = NextHop> {
    (1..5u16).prop_map(|number| NextHop::new(number).unwrap())
}

fn longest<'a>(
    map: &'a BTreeMap<Prefix4, NextHop>,
    suits: impl Fn(&Prefix4) -> bool + 'a,
) -> Option<(Prefix4, NextHop)> {
    let found = map.iter().filter(|(prefix, _)| suits(prefix));
    found
        .max_by_key(|(prefix, _)| prefix.len())
        .map(|(&prefix, &hop)| (prefix, hop))
}

proptest! {
    #[test]
    fn agrees_with_a_map(changes in prop::collection::vec((prefix4(), prop::option::of(hop())), 0..400)) {
        let mut rib = Rib::new();
        let mut map = BTreeMap::new();
        for (prefix, hop) in changes {
            let above = longest(&map, |p| p.covers(prefix) && *p != prefix);
            prop_assert_eq!(rib.parent(prefix), above);
            if let Some(hop) = hop {
                let change = rib.insert_route(prefix, hop);
                prop_assert_eq!(change.before, map.insert(prefix, hop));
                check_within(&rib, change.subtree, prefix, &map);
            } else if let Some(change) = rib.remove_route(prefix) {
                prop_assert_eq!(change.before, map.remove(&prefix));
                prop_assert_eq!(change.above, above.map(|(p, hop)| (p.len(), hop)));
                check_within(&rib, change.subtree, prefix, &map);
            } else {
                prop_assert!(!map.contains_key(&prefix));
            }
            prop_assert_eq!(rib.len(), map.len());
            prop_assert_eq!(rib.get(prefix), map.get(&prefix).copied());
            prop_assert!(rib.covered(prefix).eq(map.iter().filter(|(p, _)| prefix.covers(**p)).map(|(&p, &h)| (p, h))));
            let address = prefix.last();
            prop_assert_eq!(rib.lookup(address), longest(&map, |p| p.contains(address)));
        }
        prop_assert!(rib.iter().eq(map.iter().map(|(&p, &h)| (p, h))));
        for prefix in map.into_keys() {
            rib.remove(prefix);
        }
        let node = |at: u32| Some(at).filter(|&at| at != NIL);
        let unused = std::iter::successors(node(rib.free), |&at| node(rib.node(at).children[0]));
        prop_assert_eq!(unused.count(), rib.nodes.len() - 1, "only the root is left");
    }
}

fn check_within(
    rib: &Rib<u32>,
    subtree: Subtree,
    prefix: Prefix4,
    map: &BTreeMap<Prefix4, NextHop>,
) {
    let mut seen = Vec::new();
    rib.outermost(subtree, prefix.len() + 1..=32, &mut |found| {
        seen.push(found);
    });
    let inside = || {
        map.keys()
            .filter(|p| prefix.covers(**p) && p.len() > prefix.len())
    };
    let outermost = inside().filter(|p| !inside().any(|q| q != *p && q.covers(**p)));
    assert!(seen.iter().eq(outermost), "{seen:?}");
    assert_eq!(rib.is_divided(prefix), inside().next().is_some());
}

#[test]
fn nodes_are_small() {
    assert_eq!(size_of::<Node<u32>>(), 16);
    assert_eq!(size_of::<Node<u128>>(), 32);
}
