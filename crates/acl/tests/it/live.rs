//! A list that changes: every batch answers from the list after one update, the one it names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use acl::generate::{self, Kind};
use acl::{Address, Error, Key, Live, NONE, Options, Rule};
use proptest::prelude::*;

const NO_TUNING: Options = Options {
    tuning: Duration::ZERO,
};

/// One change.
#[derive(Clone, Debug)]
enum Update<A: Address> {
    Insert(u32, Rule<A>),
    Erase(u32),
}

fn apply<A: Address>(list: &mut BTreeMap<u32, Rule<A>>, update: &Update<A>) {
    match update {
        Update::Insert(number, rule) => drop(list.insert(*number, rule.clone())),
        Update::Erase(number) => drop(list.remove(number)),
    }
}

fn carry_out<A: Address>(live: &Live<A>, update: &Update<A>) {
    match update {
        Update::Insert(number, rule) => live.insert(*number, rule.clone()).unwrap(),
        Update::Erase(number) => live.erase(*number).unwrap(),
    }
}

fn first<A: Address>(list: &BTreeMap<u32, Rule<A>>, key: &Key<A>) -> u32 {
    let mut matching = list.iter().filter(|(_, rule)| rule.matches(key));
    matching.next().map_or(NONE, |(number, _)| *number)
}

type Scenario<A> = (Vec<(u32, Rule<A>)>, Vec<Update<A>>);

/// A list of every second number, and updates that erase, insert and exchange rules.
fn scenario<A: Address>(kind: Kind, rules: usize, updates: usize) -> Scenario<A> {
    let all = generate::rules::<A>(kind, rules + updates, 9);
    let (start, rest) = all.split_at(rules);
    let list: Vec<(u32, Rule<A>)> = (1..).map(|n| 2 * n).zip(start.iter().cloned()).collect();
    let mut present: Vec<u32> = list.iter().map(|(number, _)| *number).collect();
    let mut state = 5u64;
    let mut random = |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % end
    };
    let mut made = Vec::new();
    for rule in rest {
        if random(3) == 0 && !present.is_empty() {
            made.push(Update::Erase(present.swap_remove(random(present.len()))));
        } else {
            let number = u32::try_from(random(4 * (rules + updates))).unwrap();
            if !present.contains(&number) {
                present.push(number);
                made.push(Update::Insert(number, rule.clone()));
            }
        }
    }
    (list, made)
}

/// One thread updates, two look up; afterwards each batch is compared with the list as it was after
/// the update that the batch names.
fn concurrent<A: Address>(kind: Kind) {
    let (start, updates) = scenario::<A>(kind, 400, 3000);
    let live = Live::new(start.clone(), NO_TUNING).unwrap();
    let rules: Vec<Rule<A>> = generate::rules(kind, 3400, 9);
    let keys = generate::keys_within(&rules, 64, 4);
    let done = AtomicBool::new(false);
    let batches = AtomicUsize::new(0);
    let seen = thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            let mut reader = live.reader();
            let (keys, done, batches) = (&keys, &done, &batches);
            scope.spawn(move || {
                let mut seen = Vec::new();
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let mut found = vec![0; keys.len()];
                    let time = reader.classify(keys, &mut found);
                    assert!(time >= last, "from {last} back to {time}");
                    last = time;
                    batches.fetch_add(1, Ordering::Relaxed);
                    if seen.last().is_none_or(|(other, _)| *other != time) {
                        seen.push((time, found));
                    }
                }
                seen
            })
        });
        let mut read = 0;
        for (number, update) in updates.iter().enumerate() {
            carry_out(&live, update);
            // On a busy machine all updates can be made before a reader comes to run.
            while number % 100 == 0 && batches.load(Ordering::Relaxed) == read {
                let died = |reader: &ScopedJoinHandle<'_, _>| reader.is_finished();
                assert!(!readers.iter().any(died), "a reader has ended early");
                thread::yield_now();
            }
            read = batches.load(Ordering::Relaxed);
        }
        done.store(true, Ordering::Release);
        readers.map(|reader| reader.join().unwrap())
    });
    let mut states: BTreeMap<u64, Vec<&Vec<u32>>> = BTreeMap::new();
    for (time, found) in seen.iter().flatten() {
        states.entry(*time).or_default().push(found);
    }
    let mut list: BTreeMap<u32, Rule<A>> = start.into_iter().collect();
    let mut next = states.iter().peekable();
    for time in 0..=updates.len() {
        if let Some((_, batches)) = next.next_if(|(at, _)| **at == time as u64) {
            let wanted: Vec<u32> = keys.iter().map(|key| first(&list, key)).collect();
            for found in batches {
                assert!(**found == wanted, "after update {time}");
            }
        }
        if let Some(update) = updates.get(time) {
            apply(&mut list, update);
        }
    }
    assert!(next.next().is_none(), "a time beyond the last update");
    assert!(states.len() > 3, "{} moments seen", states.len());
    live.merge();
    let mut found = vec![0; keys.len()];
    let time = live.reader().classify(&keys, &mut found);
    assert_eq!(time, updates.len() as u64);
    let wanted: Vec<u32> = keys.iter().map(|key| first(&list, key)).collect();
    assert_eq!(found, wanted);
}

