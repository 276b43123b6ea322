//! Keeps what is said of a file's content and attributes until it is a state that the file had: epochs before have the
//! state that was handed on last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::doubt::{Doubts, everything};
use crate::record::{Change, Entry, File, Part};

/// What is kept in memory, in bytes. Beyond it the log has what is known so far, and no epoch until that is whole.
const CAPACITY: usize = 128 << 20;
/// What an entry takes beside its bytes.
const ENTRY_BYTES: usize = 128;
/// Among so many of the last entries one is looked for that a new one makes superfluous.
const RECENT: usize = 256;

/// The files of which something is kept, and those that are being read.
#[derive(Debug)]
pub(super) struct HoldBack {
    queues: BTreeMap<File, Queue>,
    bytes: usize,
    /// What is being read, and whether names are among it.
    reading: BTreeMap<File, bool>,
    /// Files in doubt that have changed while they were read, and how often in a row.
    restless: BTreeMap<File, u32>,
    /// Files that the log has in a state that they may never have had, and what of them it has in doubt.
    exposed: BTreeMap<File, Vec<Part>>,
    /// The tree is being read for the first time: that is too much to keep.
    streams: bool,
}

impl Default for HoldBack {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            bytes: 0,
            reading: BTreeMap::new(),
            restless: BTreeMap::new(),
            exposed: BTreeMap::new(),
            streams: true,
        }
    }
}

/// What is kept of one file, in its order.
#[derive(Debug)]
struct Queue {
    entries: Vec<Entry>,
    bytes: usize,
    /// When the file had the state that was handed on last.
    since: Instant,
    cut: Option<Cut>,
}

/// A point up to which the entries are a state that the file had, if no event of a range of numbers changed it.
#[derive(Clone, Copy, Debug)]
struct Cut {
    entries: usize,
    from: u64,
    to: u64,
    at: Instant,
}

