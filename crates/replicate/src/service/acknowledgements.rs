//! How much of a log its replicas do not have: told by the parts that ship it, asked by the part that
//! writes it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::status::Progress;

/// Into so many steps what counts as caught up is divided.
const STEPS: u64 = 256;

#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// Bytes. A replica counts from when it is no farther behind: one that gets all of a long log is waited
    /// for by nobody.
    within: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The log's last record, and the bytes that were written with it.
    last: WrittenEpochs,
    /// Others, in their order.
    marks: VecDeque<WrittenEpochs>,
    /// By the part that ships to them, and their address.
    replicas: BTreeMap<(String, Option<SocketAddr>), Replica>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WrittenEpochs {
    number: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Replica {
    /// The last record that is on its disk.
    number: u64,
    counts: bool,
}

impl Acknowledgements {
    pub(super) fn new(within: u64) -> Self {
        Self {
            within,
            state: Mutex::default(),
        }
    }

    /// The log's last record, and the bytes that this process has written with it. What is written before
    /// the log has its tree is a copy, and nothing that happens.
    pub(super) fn wrote(&self, number: u64, bytes: u64, ready: bool) {
        let state = &mut *self.state();
        state.last = WrittenEpochs { number, bytes };
        if !ready {
            state.marks.clear();
            for replica in state.replicas.values_mut() {
                replica.counts = false;
            }
        }
        let apart = self.within / STEPS;
        if state
            .marks
            .back()
            .is_none_or(|mark| bytes - mark.bytes > apart)
        {
            state.marks.push_back(state.last);
        }
        state.forget(self.within);
    }

    /// How far a part is that ships the log; none if it has stopped.
    pub(super) fn report(&self, part: &str, progress: Option<&Progress>) {
        let reached: Vec<_> = match progress {
            Some(Progress::Serve(_, status)) => {
                let replicas = status.replicas.iter();
                replicas
                    .map(|replica| (Some(replica.address), replica.number))
                    .collect()
            }
            Some(shipped @ Progress::Publish(published)) if !shipped.waits() => {
                vec![(None, published.number)]
            }
            Some(Progress::Capture(_)) => return,
            _ => Vec::new(),
        };
        let state = &mut *self.state();
        let there = |address| reached.iter().any(|(other, _)| *other == address);
        state
            .replicas
            .retain(|(of, address), _| of != part || there(*address));
        for (address, number) in &reached {
            let behind = state.behind(*number);
            let key = (part.to_owned(), *address);
            let replica = state.replicas.entry(key).or_insert(Replica {
                number: 0,
                counts: false,
            });
            replica.number = *number;
            replica.counts |= behind.is_some_and(|behind| behind <= self.within);
        }
    }

    /// Bytes that the slowest replica does not have, of those that count.
    pub(super) fn unconfirmed(&self) -> u64 {
        let state = self.state();
        let slowest = state.slowest();
        slowest.and_then(|number| state.behind(number)).unwrap_or(0)
    }

    /// Who is far behind counts no more, until it has caught up.
    pub(super) fn let_go(&self) {
        let state = &mut *self.state();
        let mut replicas = std::mem::take(&mut state.replicas);
        for replica in replicas.values_mut() {
            let behind = state.behind(replica.number);
            replica.counts &= behind.is_some_and(|behind| behind <= self.within);
        }
        state.replicas = replicas;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes behind a record, rounded up; none if so much that it is not known.
    fn behind(&self, number: u64) -> Option<u64> {
        if number >= self.last.number {
            return Some(0);
        }
        let before = self.marks.partition_point(|mark| mark.number <= number);
        let mark = self.marks.get(before.checked_sub(1)?)?;
        Some(self.last.bytes - mark.bytes)
    }

    fn slowest(&self) -> Option<u64> {
        let counting = self.replicas.values().filter(|replica| replica.counts);
        counting.map(|replica| replica.number).min()
    }

    /// Marks that nobody asks for: those before the slowest replica and farther away than `within`.
    fn forget(&mut self, within: u64) {
        let slowest = self.slowest().unwrap_or(u64::MAX);
        while let Some(second) = self.marks.get(1)
            && second.number <= slowest
            && self.last.bytes - second.bytes >= within
        {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
