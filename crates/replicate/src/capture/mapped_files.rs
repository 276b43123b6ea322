//! Hashes of memory-mapped files on file systems that do not report stores through memory: the
//! contents at the last read.

use std::collections::BTreeMap;

use crate::record::{Change, File};

/// The files, with hashes of what the log has from reading them.
#[derive(Debug, Default)]
pub(super) struct MappedFiles(BTreeMap<File, BlockHashes>);

/// The contents of a file when it was read: a hash of each piece, and none for a hole. Ranges that
/// the log has received in another way since are removed.
#[derive(Debug, Default)]
pub(super) struct BlockHashes(BTreeMap<u64, Piece>);

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    length: u64,
    hash: Option<u64>,
}

impl MappedFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn files(&self) -> Vec<File> {
        self.0.keys().copied().collect()
    }

    pub(super) fn insert(&mut self, file: File) {
        self.0.entry(file).or_default();
    }

    pub(super) fn remove(&mut self, file: File) {
        self.0.remove(&file);
    }

    /// Takes out the hashes of a file, until [`Self::put`] returns them.
    pub(super) fn take(&mut self, file: File) -> Option<BlockHashes> {
        self.0.remove(&file)
    }

    pub(super) fn put(&mut self, file: File, hashes: BlockHashes) {
        self.0.insert(file, hashes);
    }

    /// Removes hashes that a change has made obsolete.
    pub(super) fn follow(&mut self, change: &Change) {
        if let Some((file, edit)) = change.edit()
            && let Some(hashes) = self.0.get_mut(&file)
        {
            let (from, to) = edit.range();
            hashes.forget(from, to);
        }
    }
}

impl BlockHashes {
    /// Whether the file had exactly these contents there. If not, the new hash is stored.
    pub(super) fn has(&mut self, offset: u64, length: u64, hash: Option<u64>) -> bool {
        let piece = Piece { length, hash };
        if self.0.get(&offset) == Some(&piece) {
            return true;
        }
        self.forget(offset, offset.saturating_add(length));
        self.0.insert(offset, piece);
        false
    }

    fn forget(&mut self, from: u64, to: u64) {
        let before = self.0.range(..to).rev();
        let within = before.take_while(|(at, piece)| at.saturating_add(piece.length) > from);
        let within: Vec<_> = within.map(|(at, _)| *at).collect();
        for at in within {
            self.0.remove(&at);
        }
    }
}
