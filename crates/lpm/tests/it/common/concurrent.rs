//! Readers look up while prefixes come and go; each answer must be one that was right at some moment
//! between the start and the end of its lookup.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use lpm::{NextHop, Prefix};

use super::churn::Update;
use super::table::Table;
use super::{Rng, hop, longest};

/// An address's answers, each with the version from which it holds.
type History = Vec<(usize, u16)>;

/// Looks `keys` up in two threads while `updates` are made to `table`.
pub fn check<T: Table>(mut table: T, keys: &[T::Address], updates: &[Update<T::Address>]) {
    let histories = histories::<T>(&table, keys, updates);
    let started = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let batches = AtomicUsize::new(0);
    let reading = |mut reader: T::Reader, seed: u64| {
        let mut rng = Rng::new(seed);
        while finished.load(Ordering::Acquire) < updates.len() {
            let picked: Vec<_> = (0..1 + rng.index(200))
                .map(|_| rng.index(keys.len()))
                .collect();
            let batch: Vec<_> = picked.iter().map(|&at| keys[at]).collect();
            let from = finished.load(Ordering::Acquire);
            let answers = T::read(&mut reader, &batch);
            let to = started.load(Ordering::Acquire);
            for (&at, &answer) in picked.iter().zip(&answers) {
                assert!(
                    possible(&histories[at], from, to, answer),
                    "{:?} is {answer} between {from} and {to}: {:?}",
                    keys[at],
                    histories[at]
                );
            }
            batches.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            let reader = table.reader();
            scope.spawn(move || reading(reader, seed))
        });
        let mut read = 0;
        for (version, &(prefix, hop)) in updates.iter().enumerate() {
            // On a busy machine all updates can be made before a reader comes to run.
            while version % 100 == 0 && batches.load(Ordering::Relaxed) == read {
                let died = |reader: &ScopedJoinHandle<'_, ()>| reader.is_finished();
                assert!(!readers.iter().any(died), "a reader has ended early");
                thread::yield_now();
            }
            read = batches.load(Ordering::Relaxed);
            started.store(version + 1, Ordering::SeqCst);
            match hop {
                Some(hop) => table.insert(prefix, hop),
                None => table.remove(prefix),
            };
            finished.store(version + 1, Ordering::SeqCst);
        }
    });
}

/// Random changes to the prefixes of `pool`.
pub fn changes<A: super::Random>(pool: &[Prefix<A>], count: usize, seed: u64) -> Vec<Update<A>> {
    let mut rng = Rng::new(seed);
    let change = |_| {
        let prefix = pool[rng.index(pool.len())];
        (
            prefix,
            (rng.index(2) == 0).then(|| hop(1 + rng.next_u64() % 200)),
        )
    };
    (0..count).map(change).collect()
}

fn histories<T: Table>(
    table: &T,
    keys: &[T::Address],
    updates: &[Update<T::Address>],
) -> Vec<History> {
    let mut routes: BTreeMap<Prefix<T::Address>, NextHop> = table.rib().iter().collect();
    let list =
        |routes: &BTreeMap<_, _>| -> Vec<_> { routes.iter().map(|(&p, &h)| (p, h)).collect() };
    let now = list(&routes);
    let mut histories: Vec<History> = keys
        .iter()
        .map(|&key| vec![(0, longest(&now, key))])
        .collect();
    for (version, &(prefix, hop)) in updates.iter().enumerate() {
        match hop {
            Some(hop) => routes.insert(prefix, hop),
            None => routes.remove(&prefix),
        };
        let now = list(&routes);
        let touched = keys
            .iter()
            .zip(&mut histories)
            .filter(|(key, _)| prefix.contains(**key));
        for (&key, history) in touched {
            let answer = longest(&now, key);
            if history.last().is_some_and(|&(_, before)| before != answer) {
                history.push((version + 1, answer));
            }
        }
    }
    histories
}

/// Whether the answer was right in one of versions `from..=to`.
fn possible(history: &History, from: usize, to: usize, answer: u16) -> bool {
    let first = history.partition_point(|&(version, _)| version <= from) - 1;
    let within = history[first..]
        .iter()
        .take_while(|&&(version, _)| version <= to);
    within.into_iter().any(|&(_, right)| right == answer)
}
