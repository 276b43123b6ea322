//! Tables that change while batches are decided about.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use acl::{Action, Rule4};
use lpm::{Address, NextHop, Prefix, Prefix4, Prefix6, Rib};
use router::cpu::{self, Tables};
use router::engine::{Contents, Engine, Function, Worker};
use router::forward::Plane;
use router::frames::Frames;
use router::gpu::{Gpu, Options};
use router::random::Random;
use router::rules::RuleSet;

use super::{contents, decide, device, frames};

/// A change of a prefix that is there, or of another one.
fn change<A: Address>(
    rib: &Rib<A>,
    random: &mut Random,
    address: A,
) -> (Prefix<A>, Option<NextHop>) {
    let known: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
    let prefix = if random.index(2) == 0 {
        known[random.index(known.len())]
    } else {
        let len = u8::try_from(random.index(usize::from(A::BITS) + 1)).unwrap();
        Prefix::containing(address, len).unwrap()
    };
    let hop = NextHop::new(u16::try_from(1 + random.index(500)).unwrap()).unwrap();
    (prefix, (random.index(3) > 0).then_some(hop))
}

#[test]
fn changes_are_what_the_next_batch_meets() {
    let Some(device) = device() else { return };
    let made = contents();
    let frames = frames(&made, 4000);
    let mut ours = Tables::setup(made.clone(), &cpu::Options::default()).unwrap();
    let mut gpu = Gpu::setup(made.clone(), &Options::of(device)).unwrap();
    let mut worker = Worker::new(gpu.processor(Function::Both).unwrap(), 512);
    let mut random = Random::new(9);
    for round in 0..60 {
        for _ in 0..1 + random.index(20) {
            let address = random.narrow();
            let (prefix, hop): (Prefix4, _) = change(&made.v4, &mut random, address);
            ours.route4(prefix, hop).unwrap();
            gpu.route4(prefix, hop).unwrap();
            let address = random.wide();
            let (prefix, hop): (Prefix6, _) = change(&made.v6, &mut random, address);
            ours.route6(prefix, hop).unwrap();
            gpu.route6(prefix, hop).unwrap();
        }
        if round % 10 == 0 {
            let rules = RuleSet {
                v4: made.rules.v4[round..].to_vec(),
                v6: made.rules.v6[..round].to_vec(),
                ..RuleSet::default()
            };
            ours.rules(&rules).unwrap();
            gpu.rules(&rules).unwrap();
        }
        let wanted = decide(ours.processor(Function::Both).unwrap(), &frames, 512).0;
        let mut got = Vec::new();
        for start in (0..frames.len()).step_by(512) {
            let end = frames.len().min(start + 512);
            worker
                .decide((start..end).map(|at| frames.get(at)))
                .unwrap();
            got.extend_from_slice(worker.decisions());
        }
        assert!(got == wanted, "round {round}");
    }
}

#[test]
fn a_batch_meets_what_was_before_a_change_or_after_it_and_never_both() {
    let Some(device) = device() else { return };
    let hop = |number| NextHop::new(number).unwrap();
    let everything: Prefix4 = "0.0.0.0/0".parse().unwrap();
    let drop_all = |action| RuleSet {
        v4: vec![Rule4 {
            action,
            ..Rule4::default()
        }],
        ..RuleSet::default()
    };
    let contents = Contents {
        v4: [(everything, hop(1))].into_iter().collect(),
        rules: drop_all(Action::Accept),
        ..Contents::default()
    };
    let mut gpu = Gpu::setup(contents, &Options::of(device)).unwrap();
    let mut random = Random::new(1);
    let mut all = Frames::default();
    for _ in 0..1000 {
        let to = std::net::Ipv4Addr::from_bits(random.narrow());
        let udp = packet::build::udp("192.0.2.1:9".parse().unwrap(), (to, 53).into());
        all.push(&udp.frame());
    }
    let stop = AtomicBool::new(false);
    let mut workers = [0, 1].map(|_| Worker::new(gpu.processor(Function::Both).unwrap(), 1000));
    let mut batches = 0;
    thread::scope(|scope| {
        let (all, stop) = (&all, &stop);
        let running: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    let mut batches = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        worker.decide((0..all.len()).map(|at| all.get(at))).unwrap();
                        let decisions = worker.decisions();
                        assert!(
                            decisions.iter().all(|one| *one == decisions[0]),
                            "one batch, one answer"
                        );
                        batches += 1;
                    }
                    batches
                })
            })
            .collect();
        for round in 0..200_u16 {
            gpu.route4(everything, Some(hop(1 + round % 2))).unwrap();
            let action = [Action::Accept, Action::Drop][usize::from(round / 2 % 2)];
            gpu.rules(&drop_all(action)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for thread in running {
            batches += thread.join().unwrap();
        }
    });
    assert!(batches > 0);
}
