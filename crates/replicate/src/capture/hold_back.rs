//! Holds back changes of a file's content and attributes until they add up to a state that the file
//! had. Until then, epochs contain the state that was handed on last.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::dirty::{Doubts, everything};
use super::options::HoldBackOptions;
use super::output::Output;
use super::spill::Spill;
use crate::record::{Change, Entry, File, Part};

/// The memory that an entry takes in addition to its bytes.
const ENTRY_BYTES: usize = 128;
/// How many of the last entries are searched for one that a new entry makes superfluous.
const RECENT: usize = 256;

/// The files with entries held back, and the files being read.
#[derive(Debug)]
pub(super) struct HoldBack {
    queues: BTreeMap<File, Queue>,
    /// Bytes held in memory.
    bytes: usize,
    /// The limit of bytes in memory. Beyond it, the content of the largest files is spilled to this
    /// folder. If that is impossible, the incomplete state goes to the log, and no epoch ends until
    /// it is complete.
    capacity: usize,
    folder: Option<PathBuf>,
    /// Bytes spilled to the folder.
    spilled: u64,
    /// All bytes held, in memory and spilled, readable by other threads.
    held: Arc<AtomicU64>,
    /// The files being read, and whether their names are among what is read.
    reading: BTreeMap<File, bool>,
    /// Files in doubt that have changed while they were read, and how many times in a row.
    restless: BTreeMap<File, u32>,
    /// For each of those files, the event number below which the log has all of its changes.
    states: BTreeMap<File, u64>,
    /// Files that the log has in a state that they may never have had, with the parts in doubt.
    exposed: BTreeMap<File, Vec<Part>>,
    /// The tree is being read for the first time, which is too much to hold back.
    streams: bool,
}

impl Default for HoldBack {
    fn default() -> Self {
        Self::new(&HoldBackOptions::default())
    }
}

impl HoldBack {
    pub(super) fn new(options: &HoldBackOptions) -> Self {
        Self {
            queues: BTreeMap::new(),
            bytes: 0,
            capacity: options.memory,
            folder: options.folder.clone(),
            spilled: 0,
            held: Arc::default(),
            reading: BTreeMap::new(),
            restless: BTreeMap::new(),
            states: BTreeMap::new(),
            exposed: BTreeMap::new(),
            streams: true,
        }
    }
}

/// The entries held back for one file, in order.
#[derive(Debug)]
struct Queue {
    entries: Vec<Entry>,
    /// Content that was too large for memory. It precedes the entries.
    spill: Option<Spill>,
    /// The size of the entries.
    bytes: usize,
    /// When the file had the state that was handed on last.
    since: Instant,
    cut: Option<Cut>,
}

/// A point up to which the entries are a state that the file had, if no event of a range of numbers
/// changed the file.
#[derive(Clone, Copy, Debug)]
struct Cut {
    entries: usize,
    from: u64,
    to: u64,
    at: Instant,
}

