//! Files that processes have mapped, where the file system tells nothing of stores through memory: what each had when
//! it was read last.

use std::collections::BTreeMap;

use crate::record::{Change, File};

/// The files, and what the log has of them from reading.
#[derive(Debug, Default)]
pub(super) struct MappedFiles(BTreeMap<File, BlockHashes>);

/// What a file had when it was read: a hash of each piece, and none of a hole. What the log has from elsewhere by now
/// is not in it.
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

    /// Takes the hashes of a file out, until [`Self::put`] returns them.
    pub(super) fn take(&mut self, file: File) -> Option<BlockHashes> {
        self.0.remove(&file)
    }

    pub(super) fn put(&mut self, file: File, hashes: BlockHashes) {
        self.0.insert(file, hashes);
    }

    /// What was read is no longer what the log has.
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
    /// Whether the file had just that there; if not, it has now.
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