impl HoldBack {
    /// Whether nothing is kept or being read.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.reading.is_empty()
    }

    /// Keeps what is said, or hands it on. `event` is the number of the event that tells it, if one does.
    pub(super) fn take(
        &mut self,
        entry: Entry,
        event: Option<u64>,
        doubts: &Doubts,
        out: &mut Vec<Entry>,
    ) {
        let file = match &entry {
            Entry::Change(change) => change.of_state(),
            _ => None,
        };
        if let Some((file, number)) = file.zip(event) {
            self.disturb(file, Some(number));
        }
        let kept = |file: &File| self.is_open(*file, doubts) || self.queues.contains_key(file);
        match file.filter(kept) {
            Some(file) if self.streams => {
                let parts = self.exposed.entry(file).or_default();
                if let Entry::Change(Change::Doubt { part, .. }) = &entry {
                    parts.push(part.clone());
                }
                out.push(entry);
            }
            Some(file) => {
                self.push(file, entry);
                self.expose_overflow(out);
            }
            None => out.push(entry),
        }
    }

    /// Whether something of the file is in doubt, or being read.
    fn is_open(&self, file: File, doubts: &Doubts) -> bool {
        doubts.contains_key(&file) || self.reading.contains_key(&file)
    }

    /// These are being read.
    pub(super) fn begin_reading(&mut self, doubts: &Doubts) {
        for (file, doubt) in doubts {
            *self.reading.entry(*file).or_default() |= doubt.names;
        }
    }

    /// A file is read that was not in the tree.
    pub(super) fn begin_adopting(&mut self, file: File) {
        if !self.streams {
            self.reading.entry(file).or_default();
        }
    }

    /// What was read is kept, and these are in doubt again. Hands on what is a state that a file had; false where some
    /// file changed while it was read.
    pub(super) fn end_reading(&mut self, doubts: &Doubts, out: &mut Vec<Entry>) -> bool {
        let mut whole = true;
        for file in std::mem::take(&mut self.reading).into_keys() {
            let again = doubts.contains_key(&file);
            match again {
                true => *self.restless.entry(file).or_default() += 1,
                false => drop(self.restless.remove(&file)),
            }
            match self.take_cut(file) {
                Some(entries) => {
                    out.extend(entries);
                    self.settle_exposed(file, out);
                }
                None => whole &= !again,
            }
        }
        self.streams = false;
        whole
    }

    /// Hands on what is kept of files that are known as they are now.
    pub(super) fn release(&mut self, doubts: &Doubts, out: &mut Vec<Entry>) {
        let all = self.queues.keys().chain(self.exposed.keys());
        let known = all.filter(|file| !self.is_open(**file, doubts));
        let known: BTreeSet<_> = known.copied().collect();
        for file in known {
            out.extend(self.take_all(file));
            self.settle_exposed(file, out);
        }
    }

    /// The files that are in doubt or being read, if each of them is restless, and names are not among it.
    pub(super) fn stale(&self, doubts: &Doubts, times: u32) -> Option<BTreeSet<File>> {
        let waits = doubts.values().any(|doubt| doubt.names)
            || self.reading.values().any(|names| *names)
            || self.exposed.keys().any(|file| self.is_open(*file, doubts));
        let stale: BTreeSet<_> = doubts.keys().chain(self.reading.keys()).copied().collect();
        let restless = |file| self.restless.get(file).is_some_and(|read| *read >= times);
        (!waits && stale.iter().all(restless)).then_some(stale)
    }

    /// The file is gone.
    pub(super) fn forget(&mut self, file: File) {
        self.take_all(file);
        self.reading.remove(&file);
        self.restless.remove(&file);
        self.exposed.remove(&file);
    }

    /// Hands on what there is no room for.
    fn expose_overflow(&mut self, out: &mut Vec<Entry>) {
        while let Some(file) = self.overflow() {
            let part = everything();
            out.push(Entry::Change(Change::Doubt {
                file,
                part: part.clone(),
            }));
            out.extend(self.take_all(file));
            self.exposed.entry(file).or_default().push(part);
        }
    }

    fn settle_exposed(&mut self, file: File, out: &mut Vec<Entry>) {
        let parts = self.exposed.remove(&file).unwrap_or_default().into_iter();
        out.extend(parts.map(|part| Entry::Change(Change::Settled { file, part })));
    }

    /// For how long the oldest of it has been kept.
    pub(super) fn age(&self) -> Option<Duration> {
        let oldest = self.queues.values().map(|queue| queue.since).min();
        oldest.map(|since| since.elapsed())
    }

    fn push(&mut self, file: File, entry: Entry) {
        let queue = self.queues.entry(file).or_insert_with(|| Queue {
            entries: Vec::new(),
            bytes: 0,
            since: Instant::now(),
            cut: None,
        });
        let freed = queue.supersede(&entry);
        queue.bytes = queue.bytes + cost(&entry) - freed;
        self.bytes = self.bytes + cost(&entry) - freed;
        queue.entries.push(entry);
    }

    /// The file was read: it had this state when the last of these events was told, unless one of them changed it.
    pub(super) fn cut(&mut self, file: File, from: u64, to: u64) {
        if let Some(queue) = self.queues.get_mut(&file) {
            queue.cut = Some(Cut {
                entries: queue.entries.len(),
                from,
                to,
                at: Instant::now(),
            });
        }
    }

    /// The event with this number changed the file; of one that was lost nobody knows the number.
    pub(super) fn disturb(&mut self, file: File, number: Option<u64>) {
        if let Some(queue) = self.queues.get_mut(&file) {
            queue.cut = queue
                .cut
                .filter(|cut| number.is_some_and(|number| number < cut.from || cut.to <= number));
        }
    }

    /// Any file may have been changed by any event.
    pub(super) fn disturb_all(&mut self) {
        for queue in self.queues.values_mut() {
            queue.cut = None;
        }
    }

    /// Takes what is a state that the file had; none where none is known.
    fn take_cut(&mut self, file: File) -> Option<Vec<Entry>> {
        let queue = self.queues.get_mut(&file)?;
        let cut = queue.cut.take()?;
        queue.since = cut.at;
        let rest = queue
            .entries
            .split_off(cut.entries.min(queue.entries.len()));
        let entries = std::mem::replace(&mut queue.entries, rest);
        let bytes: usize = entries.iter().map(cost).sum();
        queue.bytes -= bytes;
        self.bytes -= bytes;
        Some(entries)
    }

    /// Takes all that is kept of a file.
    fn take_all(&mut self, file: File) -> Vec<Entry> {
        let Some(queue) = self.queues.remove(&file) else {
            return Vec::new();
        };
        self.bytes -= queue.bytes;
        queue.entries
    }

    /// The file that most is kept of, where there is no room for all.
    fn overflow(&self) -> Option<File> {
        if self.bytes <= CAPACITY {
            return None;
        }
        let largest = self.queues.iter().max_by_key(|(_, queue)| queue.bytes);
        largest.map(|(file, _)| *file)
    }
}