impl HoldBack {
    /// Whether nothing is held back or being read.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.reading.is_empty()
    }

    /// Holds an entry back, or hands it on. `event` is the number of the event it was derived from,
    /// if any.
    pub(super) fn take(
        &mut self,
        entry: Entry,
        event: Option<u64>,
        doubts: &Doubts,
        out: &mut Output,
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
                self.push(file, entry, out);
                self.spill_overflow(out);
                self.tell();
            }
            None => out.push(entry),
        }
    }

    /// Whether some part of the file is in doubt or being read.
    fn is_open(&self, file: File, doubts: &Doubts) -> bool {
        doubts.contains_key(&file) || self.reading.contains_key(&file)
    }

    /// Notes that these parts are being read.
    pub(super) fn begin_reading(&mut self, doubts: &Doubts) {
        for (file, doubt) in doubts {
            *self.reading.entry(*file).or_default() |= doubt.names;
        }
    }

    /// Notes that a file that was not in the tree is being read.
    pub(super) fn begin_adopting(&mut self, file: File) {
        if !self.streams {
            self.reading.entry(file).or_default();
        }
    }

    /// Ends a readback. These parts are in doubt again. Hands on what adds up to a state that a
    /// file had. Returns false if some file changed while it was read.
    pub(super) fn end_reading(&mut self, doubts: &Doubts, out: &mut Output) -> bool {
        let mut whole = true;
        for file in std::mem::take(&mut self.reading).into_keys() {
            let again = doubts.contains_key(&file);
            match again {
                true => *self.restless.entry(file).or_default() += 1,
                false => {
                    self.restless.remove(&file);
                    self.states.remove(&file);
                }
            }
            match self.take_cut(file, out) {
                Some(number) => {
                    if again {
                        self.states.insert(file, number);
                    }
                    self.settle_exposed(file, out);
                }
                None => whole &= !again,
            }
        }
        self.streams = false;
        self.tell();
        whole
    }

    /// Hands on the entries of files whose current state is known.
    pub(super) fn release(&mut self, doubts: &Doubts, out: &mut Output) {
        let all = self.queues.keys().chain(self.exposed.keys());
        let known = all.filter(|file| !self.is_open(**file, doubts));
        let known: BTreeSet<_> = known.copied().collect();
        for file in known {
            self.take_all(file, out);
            self.settle_exposed(file, out);
        }
        self.tell();
    }

    /// The event number below which the log has all changes of these files, or `u64::MAX` if there
    /// are no files.
    pub(super) fn state_of<'a>(&self, files: impl IntoIterator<Item = &'a File>) -> u64 {
        let states = files.into_iter().map(|file| self.states.get(file));
        let least = states.map(|state| state.copied().unwrap_or(0)).min();
        least.unwrap_or(u64::MAX)
    }

    /// The number of bytes held, for code that limits it.
    pub(super) fn gauge(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.held)
    }

    fn tell(&self) {
        let held = self.bytes as u64 + self.spilled;
        self.held.store(held, Ordering::Relaxed);
    }

    /// The files in doubt or being read, if all of them are restless and no names are among the
    /// parts.
    pub(super) fn stale(&self, doubts: &Doubts, times: u32) -> Option<BTreeSet<File>> {
        let waits = doubts.values().any(|doubt| doubt.names)
            || self.reading.values().any(|names| *names)
            || self.exposed.keys().any(|file| self.is_open(*file, doubts));
        let stale: BTreeSet<_> = doubts.keys().chain(self.reading.keys()).copied().collect();
        let restless = |file| self.restless.get(file).is_some_and(|read| *read >= times);
        (!waits && stale.iter().all(restless)).then_some(stale)
    }

    /// Forgets a file that is gone.
    pub(super) fn forget(&mut self, file: File) {
        self.take_all(file, &mut Output::default());
        self.tell();
        self.reading.remove(&file);
        self.restless.remove(&file);
        self.states.remove(&file);
        self.exposed.remove(&file);
    }

    /// Spills the entries that exceed the memory limit, or hands them on.
    fn spill_overflow(&mut self, out: &mut Output) {
        while let Some(file) = self.overflow() {
            let Some(folder) = self.folder.as_deref() else {
                self.expose(file, out);
                continue;
            };
            let Some(queue) = self.queues.get_mut(&file) else {
                return;
            };
            let before = queue.bytes;
            let spilled = queue.spill(|| Spill::create(folder));
            self.bytes = self.bytes + queue.bytes - before;
            self.spilled += queue.spilled();
            if let Err(error) = spilled {
                self.warn(&error);
                self.expose(file, out);
            }
        }
    }

    fn warn(&mut self, error: &std::io::Error) {
        let folder = self.folder.take().unwrap_or_default();
        let folder = folder.display();
        tracing::warn!(
            "{folder}: {error}: no more is held back there, and epochs may have to wait for large files"
        );
    }

    /// Hands on a state that the file may never have had.
    fn expose(&mut self, file: File, out: &mut Output) {
        let part = everything();
        out.push(Entry::Change(Change::Doubt {
            file,
            part: part.clone(),
        }));
        self.take_all(file, out);
        self.exposed.entry(file).or_default().push(part);
    }

    fn settle_exposed(&mut self, file: File, out: &mut Output) {
        let parts = self.exposed.remove(&file).unwrap_or_default().into_iter();
        out.extend(parts.map(|part| Entry::Change(Change::Settled { file, part })));
    }

    /// The age of the oldest state held back.
    pub(super) fn age(&self) -> Option<Duration> {
        let oldest = self.queues.values().map(|queue| queue.since).min();
        oldest.map(|since| since.elapsed())
    }

    fn push(&mut self, file: File, entry: Entry, out: &mut Output) {
        let queue = self.queues.entry(file).or_insert_with(|| Queue {
            entries: Vec::new(),
            spill: None,
            bytes: 0,
            since: Instant::now(),
            cut: None,
        });
        let before = queue.spilled();
        let spilled = queue.spills(&entry);
        self.spilled = self.spilled + queue.spilled() - before;
        match spilled {
            Ok(true) => {}
            Ok(false) => {
                let freed = queue.supersede(&entry);
                queue.bytes = queue.bytes + cost(&entry) - freed;
                self.bytes = self.bytes + cost(&entry) - freed;
                queue.entries.push(entry);
            }
            Err(error) => {
                self.warn(&error);
                self.expose(file, out);
                out.push(entry);
            }
        }
    }

    /// Notes that the file was read. It had this state at the last of these events, unless one of
    /// them changed it.
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

    /// Notes that an event changed the file. The number of a lost event is unknown.
    pub(super) fn disturb(&mut self, file: File, number: Option<u64>) {
        if let Some(queue) = self.queues.get_mut(&file) {
            queue.cut = queue
                .cut
                .filter(|cut| number.is_some_and(|number| number < cut.from || cut.to <= number));
        }
    }

    /// Notes that any event may have changed any file.
    pub(super) fn disturb_all(&mut self) {
        for queue in self.queues.values_mut() {
            queue.cut = None;
        }
    }

    /// Hands on the entries up to the cut and returns the event number below which they contain all
    /// changes. `None` if no such state is known.
    fn take_cut(&mut self, file: File, out: &mut Output) -> Option<u64> {
        let queue = self.queues.get_mut(&file)?;
        let cut = queue.cut.take()?;
        queue.since = cut.at;
        self.spilled -= queue.spilled();
        if let Some(spill) = queue.spill.take() {
            out.push_content(file, spill);
        }
        let rest = queue
            .entries
            .split_off(cut.entries.min(queue.entries.len()));
        let entries = std::mem::replace(&mut queue.entries, rest);
        let bytes: usize = entries.iter().map(cost).sum();
        queue.bytes -= bytes;
        self.bytes -= bytes;
        out.extend(entries);
        Some(cut.to)
    }

    /// Hands on all entries of a file.
    fn take_all(&mut self, file: File, out: &mut Output) {
        let Some(queue) = self.queues.remove(&file) else {
            return;
        };
        self.bytes -= queue.bytes;
        self.spilled -= queue.spilled();
        if let Some(spill) = queue.spill {
            out.push_content(file, spill);
        }
        out.extend(queue.entries);
    }

    /// The file with the most bytes held, if the limit is exceeded.
    fn overflow(&self) -> Option<File> {
        if self.bytes <= self.capacity {
            return None;
        }
        // What cannot be spilled is small, unless there are very many entries.
        let spills = |queue: &Queue| queue.spill.is_none() || self.folder.is_none();
        let all = self.queues.iter().filter(|(_, queue)| spills(queue));
        let largest = all.max_by_key(|(_, queue)| queue.bytes);
        largest.map(|(file, _)| *file)
    }
}

