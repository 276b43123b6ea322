//! The files that an epoch has an earlier state of, as they are told to people.

use super::Tree;
use crate::record::Name;

/// So many are listed; all are counted.
const MAX_LISTED: usize = 16;

/// Files of which an epoch has no state of its moment but an earlier one: they changed each time that they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    pub files: u64,
    /// Paths below the root of the first of them that have one.
    pub listed: Vec<Vec<u8>>,
}

impl Stale {
    /// Those of the tree's last epoch.
    pub fn of(tree: &Tree) -> Self {
        let paths = tree.stale().filter_map(|file| tree.path(file));
        let joined = |names: Vec<Name>| {
            let names: Vec<_> = names.iter().map(Name::as_bytes).collect();
            names.join(&b'/')
        };
        Self {
            files: tree.stale().count() as u64,
            listed: paths.take(MAX_LISTED).map(joined).collect(),
        }
    }

    /// The listed paths, as they can be printed.
    pub fn display_paths(&self) -> Vec<String> {
        let shown = self.listed.iter();
        shown
            .map(|path| format!("./{}", path.escape_ascii()))
            .collect()
    }

    /// They in one phrase, of a line about an epoch; empty where there are none.
    pub fn phrase(&self) -> String {
        if self.files == 0 {
            return String::new();
        }
        let more = self.files - self.listed.len() as u64;
        let mut paths = self.display_paths().join(", ");
        if more > 0 {
            paths += &format!(" and {more} more");
        }
        format!("  stale {} files: {paths}", self.files)
    }
}
