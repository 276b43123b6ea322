//! A promotion: which tree continues a log, and the identifiers of its files.

use std::collections::BTreeMap;

use super::field::{Cursor, Field, InvalidRecord, Members};
use super::{File, Source};

/// A promotion: from here on, another tree continues the log. The first tree of a log has term 1
/// and no such record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Higher than the number of every earlier term.
    pub number: u64,
    /// The log's last epoch, and the state of the tree when it was promoted.
    pub epoch: u64,
    /// When that epoch was written, in nanoseconds since 1970.
    pub epoch_ns: u64,
    /// The root of the promoted tree, and its file system.
    pub root: File,
    pub source: Source,
}

impl Term {
    /// The term of a log without such a record.
    pub const FIRST: u64 = 1;

    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        for number in [self.number, self.epoch, self.epoch_ns] {
            number.put(to);
        }
        self.root.put(to);
        self.source.put(to);
    }

    pub(crate) fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(Self {
            number: from.u64()?,
            epoch: from.u64()?,
            epoch_ns: from.u64()?,
            root: Field::take(from)?,
            source: Source::take(from)?,
        })
    }

    pub(crate) fn show(&self, to: &mut Members) {
        self.number.show("term", to);
        self.epoch.show("epoch", to);
        self.root.show("root", to);
        self.source.show(to);
    }
}

/// The identifiers of files from some record on, by the former identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Renumbering(BTreeMap<File, File>);

/// A generation that no file has.
const NO_FILE: u32 = u32::MAX - 1;

impl Renumbering {
    /// Adds a record. Returns the complete renumbering after the last one.
    pub(crate) fn follow(&mut self, pairs: &[(File, File)], last: bool) -> Option<Self> {
        self.0.extend(pairs.iter().copied());
        last.then(|| std::mem::take(self))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn has(&self, before: File) -> bool {
        self.0.contains_key(&before)
    }

    pub(crate) fn get(&self, before: File) -> Option<File> {
        self.0.get(&before).copied()
    }

    /// Whether no two files have the same identifier.
    pub(crate) fn is_distinct(&self) -> bool {
        let mut names: Vec<_> = self.0.values().collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair.first() != pair.last())
    }

    /// Gives these files unused identifiers if they have none yet.
    pub(crate) fn cover(&mut self, files: impl Iterator<Item = File>) {
        let mut free = u64::MAX;
        for file in files {
            if !self.has(file) {
                let generation = NO_FILE;
                self.0.insert(
                    file,
                    File {
                        inode: free,
                        generation,
                    },
                );
                free -= 1;
            }
        }
    }

    pub(crate) fn insert(&mut self, before: File, after: File) {
        self.0.insert(before, after);
    }

    /// The pairs for records, with `each` pairs per record.
    pub(crate) fn pairs(self, each: usize) -> Vec<Vec<(File, File)>> {
        let all: Vec<_> = self.0.into_iter().collect();
        all.chunks(each).map(<[_]>::to_vec).collect()
    }
}
