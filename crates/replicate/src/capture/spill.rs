//! The content of a file that is held back and too large for memory. It is in an unnamed file at
//! the same offsets, so that it takes no more disk space than the source file, however often that
//! is read.

use std::collections::BTreeMap;
use std::fs::File as Opened;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::record::{Change, Edit, Entry, File, Origin};

/// How many bytes are in one record.
const PIECE: usize = 256 << 10;
/// The most disjoint ranges.
const MAX_RANGES: usize = 1 << 20;

/// Changes of a file's content since it was last handed on.
#[derive(Debug)]
pub(super) struct Spill {
    disk: Opened,
    /// The start and end of each range, and whether it was written. Otherwise it is a hole.
    ranges: BTreeMap<u64, (u64, bool)>,
    /// The last recorded size, and the smallest.
    sizes: Option<(u64, u64)>,
    /// The bytes of the ranges that were written.
    bytes: u64,
}

impl Spill {
    /// Creates the file in a folder. It is removed when this is dropped.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let disk = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            disk: disk.into(),
            ranges: BTreeMap::new(),
            sizes: None,
            bytes: 0,
        })
    }

    /// The number of bytes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a change of the content. Returns false for any other change.
    ///
    /// # Errors
    /// The disk is full, or there are too many ranges. The spill is then complete without this
    /// change.
    pub(super) fn take(&mut self, change: &Change) -> io::Result<bool> {
        let Some((_, edit)) = change.edit() else {
            return Ok(false);
        };
        if self.ranges.len() >= MAX_RANGES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (start, end) = edit.range();
        match edit {
            Edit::Write { bytes, .. } => {
                self.disk.write_all_at(bytes, start)?;
                self.put(start, end, true);
                if let Some((size, _)) = &mut self.sizes
                    && start < end
                {
                    *size = end.max(*size);
                }
            }
            Edit::Hole { .. } => self.put(start, end, false),
            Edit::Resize { size } => {
                self.cut_out(size, u64::MAX);
                let least = self.sizes.map_or(size, |(_, least)| least.min(size));
                self.sizes = Some((size, least));
            }
        }
        Ok(true)
    }

    /// Hands on all of the content.
    ///
    /// # Errors
    /// The content cannot be read.
    pub(super) fn hand_on(&self, file: File, take: &mut impl FnMut(Entry)) -> io::Result<()> {
        let mut say = |change| take(Entry::Change(change));
        // First the truncation, because data may have been written there later.
        let least = self.sizes.map(|(_, least)| least);
        if let Some(size) = least {
            say(Change::Size { file, size });
        }
        for (start, (end, written)) in &self.ranges {
            if !written {
                // After the smallest size there is only what follows.
                let end = least.map_or(*end, |least| least.min(*end));
                if *start < end {
                    let (offset, length) = (*start, end - start);
                    say(Change::Hole {
                        file,
                        offset,
                        length,
                    });
                }
                continue;
            }
            let mut at = *start;
            while at < *end {
                let length = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                let mut bytes = vec![0; length];
                self.disk.read_exact_at(&mut bytes, at)?;
                say(Change::Data {
                    file,
                    offset: at,
                    bytes,
                    origin: Origin::ReadBack,
                });
                at += length as u64;
            }
        }
        if let Some((size, least)) = self.sizes
            && size != least
        {
            say(Change::Size { file, size });
        }
        Ok(())
    }

    fn put(&mut self, start: u64, end: u64, written: bool) {
        if start >= end {
            return;
        }
        self.cut_out(start, end);
        let mut range = (start, end);
        // Adjacent ranges of the same kind are merged.
        if let Some((&from, &(to, kind))) = self.ranges.range(..start).next_back()
            && to == start
            && kind == written
        {
            range.0 = from;
        }
        if let Some(&(to, kind)) = self.ranges.get(&end)
            && kind == written
        {
            self.ranges.remove(&end);
            range.1 = to;
        }
        self.ranges.insert(range.0, (range.1, written));
        if written {
            self.bytes += end - start;
        }
    }

    /// Removes a range.
    fn cut_out(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.ranges.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            if let Some((to, true)) = self.ranges.remove(&at) {
                self.bytes -= to - at;
            }
        }
    }

    fn split(&mut self, at: u64) {
        if let Some((_, (end, written))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (*end, *written);
            *end = at;
            self.ranges.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = File {
        inode: 12,
        generation: 1,
    };

    fn data(offset: u64, bytes: &[u8]) -> Change {
        Change::Data {
            file: FILE,
            offset,
            bytes: bytes.to_vec(),
            origin: Origin::Exact,
        }
    }

    fn size(size: u64) -> Change {
        Change::Size { file: FILE, size }
    }

    fn hole(offset: u64, length: u64) -> Change {
        Change::Hole {
            file: FILE,
            offset,
            length,
        }
    }

    fn apply(content: &mut Vec<u8>, change: &Change) {
        let (_, edit) = change.edit().unwrap();
        let at = |offset: u64| usize::try_from(offset).unwrap();
        match edit {
            Edit::Write { offset, bytes } => {
                let end = at(offset) + bytes.len();
                content.resize(content.len().max(end), 0);
                content[at(offset)..end].copy_from_slice(bytes);
            }
            Edit::Hole { offset, length } => {
                let end = at(offset.saturating_add(length).min(content.len() as u64));
                if at(offset) < end {
                    content[at(offset)..end].fill(0);
                }
            }
            Edit::Resize { size } => content.resize(at(size), 0),
        }
    }

    #[test]
    fn content_is_the_same_by_another_way() {
        let long = vec![7; PIECE + 5];
        let all = [
            data(0, b"abcdef"),
            data(3, b"XY"),
            hole(1, 3),
            size(4),
            data(10, b"far"),
            size(20),
            hole(11, 5),
            data(15, &long),
            size(PIECE as u64),
            data(2, b"end"),
            size(1 << 20),
        ];
        for count in 0..=all.len() {
            // A file that had content before.
            let before = vec![b'.'; 30];
            let mut spill = Spill::create(Path::new("/tmp")).unwrap();
            let (mut wanted, mut said) = (before.clone(), before);
            for change in &all[..count] {
                assert!(spill.take(change).unwrap());
                apply(&mut wanted, change);
            }
            let mut take = |entry| match entry {
                Entry::Change(change) => apply(&mut said, &change),
                other => panic!("{other:?}"),
            };
            spill.hand_on(FILE, &mut take).unwrap();
            assert!(said == wanted, "after {count} changes");
        }
    }

    #[test]
    fn a_range_that_is_written_again_takes_no_more_room() {
        let mut spill = Spill::create(Path::new("/tmp")).unwrap();
        for _ in 0..10 {
            for at in 0..20 {
                spill.take(&data(at * 100, &[1; 200])).unwrap();
            }
        }
        assert_eq!((spill.bytes(), spill.ranges.len()), (2100, 1));
        spill.take(&size(1000)).unwrap();
        assert_eq!(spill.bytes(), 1000);
        spill.take(&hole(0, 400)).unwrap();
        assert_eq!(spill.bytes(), 600);
        let attributes = Change::Extended {
            file: FILE,
            all: Vec::new(),
        };
        assert!(!spill.take(&attributes).unwrap());
    }
}