#[test]
fn batches_answer_from_one_update_of_ipv4() {
    for kind in [Kind::Firewall, Kind::NestedPrefixes, Kind::RandomPorts] {
        concurrent::<u32>(kind);
    }
}

#[test]
fn batches_answer_from_one_update_of_ipv6() {
    for kind in [Kind::Firewall, Kind::NestedPorts] {
        concurrent::<u128>(kind);
    }
}

#[test]
fn numbers_are_unique() {
    let rule = Rule::<u32>::default;
    let live = Live::new(vec![(7, rule())], NO_TUNING).unwrap();
    assert!(matches!(live.insert(7, rule()), Err(Error::Taken(7))));
    assert!(matches!(live.insert(NONE, rule()), Err(Error::Taken(NONE))));
    assert!(matches!(live.erase(8), Err(Error::Absent(8))));
    live.erase(7).unwrap();
    assert!(matches!(live.erase(7), Err(Error::Absent(7))));
    live.insert(7, rule()).unwrap();
    let twice = Live::new(vec![(7, rule()), (7, rule())], NO_TUNING);
    assert!(matches!(twice, Err(Error::Taken(7))));
}

#[test]
fn an_update_is_seen_by_the_next_batch() {
    let live = Live::new(Vec::new(), NO_TUNING).unwrap();
    let mut reader = live.reader();
    let key = [Key::new(1u32, 2, (3, 4), 6)];
    let mut first = || {
        let mut found = [0];
        reader.classify(&key, &mut found);
        found[0]
    };
    assert_eq!(first(), NONE);
    live.insert(5, Rule::default()).unwrap();
    assert_eq!(first(), 5);
    live.merge();
    assert_eq!(first(), 5);
    live.insert(3, Rule::default()).unwrap();
    assert_eq!(first(), 3);
    live.erase(3).unwrap();
    live.erase(5).unwrap();
    assert_eq!(first(), NONE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20 * sys::require::fuzz()))]

    /// Erasing and merging at any moments leaves no rule behind and loses none.
    #[test]
    fn any_order_of_updates_and_merges(
        seed: u64,
        kind in prop::sample::select(Kind::ALL.to_vec()),
        merges in prop::collection::vec(1usize..120, 0..4),
    ) {
        let (start, updates) = scenario::<u32>(kind, 50, 200);
        let live = Live::new(start.clone(), NO_TUNING).unwrap();
        let mut list: BTreeMap<_, _> = start.into_iter().collect();
        let mut reader = live.reader();
        let keys = generate::keys_within(&generate::rules(kind, 250, 9), 40, seed);
        for (number, update) in updates.iter().enumerate() {
            carry_out(&live, update);
            apply(&mut list, update);
            if merges.iter().any(|every| number % every == every - 1) && number < 60 {
                live.merge();
            }
            if number % 10 == 0 {
                let mut found = vec![0; keys.len()];
                reader.classify(&keys, &mut found);
                let wanted: Vec<u32> = keys.iter().map(|key| first(&list, key)).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
