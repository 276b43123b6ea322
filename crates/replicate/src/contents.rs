//! Tracks the bytes of files since some record: which ranges were written, by which records, and
//! which are holes. Holes are tracked as exactly as the file system's blocks: if a block is punched
//! in part, the rest stays on the disk.

use std::collections::BTreeMap;

use crate::log::{Error, LocatedRecord, Place};
use crate::record::{Change, Edit, Entry, File, Renumbering};

/// The block size in which holes are counted, in bytes.
const BLOCK: u64 = 4096;

/// Files whose bytes have changed.
#[derive(Debug, Default)]
pub(crate) struct Contents(BTreeMap<File, Extents>, Renumbering);

/// The changed ranges of a file. The ranges between them are unchanged.
#[derive(Debug, Default)]
pub(crate) struct Extents(BTreeMap<u64, (u64, Bytes)>);

/// The contents of a range.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// The data of this record, which begins at offset `at` of the file.
    Written { place: Place, at: u64 },
    /// Zeros on the disk.
    Zeros,
    /// Zeros that take no disk space.
    Hole,
}

impl Contents {
    pub(crate) fn follow(&mut self, located: &LocatedRecord) {
        match &located.record.entry {
            Entry::Start { .. } => self.0.clear(),
            Entry::Renumber { pairs, last } => {
                if let Some(all) = self.1.follow(pairs, *last) {
                    self.renumber(&all);
                }
            }
            Entry::Epoch { .. }
            | Entry::Source(_)
            | Entry::Term(_)
            | Entry::Patterns(_)
            | Entry::Barrier
            | Entry::Stale { .. } => {}
            Entry::Change(change) => self.change(change, Some(&located.place)),
        }
    }

    /// Gives files their new identifiers. Files without one are no longer in a tree.
    pub(crate) fn renumber(&mut self, all: &Renumbering) {
        let files = std::mem::take(&mut self.0).into_iter();
        self.0 = files
            .filter_map(|(file, extents)| Some((all.get(file)?, extents)))
            .collect();
    }

    /// Applies a change whose bytes are not kept, so that they are unknown from now on.
    pub(crate) fn forget(&mut self, change: &Change) {
        self.change(change, None);
    }

    /// Whether the file is known to have these bytes at an offset, allocated or not.
    pub(crate) fn says(
        &self,
        source: &mut Source,
        file: File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<bool, Error> {
        match self.0.get(&file) {
            Some(extents) => extents.says(source, offset, bytes),
            None => Ok(false),
        }
    }

    /// Whether the file is known to be a hole from one offset to another.
    pub(crate) fn says_hole(&self, file: File, start: u64, end: u64) -> bool {
        let extents = self.0.get(&file);
        extents.is_some_and(|extents| extents.says_hole(start, end))
    }

    pub(crate) fn get(&self, file: File) -> Option<&Extents> {
        self.0.get(&file)
    }

    /// Forgets the contents of the files that do not stay.
    pub(crate) fn retain(&mut self, stays: impl Fn(File) -> bool) {
        self.0.retain(|file, _| stays(*file));
    }

    fn change(&mut self, change: &Change, place: Option<&Place>) {
        match change {
            Change::New { file, .. } => {
                let mut blank = Extents::default();
                blank.put(0, u64::MAX, Bytes::Hole);
                self.0.insert(*file, blank);
            }
            Change::Gone { file } => {
                self.0.remove(file);
            }
            _ => {
                if let Some((file, edit)) = change.edit() {
                    self.edit(file, edit, place);
                }
            }
        }
    }

    fn edit(&mut self, file: File, edit: Edit<'_>, place: Option<&Place>) {
        let (start, end) = edit.range();
        match edit {
            Edit::Write { .. } => match place.cloned() {
                Some(place) => {
                    let written = Bytes::Written { place, at: start };
                    self.of(file).put(start, end, written);
                }
                None if start < end => drop(self.of(file).take(start, end)),
                None => {}
            },
            Edit::Hole { .. } | Edit::Resize { .. } => self.of(file).punch(start, end),
        }
    }

    fn of(&mut self, file: File) -> &mut Extents {
        self.0.entry(file).or_default()
    }
}

impl Extents {
    /// The ranges in order: start, end and contents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64, &Bytes)> {
        self.0
            .iter()
            .map(|(start, (end, bytes))| (*start, *end, bytes))
    }

