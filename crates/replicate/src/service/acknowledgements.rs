//! Tracks how much of a log its replicas lack. The parts that ship the log report it, and the part
//! that writes the log reads it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::status::Progress;

/// The number of steps into which the distance that counts as caught up is divided.
const STEPS: u64 = 256;

#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// In bytes. A replica counts once it is no further behind than this, so that one that still
    /// receives a long log delays nothing.
    within: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The log's last record, and the bytes written up to it.
    last: WrittenEpochs,
    /// Earlier records in order, with the bytes written up to each.
    marks: VecDeque<WrittenEpochs>,
    /// The replicas, by the part that ships to them and their address.
    replicas: BTreeMap<(String, Option<SocketAddr>), Replica>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WrittenEpochs {
    number: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Replica {
    /// The last record on the replica's disk.
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

    /// Reports the log's last record, and the bytes that this process has written up to it. Bytes
    /// written before the log has its tree are the first copy, and do not count.
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

    /// Reports the progress of a part that ships the log. `None` if the part has stopped.
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

    /// The bytes that the slowest replica lacks, among those that count.
    pub(super) fn unconfirmed(&self) -> u64 {
        let state = self.state();
        let slowest = state.slowest();
        slowest.and_then(|number| state.behind(number)).unwrap_or(0)
    }

    /// Ignores replicas that are far behind until they have caught up.
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
        // The state is consistent between any two statements, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The bytes after a record, rounded up. `None` if it is too far back to be known.
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

    /// Removes marks that are not needed: those before the slowest replica and further back than
    /// `within`.
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
