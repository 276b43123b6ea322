//! Every classifier answers what a linear search answers.

use acl::generate::{self, Kind};
use acl::{
    ANY_PORT, Address, Classifier, Key, NONE, Options, Prefix, Protocol, Rule, Simd, linear,
};
use proptest::prelude::*;
use std::time::Duration;

/// Every instruction set and both ways of building, against the linear search.
fn check<A: Address>(rules: &[Rule<A>], keys: &[Key<A>]) {
    let wanted: Vec<u32> = keys
        .iter()
        .map(|key| linear(rules, key).map_or(NONE, |at| u32::try_from(at).unwrap()))
        .collect();
    for tuning in [Duration::ZERO, Duration::from_millis(20)] {
        let mut classifier = Classifier::build(rules, Options { tuning }).unwrap();
        for simd in Simd::available() {
            classifier = classifier.with_simd(simd);
            let mut found = vec![0x5a5a_5a5a; keys.len()];
            classifier.classify(keys, &mut found);
            for (at, key) in keys.iter().enumerate() {
                assert_eq!(found[at], wanted[at], "{simd:?} {key:?}");
            }
        }
    }
}

/// Keys at, just below and just above the ends of the rules' ranges, in all fields at once.
fn boundary_keys<A: Address>(rules: &[Rule<A>], count: usize) -> Vec<Key<A>> {
    let mut state = 1u64;
    let mut random = |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % end
    };
    let mut keys = Vec::new();
    for _ in 0..count {
        let rule = &rules[random(rules.len())];
        let mut address = |prefix: &Prefix<A>| {
            let (first, last) = (prefix.first().widen(), prefix.last().widen());
            A::narrow([first, last, first.wrapping_sub(1), last.wrapping_add(1)][random(4)])
        };
        let (source, destination) = (address(&rule.source), address(&rule.destination));
        let mut port = |first: u16, last: u16| {
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)][random(4)]
        };
        let ports = (
            port(*rule.source_ports.start(), *rule.source_ports.end()),
            port(
                *rule.destination_ports.start(),
                *rule.destination_ports.end(),
            ),
        );
        let protocol = rule.protocol.value ^ if random(4) == 0 { 1 << random(8) } else { 0 };
        keys.push(Key::new(source, destination, ports, protocol));
    }
    keys
}

fn hostile<A: Address>() {
    for kind in Kind::ALL {
        for (count, keys) in [(0, 300), (1, 300), (40, 1000), (700, 3000)] {
            let rules = generate::rules::<A>(kind, count, 3);
            check(&rules, &generate::keys_within(&rules, keys, 1));
            check(&rules, &generate::keys_anywhere(keys, 2));
            if !rules.is_empty() {
                check(&rules, &boundary_keys(&rules, keys));
            }
        }
    }
}

#[test]
fn generated_lists_of_ipv4() {
    hostile::<u32>();
}

#[test]
fn generated_lists_of_ipv6() {
    hostile::<u128>();
}

/// Rules that no budget divides give a table that is slow, reported as such, built in bounded work and memory, and exact.
fn endless<A: Address>(kind: Kind, count: usize) {
    let mut rules = generate::rules::<A>(kind, count, 4);
    for (at, rule) in (0u16..).zip(&mut rules) {
        // None repeats another.
        rule.source_ports = at % 61..=u16::MAX - at % 997;
    }
    let options = Options {
        tuning: Duration::ZERO,
    };
    let classifier = Classifier::build(&rules, options).unwrap();
    let report = classifier.report();
    assert!(report.work <= 2100 * count + (1 << 18), "{report:?}");
    assert!(report.bytes <= (64 << 10) * count, "{report:?}");
    assert!(report.longest > 128 && report.warnings.len() == 1);
    let mut keys = generate::keys_within(&rules, 1500, 1);
    keys.extend(boundary_keys(&rules, 1500));
    let mut found = vec![0; keys.len()];
    classifier.classify(&keys, &mut found);
    for (key, found) in keys.iter().zip(found) {
        let wanted = linear(&rules, key).map_or(NONE, |at| u32::try_from(at).unwrap());
        assert_eq!(found, wanted, "{key:?}");
    }
}

#[test]
fn lists_beyond_all_division_are_built_in_bounded_work() {
    endless::<u128>(Kind::NestedPrefixes, 2000);
    endless::<u128>(Kind::NestedAndRanges, 2000);
}

/// Rules that repeat others say nothing: they cost no work.
#[test]
fn repeated_rules_are_left_out() {
    let once = generate::rules::<u32>(Kind::NestedPrefixes, 500, 5);
    let often: Vec<_> = once.iter().chain(&once).chain(&once).cloned().collect();
    let report = |rules: &[Rule<u32>]| {
        let options = Options {
            tuning: Duration::ZERO,
        };
        let built = Classifier::build(rules, options).unwrap();
        (built.report().work, built.report().bytes)
    };
    assert_eq!(report(&once), report(&often));
    check(&often, &generate::keys_within(&often, 1000, 6));
}

/// Lists dense enough that rules nest, cross and shadow each other in all fields.
fn dense<A: Address>() -> impl Strategy<Value = Vec<Rule<A>>> {
    let prefix = (0u128..64, prop_oneof![0u8..=8, 0u8..=32]).prop_map(|(address, length)| {
        let address = A::narrow(address << (A::BITS - 6));
        Prefix::containing(address, length.min(A::BITS)).unwrap()
    });
    let ports = prop_oneof![
        2 => Just(ANY_PORT),
        2 => (0u16..4).prop_map(|port| port * 100..=port * 100),
        1 => Just(1024..=u16::MAX),
        1 => Just(u16::MAX..=u16::MAX),
        2 => (0u16..5000, 0u16..5000).prop_map(|(low, more)| low..=low + more),
    ];
    let mask = prop_oneof![3 => Just(0xffu8), 2 => Just(0), 1 => any::<u8>()];
    let protocol =
        (prop_oneof![Just(6u8), Just(17), any::<u8>()], mask).prop_map(|(value, mask)| Protocol {
            value: value & mask,
            mask,
        });
    let rule = (prefix.clone(), prefix, ports.clone(), ports, protocol).prop_map(
        |(source, destination, source_ports, destination_ports, protocol)| Rule {
            source,
            destination,
            source_ports,
            destination_ports,
            protocol,
            ..Rule::default()
        },
    );
    prop::collection::vec(rule, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60 * sys::require::fuzz()))]

    #[test]
    fn dense_lists_of_ipv4(rules in dense::<u32>(), keys in 1usize..600) {
        check(&rules, &boundary_keys(&rules, keys));
        check(&rules, &generate::keys_within(&rules, keys, 5));
    }

    #[test]
    fn dense_lists_of_ipv6(rules in dense::<u128>(), keys in 1usize..600) {
        check(&rules, &boundary_keys(&rules, keys));
        check(&rules, &generate::keys_within(&rules, keys, 5));
    }
}
