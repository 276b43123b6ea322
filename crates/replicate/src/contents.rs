//! What the bytes of files have become since some record: which ranges were written, by which records,
//! and which are empty. Holes are kept as exactly as blocks are: of a block that is punched in part,
//! the rest stays on the disk.

use std::collections::BTreeMap;

use crate::log::{Error, Located, Place};
use crate::record::{Change, Entry, File};

/// The block size that holes are counted in. In bytes.
const BLOCK: u64 = 4096;

/// Files whose bytes have changed.
#[derive(Debug, Default)]
pub(crate) struct Contents(BTreeMap<File, Extents>);

/// Ranges of a file that have changed; those between them are as they were.
#[derive(Debug, Default)]
pub(crate) struct Extents(BTreeMap<u64, (u64, Bytes)>);

/// What a range consists of.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// What the record there says, which begins at this offset of the file.
    Written { place: Place, at: u64 },
    /// Zeros on the disk.
    Zeros,
    /// Zeros that are not on the disk.
    Hole,
}

impl Contents {
    pub(crate) fn follow(&mut self, located: &Located) {
        match &located.record.entry {
            Entry::Start { .. } => self.0.clear(),
            Entry::Epoch { .. } => {}
            Entry::Change(change) => self.change(change, &located.place),
        }
    }

    pub(crate) fn get(&self, file: File) -> Option<&Extents> {
        self.0.get(&file)
    }

    /// Forgets what the other files consist of.
    pub(crate) fn retain(&mut self, stays: impl Fn(File) -> bool) {
        self.0.retain(|file, _| stays(*file));
    }

    fn change(&mut self, change: &Change, place: &Place) {
        match change {
            Change::New { file, .. } => {
                let mut blank = Extents::default();
                blank.put(0, u64::MAX, Bytes::Hole);
                self.0.insert(*file, blank);
            }
            Change::Gone { file } => {
                self.0.remove(file);
            }
            Change::Data {
                file,
                offset,
                bytes,
                ..
            } => {
                let place = place.clone();
                let written = Bytes::Written { place, at: *offset };
                let end = offset.saturating_add(bytes.len() as u64);
                self.of(*file).put(*offset, end, written);
            }
            Change::Size { file, size } => self.of(*file).punch(*size, u64::MAX),
            Change::Hole {
                file,
                offset,
                length,
            } => {
                let end = offset.saturating_add(*length);
                self.of(*file).punch(*offset, end);
            }
            _ => {}
        }
    }

    fn of(&mut self, file: File) -> &mut Extents {
        self.0.entry(file).or_default()
    }
}

impl Extents {
    /// In their order: where each begins, where it ends, what it is.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64, &Bytes)> {
        self.0
            .iter()
            .map(|(start, (end, bytes))| (*start, *end, bytes))
    }

    fn put(&mut self, start: u64, end: u64, bytes: Bytes) {
        if start < end {
            self.take(start, end);
            self.0.insert(start, (end, bytes));
        }
    }

    fn punch(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = start
            .checked_next_multiple_of(BLOCK)
            .unwrap_or(end)
            .min(end);
        let last = if end == u64::MAX {
            end
        } else {
            (end - end % BLOCK).max(first)
        };
        self.blank(start, first);
        self.put(first, last, Bytes::Hole);
        self.blank(last, end);
    }

    /// Empties a part of a block: what is on the disk of it stays there, as zeros.
    fn blank(&mut self, start: u64, end: u64) {
        let mut at = start;
        for (from, to, bytes) in self.take(start, end) {
            self.put(at, from, Bytes::Hole);
            let blank = match bytes {
                Bytes::Hole => Bytes::Hole,
                Bytes::Written { .. } | Bytes::Zeros => Bytes::Zeros,
            };
            self.put(from, to, blank);
            at = to;
        }
        self.put(at, end, Bytes::Hole);
    }

    /// Takes out what lies in the range, cutting through what reaches into it.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, u64, Bytes)> {
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.0.range(start..end).map(|(at, _)| *at).collect();
        inside
            .into_iter()
            .filter_map(|at| self.0.remove(&at).map(|(to, bytes)| (at, to, bytes)))
            .collect()
    }

    fn split(&mut self, at: u64) {
        if let Some((_, (end, bytes))) = self.0.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (*end, bytes.clone());
            *end = at;
            self.0.insert(at, rest);
        }
    }
}

/// Reads what records say, the last one only once.
#[derive(Debug, Default)]
pub(crate) struct Source(Option<((usize, u64), Vec<u8>)>);

impl Source {
    /// The bytes of the file from `start` to `end`, which lie within what the record says.
    pub(crate) fn read(
        &mut self,
        place: &Place,
        at: u64,
        start: u64,
        end: u64,
    ) -> Result<&[u8], Error> {
        let id = place.id();
        let bytes = match self.0.take() {
            Some((last, bytes)) if last == id => bytes,
            _ => place.data()?,
        };
        let (_, bytes) = self.0.insert((id, bytes));
        let slice = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        bytes
            .get(slice(start - at)..slice(end - at))
            .ok_or_else(|| place.damaged("the record is another than it was"))
    }
}
