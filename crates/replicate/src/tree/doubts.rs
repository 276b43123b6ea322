//! What is in doubt: an epoch waits until nothing is.

use std::collections::BTreeSet;

use crate::record::{File, Part};

/// What was in doubt and is not settled yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts(BTreeSet<(File, Doubt)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    Range { offset: u64, end: u64 },
    Attributes,
    Names,
}

impl Doubts {
    pub fn raise(&mut self, file: File, part: &Part) {
        self.0.insert((file, part.into()));
    }

    /// Settles all ranges that lie within the one that was read.
    pub fn settle(&mut self, file: File, part: &Part) {
        let settled = Doubt::from(part);
        self.0
            .retain(|(of, doubt)| *of != file || !settled.covers(*doubt));
    }

    /// Of a file that is gone nothing has to be known.
    pub fn forget(&mut self, file: File) {
        self.0.retain(|(of, _)| *of != file);
    }

    /// A file that something is not known of.
    pub fn first(&self) -> Option<File> {
        self.0.first().map(|(file, _)| *file)
    }
}

impl From<&Part> for Doubt {
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

impl Doubt {
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
