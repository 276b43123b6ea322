//! Compiled lists against packets that walk the chains one by one.

use acl::{Key4, linear};
use proptest::prelude::*;

use super::*;
use crate::rules::region::{Field, Ranges};

/// What becomes of a packet at the end of a chain.
enum Walk {
    Decided(Action),
    Through,
}

fn matches(step: &Step, port: u16, protocol: u8) -> bool {
    let mut packet = Region::all(false);
    let one = |value: u128| Ranges::one(value, value);
    let budget = Budget::new();
    for (field, value) in [
        (Field::DestinationPort, u128::from(port)),
        (Field::Protocol, protocol.into()),
    ] {
        packet.keep(field, &one(value), false, &budget).unwrap();
    }
    let met = region::intersections(&step.regions, &[packet], &budget);
    !met.unwrap().is_empty()
}

fn walk(chains: &[Chain], at: usize, port: u16, protocol: u8) -> Walk {
    for step in &chains[at].steps {
        if !matches(step, port, protocol) || step.verdict == Verdict::Continue {
            continue;
        }
        if !step.certain {
            return Walk::Decided(Action::Punt);
        }
        match step.verdict {
            Verdict::Continue => {}
            Verdict::Decide(action) => return Walk::Decided(action),
            Verdict::Return => return Walk::Through,
            Verdict::Goto(to) => return walk(chains, to, port, protocol),
            Verdict::Jump(to) => {
                if let Walk::Decided(action) = walk(chains, to, port, protocol) {
                    return Walk::Decided(action);
                }
            }
        }
    }
    Walk::Through
}

fn decide(chains: &[Chain], bases: &[usize], port: u16, protocol: u8) -> Action {
    for base in bases {
        let action = match walk(chains, *base, port, protocol) {
            Walk::Decided(action) => action,
            Walk::Through => chains[*base].policy,
        };
        if action != Action::Accept {
            return action;
        }
    }
    Action::Accept
}

fn region() -> impl Strategy<Value = Region> {
    (0_u16..12, 0_u16..12, 0_u8..4, any::<bool>(), any::<bool>()).prop_map(
        |(a, b, protocol, negated, any)| {
            let budget = Budget::new();
            let mut region = Region::all(false);
            let ports = Ranges::one(a.min(b).into(), a.max(b).into());
            region
                .keep(Field::DestinationPort, &ports, negated, &budget)
                .unwrap();
            if !any {
                let protocol = Ranges::one(protocol.into(), protocol.into());
                region
                    .keep(Field::Protocol, &protocol, negated, &budget)
                    .unwrap();
            }
            region
        },
    )
}

/// Chains jump to later ones only.
fn step(chain: usize) -> impl Strategy<Value = Step> {
    let later = chain + 1..6;
    let verdict = prop_oneof![
        3 => prop_oneof![Just(Action::Accept), Just(Action::Drop), Just(Action::Punt)].prop_map(Verdict::Decide),
        1 => Just(Verdict::Continue),
        2 => Just(Verdict::Return),
        3 => later.clone().prop_map(Verdict::Jump),
        2 => later.prop_map(Verdict::Goto),
    ];
    let regions = prop::collection::vec(region(), 1..3);
    (regions, prop::bool::weighted(0.8), verdict).prop_map(|(regions, certain, verdict)| Step {
        regions,
        certain,
        verdict,
        origin: 0,
    })
}

fn chains() -> impl Strategy<Value = Vec<Chain>> {
    let chain = |at: usize| {
        let steps = if at == 5 {
            prop::collection::vec(region(), 0..2)
                .prop_map(|regions| {
                    let verdict = Verdict::Decide(Action::Drop);
                    let certain = true;
                    vec![Step {
                        regions,
                        certain,
                        verdict,
                        origin: 0,
                    }]
                })
                .boxed()
        } else {
            prop::collection::vec(step(at), 0..5).boxed()
        };
        (steps, any::<bool>()).prop_map(|(steps, drop)| Chain {
            steps,
            policy: if drop { Action::Drop } else { Action::Accept },
            origin: 0,
        })
    };
    (0..6).map(chain).collect::<Vec<_>>()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_first_match_is_what_the_chains_decide(chains in chains()) {
        let bases = [0, 1];
        let rules = compile(&chains, &bases, RuleSet::default(), &[false], &Budget::new()).unwrap();
        for port in 0..13 {
            for protocol in 0..5 {
                let key = Key4::new(1, 2, (3, port), protocol);
                let found = linear(&rules.v4, &key).map(|at| rules.v4[at].action);
                prop_assert_eq!(found, Some(decide(&chains, &bases, port, protocol)));
            }
        }
    }
}
