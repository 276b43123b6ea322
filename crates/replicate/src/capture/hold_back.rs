//! Keeps what is said of a file's content and attributes until it is a state that the file had: epochs before have the
//! state that was handed on last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::record::{Change, Entry, File};

/// What is kept in memory, in bytes of files. Beyond it the log has what is known so far, and no epoch until that is
/// whole.
const CAPACITY: usize = 128 << 20;

/// The files of which something is kept.
#[derive(Debug, Default)]
pub(super) struct HoldBack {
    queues: BTreeMap<File, Queue>,
    bytes: usize,
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
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn has(&self, file: File) -> bool {
        self.queues.contains_key(&file)
    }

    pub(super) fn files(&self) -> Vec<File> {
        self.queues.keys().copied().collect()
    }

    /// For how long the oldest of it has been kept.
    pub(super) fn age(&self) -> Option<Duration> {
        let oldest = self.queues.values().map(|queue| queue.since).min();
        oldest.map(|since| since.elapsed())
    }

    pub(super) fn push(&mut self, file: File, entry: Entry) {
        let queue = self.queues.entry(file).or_insert_with(|| Queue {
            entries: Vec::new(),
            bytes: 0,
            since: Instant::now(),
            cut: None,
        });
        if let Entry::Change(Change::Data { bytes, .. }) = &entry {
            queue.bytes += bytes.len();
            self.bytes += bytes.len();
        }
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
    pub(super) fn take_cut(&mut self, file: File) -> Option<Vec<Entry>> {
        let queue = self.queues.get_mut(&file)?;
        let cut = queue.cut.take()?;
        queue.since = cut.at;
        let rest = queue
            .entries
            .split_off(cut.entries.min(queue.entries.len()));
        let entries = std::mem::replace(&mut queue.entries, rest);
        let bytes = bytes_of(&entries);
        queue.bytes -= bytes;
        self.bytes -= bytes;
        Some(entries)
    }

    /// Takes all that is kept of a file.
    pub(super) fn take(&mut self, file: File) -> Vec<Entry> {
        let Some(queue) = self.queues.remove(&file) else {
            return Vec::new();
        };
        self.bytes -= queue.bytes;
        queue.entries
    }

    /// The file that most is kept of, where there is no room for all.
    pub(super) fn overflow(&self) -> Option<File> {
        if self.bytes <= CAPACITY {
            return None;
        }
        let largest = self.queues.iter().max_by_key(|(_, queue)| queue.bytes);
        largest.map(|(file, _)| *file)
    }
}

fn bytes_of(entries: &[Entry]) -> usize {
    let data = entries.iter().filter_map(|entry| match entry {
        Entry::Change(Change::Data { bytes, .. }) => Some(bytes.len()),
        _ => None,
    });
    data.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(kept.take_cut(FILE), Some(vec![size(1), size(2)]));
        assert_eq!(kept.take_cut(FILE), None);
        assert_eq!(kept.take(FILE), [size(3)]);
        assert!(kept.is_empty());
    }

    #[test]
    fn a_cut_that_an_event_changed_is_none() {
        for number in [Some(10), Some(19), None] {
            let mut kept = HoldBack::default();
            kept.push(FILE, size(1));
            kept.cut(FILE, 10, 20);
            kept.disturb(FILE, number);
            assert_eq!(kept.take_cut(FILE), None, "{number:?}");
            assert!(kept.has(FILE));
        }
    }
}