    /// Whether the ranges cover a file of that size, so that none of its old bytes are needed.
    pub(crate) fn covers(&self, size: u64) -> bool {
        let mut reached = 0;
        for (start, end, _) in self.iter() {
            if start > reached {
                break;
            }
            reached = end;
        }
        reached >= size
    }

    /// The offset of the next range that is not a hole.
    pub(crate) fn data_from(&self, at: u64) -> Option<u64> {
        let before = self.0.range(..at).next_back();
        let before = before.filter(|(_, (end, _))| *end > at);
        let mut following = before.into_iter().chain(self.0.range(at..));
        let data = following.find(|(_, (_, bytes))| !matches!(bytes, Bytes::Hole));
        data.map(|(start, _)| at.max(*start))
    }

    /// Fills a buffer of zeros with the bytes that were written from an offset on.
    pub(crate) fn fill(&self, source: &mut Source, at: u64, zeros: &mut [u8]) -> Result<(), Error> {
        let end = at + zeros.len() as u64;
        for (from, to, bytes) in self.within(at, end) {
            let Bytes::Written { place, at: begins } = bytes else {
                continue;
            };
            let index = |offset: u64| usize::try_from(offset - at).unwrap_or(usize::MAX);
            if let Some(into) = zeros.get_mut(index(from)..index(to)) {
                into.copy_from_slice(source.read(place, *begins, from, to)?);
            }
        }
        Ok(())
    }

    /// Whether the known ranges within a file's first `size` bytes agree with `whole`, which
    /// describes all of them. Zeros are not read on either side, and only one piece of other data
    /// is in memory at a time.
    pub(crate) fn is_same_as(
        &self,
        whole: &Self,
        size: u64,
        (source, of_whole): (&mut Source, &mut Source),
    ) -> Result<bool, Error> {
        const PIECE: u64 = 64 << 10;
        let zeros = |bytes: &Bytes| !matches!(bytes, Bytes::Written { .. });
        for (from, to, one) in self.within(0, size) {
            for (from, to, other) in whole.within(from, to) {
                let skips = zeros(one) && zeros(other);
                let mut at = if skips { to } else { from };
                while at < to {
                    let next = to.min(at + PIECE);
                    let mut here = vec![0; usize::try_from(next - at).unwrap_or_default()];
                    let mut there = here.clone();
                    self.fill(source, at, &mut here)?;
                    whole.fill(of_whole, at, &mut there)?;
                    if here != there {
                        return Ok(false);
                    }
                    at = next;
                }
            }
        }
        Ok(true)
    }

    fn says(&self, source: &mut Source, at: u64, bytes: &[u8]) -> Result<bool, Error> {
        let end = at + bytes.len() as u64;
        let mut reached = at;
        for (from, to, known) in self.within(at, end) {
            let index = |offset: u64| usize::try_from(offset - at).unwrap_or(usize::MAX);
            let Some(found) = bytes.get(index(from)..index(to)) else {
                return Ok(false);
            };
            let same = match known {
                Bytes::Written { place, at: begins } => {
                    found == source.read(place, *begins, from, to)?
                }
                // File systems may turn holes into allocated zeros at any time.
                Bytes::Zeros | Bytes::Hole => zeros(found),
            };
            if from != reached || !same {
                return Ok(false);
            }
            reached = to;
        }
        Ok(reached == end)
    }

    fn says_hole(&self, start: u64, end: u64) -> bool {
        let mut reached = start;
        for (from, to, known) in self.within(start, end) {
            if from != reached || !matches!(known, Bytes::Hole) {
                return false;
            }
            reached = to;
        }
        reached == end
    }

    /// The known ranges between two offsets, trimmed to them.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &Bytes)> {
        let before = self.0.range(..start).next_back();
        let before = before.filter(|(_, (to, _))| *to > start);
        let all = before.into_iter().chain(self.0.range(start..end));
        all.map(move |(from, (to, bytes))| (start.max(*from), end.min(*to), bytes))
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

    /// Punches a part of a block. The part stays on the disk as zeros.
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

    /// Removes the ranges between two offsets, and splits those that reach beyond.
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

fn zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Reads the data of records, and caches the last one.
#[derive(Debug, Default)]
pub(crate) struct Source(Option<((usize, u64), Vec<u8>)>);

impl Source {
    /// The bytes of the file from `start` to `end`, which are within the record's data.
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