impl Queue {
    /// Drops what a new entry makes superfluous, so that a file that is read again and again takes no more memory than
    /// its size; how many bytes that frees. What a cut has stays as it is.
    fn supersede(&mut self, new: &Entry) -> usize {
        let begin = self.cut.map_or(0, |cut| cut.entries);
        let recent = begin.max(self.entries.len().saturating_sub(RECENT));
        let Some(entries) = self.entries.get(recent..) else {
            return 0;
        };
        let last = entries.len().checked_sub(1);
        let found = match new {
            Entry::Change(Change::Data { offset, bytes, .. }) => {
                let (from, size) = (*offset, bytes.len());
                entries.iter().rposition(|entry| match entry {
                    Entry::Change(Change::Data { offset, bytes, .. }) => {
                        (*offset, bytes.len()) == (from, size)
                    }
                    _ => false,
                })
            }
            Entry::Change(Change::Size { .. }) => {
                last.filter(|at| matches!(entries[*at], Entry::Change(Change::Size { .. })))
            }
            _ => None,
        };
        found.map_or(0, |at| cost(&self.entries.remove(recent + at)))
    }
}

fn cost(entry: &Entry) -> usize {
    let bytes = match entry {
        Entry::Change(Change::Data { bytes, .. }) => bytes.len(),
        Entry::Change(Change::Extended { all, .. }) => all
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum(),
        _ => 0,
    };
    ENTRY_BYTES + bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Origin;

    const FILE: File = File {
        inode: 12,
        generation: 1,
    };

    fn size(size: u64) -> Entry {
        Entry::Change(Change::Size { file: FILE, size })
    }

    #[test]
    fn a_cut_is_what_was_kept_before_it() {
        let mut kept = HoldBack::default();
        kept.push(FILE, size(1));
        kept.push(FILE, size(2));
        kept.cut(FILE, 10, 20);
        kept.push(FILE, size(3));
        for outside in [9, 20] {
            kept.disturb(FILE, Some(outside));
        }
        // The second size has taken the place of the first.
        assert_eq!(kept.take_cut(FILE), Some(vec![size(2)]));
        assert_eq!(kept.take_cut(FILE), None);
        assert_eq!(kept.take_all(FILE), [size(3)]);
        assert!(kept.is_empty());
    }

    #[test]
    fn a_file_that_is_read_again_and_again_takes_the_memory_of_its_last_state() {
        let data = |offset, byte: u8| {
            Entry::Change(Change::Data {
                file: FILE,
                offset,
                bytes: vec![byte; 4096],
                origin: Origin::ReadBack,
            })
        };
        let mut kept = HoldBack::default();
        for byte in 0..100 {
            kept.push(FILE, data(0, byte));
            kept.push(FILE, data(4096, byte));
            kept.push(FILE, size(u64::from(byte)));
            kept.push(FILE, size(8192));
        }
        assert!(kept.bytes < 100 * 1024, "{}", kept.bytes);
        kept.cut(FILE, 10, 20);
        // What the cut has stays.
        kept.push(FILE, data(0, 100));
        let state = kept.take_cut(FILE).unwrap();
        assert!(state.contains(&data(0, 99)) && state.contains(&data(4096, 99)));
        assert!(!state.contains(&data(0, 98)));
        assert_eq!(state.last(), Some(&size(8192)));
        assert_eq!(kept.take_all(FILE), [data(0, 100)]);
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn a_cut_that_an_event_changed_is_none() {
        for number in [Some(10), Some(19), None] {
            let mut kept = HoldBack::default();
            kept.push(FILE, size(1));
            kept.cut(FILE, 10, 20);
            kept.disturb(FILE, number);
            assert_eq!(kept.take_cut(FILE), None, "{number:?}");
            assert!(!kept.is_empty());
        }
    }
}
