//! The files that an epoch has in an earlier state, in a form for people.

use super::Tree;
use crate::record::Name;

/// How many are listed. All are counted.
const MAX_LISTED: usize = 16;

/// Files that an epoch has in an earlier state, because they changed each time they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    pub files: u64,
    /// The first paths below the root of those that have one.
    pub listed: Vec<Vec<u8>>,
}

impl Stale {
    /// The stale files of the tree's last epoch.
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

    /// The listed paths in printable form.
    pub fn display_paths(&self) -> Vec<String> {
        let shown = self.listed.iter();
        shown
            .map(|path| format!("./{}", path.escape_ascii()))
            .collect()
    }

    /// A phrase for a line about an epoch. Empty if there are no stale files.
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
