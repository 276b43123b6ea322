//! The queue of entries for the listener.

use std::io;

use super::spill::Spill;
use crate::record::{Entry, File};

/// Entries, and contents of files that were too large for memory.
#[derive(Debug, Default)]
pub(super) struct Output(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Entry(Entry),
    Content(File, Spill),
}

impl Output {
    pub(super) fn push(&mut self, entry: Entry) {
        self.0.push(Piece::Entry(entry));
    }

    pub(super) fn extend(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.0.extend(entries.into_iter().map(Piece::Entry));
    }

    /// Appends the spilled content of a file.
    pub(super) fn push_content(&mut self, file: File, spill: Spill) {
        self.0.push(Piece::Content(file, spill));
    }

    /// Hands on everything.
    ///
    /// # Errors
    /// Spilled content cannot be read.
    pub(super) fn hand_on(&mut self, mut take: impl FnMut(Entry)) -> io::Result<()> {
        for piece in self.0.drain(..) {
            match piece {
                Piece::Entry(entry) => take(entry),
                Piece::Content(file, spill) => spill.hand_on(file, &mut take)?,
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn entries(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.hand_on(|entry| entries.push(entry)).unwrap();
        entries
    }
}
