//! The parts in doubt. An epoch needs all of them settled, except those of files that it names as
//! stale.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Change, File, Part};

/// The parts that are in doubt and have not been settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts(BTreeMap<File, BTreeSet<DirtyState>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DirtyState {
    Range { offset: u64, end: u64 },
    Attributes,
    Names,
}

impl Doubts {
    /// Applies a change that puts something in doubt, settles it or removes a file.
    pub(crate) fn follow(&mut self, change: &Change) {
        match change {
            Change::Doubt { file, part } => self.raise(*file, part),
            Change::Settled { file, part } => self.settle(*file, part),
            Change::Gone { file } => self.forget(*file),
            _ => {}
        }
    }

    pub fn raise(&mut self, file: File, part: &Part) {
        self.0.entry(file).or_default().insert(part.into());
    }

    /// Settles all ranges within the one that was read.
    pub fn settle(&mut self, file: File, part: &Part) {
        let settled = DirtyState::from(part);
        if let Some(doubts) = self.0.get_mut(&file) {
            doubts.retain(|doubt| !settled.covers(*doubt));
            if doubts.is_empty() {
                self.0.remove(&file);
            }
        }
    }

    /// Forgets the doubts of a file that is gone.
    pub fn forget(&mut self, file: File) {
        self.0.remove(&file);
    }

    pub fn has(&self, file: File, part: &Part) -> bool {
        let doubts = self.0.get(&file);
        doubts.is_some_and(|doubts| doubts.contains(&part.into()))
    }

    /// All parts in doubt.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (File, Part)> {
        let all = self.0.iter();
        all.flat_map(|(file, doubts)| doubts.iter().map(|doubt| (*file, (*doubt).into())))
    }

    /// A file with a doubt that is not among `files`.
    pub(crate) fn first_except(&self, files: &BTreeSet<File>) -> Option<File> {
        self.0.keys().find(|file| !files.contains(file)).copied()
    }

    /// A file with a doubt.
    pub fn first(&self) -> Option<File> {
        self.0.first_key_value().map(|(file, _)| *file)
    }
}

impl From<&Part> for DirtyState {
    fn from(part: &Part) -> Self {
        match *part {
            Part::Range { offset, length } => Self::Range {
                offset,
                end: offset.saturating_add(length),
            },
            Part::Attributes => Self::Attributes,
            Part::Names => Self::Names,
        }
    }
}

impl From<DirtyState> for Part {
    fn from(doubt: DirtyState) -> Self {
        match doubt {
            DirtyState::Range { offset, end } => Self::Range {
                offset,
                length: match end {
                    u64::MAX => end,
                    end => end - offset,
                },
            },
            DirtyState::Attributes => Self::Attributes,
            DirtyState::Names => Self::Names,
        }
    }
}

impl DirtyState {
    fn covers(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Range { offset, end },
                Self::Range {
                    offset: from,
                    end: to,
                },
            ) => offset <= from && to <= end,
            _ => self == other,
        }
    }
}