impl Queue {
    /// Bytes on the disk.
    fn spilled(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::bytes)
    }

    /// Spills the content from now on. A cut stays valid if it covers all of the content.
    fn spill(&mut self, create: impl FnOnce() -> std::io::Result<Spill>) -> std::io::Result<()> {
        let mut spill = create()?;
        let entries = std::mem::take(&mut self.entries);
        let (mut before, mut done) = (0, Ok(()));
        for (at, entry) in entries.into_iter().enumerate() {
            let spilled = match &entry {
                Entry::Change(change) if done.is_ok() => spill.take(change),
                _ => Ok(false),
            };
            let in_cut = self.cut.is_some_and(|cut| at < cut.entries);
            if matches!(spilled, Ok(true)) {
                self.bytes -= cost(&entry);
                if !in_cut {
                    self.cut = None;
                }
                continue;
            }
            done = done.and_then(|()| spilled.map(drop));
            before += usize::from(in_cut);
            self.entries.push(entry);
        }
        if let Some(cut) = &mut self.cut {
            cut.entries = before;
        }
        self.spill = Some(spill);
        done
    }

    /// Takes a change of content that belongs in the spill file. Returns false for any other.
    fn spills(&mut self, entry: &Entry) -> std::io::Result<bool> {
        let (Some(spill), Entry::Change(change)) = (&mut self.spill, entry) else {
            return Ok(false);
        };
        let taken = spill.take(change)?;
        if taken {
            // What was read and what has changed since can no longer be told apart.
            self.cut = None;
        }
        Ok(taken)
    }

    /// Drops entries that a new one makes superfluous, so that a file that is read repeatedly takes
    /// no more memory than its size. Returns the bytes freed. Entries before the cut stay.
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

    fn data(offset: u64, byte: u8) -> Entry {
        Entry::Change(Change::Data {
            file: FILE,
            offset,
            bytes: vec![byte; 4096],
            origin: Origin::ReadBack,
        })
    }

    #[test]
    fn a_cut_is_what_was_kept_before_it() {
        let mut kept = HoldBack::default();
        let mut out = Output::default();
        kept.push(FILE, size(1), &mut out);
        kept.push(FILE, size(2), &mut out);
        kept.cut(FILE, 10, 20);
        kept.push(FILE, size(3), &mut out);
        for outside in [9, 20] {
            kept.disturb(FILE, Some(outside));
        }
        // The second size has replaced the first.
        assert_eq!(kept.take_cut(FILE, &mut out), Some(20));
        assert_eq!(out.entries(), [size(2)]);
        assert_eq!(kept.take_cut(FILE, &mut out), None);
        kept.take_all(FILE, &mut out);
        assert_eq!(out.entries(), [size(3)]);
        assert!(kept.is_empty());
    }

    #[test]
    fn a_file_that_is_read_again_and_again_takes_the_memory_of_its_last_state() {
        let mut kept = HoldBack::default();
        let mut out = Output::default();
        for byte in 0..100 {
            kept.push(FILE, data(0, byte), &mut out);
            kept.push(FILE, data(4096, byte), &mut out);
            kept.push(FILE, size(u64::from(byte)), &mut out);
            kept.push(FILE, size(8192), &mut out);
        }
        assert!(kept.bytes < 100 * 1024, "{}", kept.bytes);
        kept.cut(FILE, 10, 20);
        // Entries before the cut stay.
        kept.push(FILE, data(0, 100), &mut out);
        kept.take_cut(FILE, &mut out).unwrap();
        let state = out.entries();
        assert!(state.contains(&data(0, 99)) && state.contains(&data(4096, 99)));
        assert!(!state.contains(&data(0, 98)));
        assert_eq!(state.last(), Some(&size(8192)));
        kept.take_all(FILE, &mut out);
        assert_eq!(out.entries(), [data(0, 100)]);
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn a_cut_that_an_event_changed_is_none() {
        for number in [Some(10), Some(19), None] {
            let (mut kept, mut out) = (HoldBack::default(), Output::default());
            kept.push(FILE, size(1), &mut out);
            kept.cut(FILE, 10, 20);
            kept.disturb(FILE, number);
            assert_eq!(kept.take_cut(FILE, &mut out), None, "{number:?}");
            assert!(!kept.is_empty());
        }
    }

    fn spilling() -> HoldBack {
        HoldBack::new(&HoldBackOptions {
            memory: 10_000,
            folder: Some(PathBuf::from("/tmp")),
        })
    }

    /// Takes an entry of a file in doubt.
    fn take(kept: &mut HoldBack, entry: Entry, out: &mut Output) {
        let doubts = Doubts::from([(FILE, super::super::dirty::DirtyParts::default())]);
        kept.streams = false;
        kept.take(entry, None, &doubts, out);
    }

    #[test]
    fn what_is_too_large_for_memory_is_kept_on_the_disk_and_a_state_as_well() {
        let (mut kept, mut out) = (spilling(), Output::default());
        let settled = Entry::Change(Change::Settled {
            file: FILE,
            part: everything(),
        });
        let gauge = kept.gauge();
        for byte in 0..10 {
            take(&mut kept, data(4096 * u64::from(byte), byte), &mut out);
        }
        assert!(kept.bytes < 10_000, "{}", kept.bytes);
        assert!(gauge.load(Ordering::Relaxed) >= 40_960);
        assert!(out.entries().is_empty(), "the log has none of it");
        kept.cut(FILE, 10, 20);
        take(&mut kept, settled.clone(), &mut out);
        assert_eq!(kept.take_cut(FILE, &mut out), Some(20));
        let state = out.entries();
        let whole: u64 = state
            .iter()
            .map(|entry| match entry {
                Entry::Change(Change::Data { bytes, .. }) => bytes.len() as u64,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(whole, 40_960);
        kept.take_all(FILE, &mut out);
        assert_eq!(out.entries(), [settled]);
        // A change of its content makes a cut invalid.
        for byte in 0..10 {
            take(&mut kept, data(4096 * u64::from(byte), byte), &mut out);
        }
        kept.cut(FILE, 30, 40);
        take(&mut kept, data(0, 1), &mut out);
        assert_eq!(kept.take_cut(FILE, &mut out), None);
    }

    #[test]
    fn without_a_place_on_the_disk_the_log_has_it_in_doubt() {
        let (mut kept, mut out) = (spilling(), Output::default());
        kept.folder = Some(PathBuf::from("/proc"));
        for byte in 0..3 {
            take(&mut kept, data(4096 * u64::from(byte), byte), &mut out);
        }
        let said = out.entries();
        assert!(matches!(&said[0], Entry::Change(Change::Doubt { .. })));
        assert_eq!(said.len(), 4);
        assert!(
            kept.stale(&Doubts::new(), 1)
                .is_some_and(|stale| stale.is_empty())
        );
    }

    #[test]
    fn the_state_of_files_is_that_of_the_one_that_is_farthest_behind() {
        let (mut kept, mut out) = (HoldBack::default(), Output::default());
        let other = File { inode: 13, ..FILE };
        let doubt = || super::super::dirty::DirtyParts::default();
        let doubts = Doubts::from([(FILE, doubt()), (other, doubt())]);
        assert_eq!(kept.state_of(&[]), u64::MAX);
        for (to, cut) in [(20, true), (30, false), (40, true)] {
            kept.begin_reading(&doubts);
            kept.push(FILE, size(to), &mut out);
            if cut {
                kept.cut(FILE, to - 10, to);
            }
            kept.end_reading(&doubts, &mut out);
        }
        assert_eq!(kept.state_of(&[FILE]), 40);
        assert_eq!(kept.state_of(&[FILE, other]), 0);
    }
}
