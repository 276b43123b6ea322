//! The names found in directories that are being read.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{File, Name};

/// The names in each listed directory, until missing names are removed.
#[derive(Debug, Default)]
pub(super) struct Listings(BTreeMap<File, BTreeSet<Name>>);

impl Listings {
    pub(super) fn insert(&mut self, directory: File, names: BTreeSet<Name>) {
        self.0.insert(directory, names);
    }

    /// Whether a name in a directory stays: it was found, or the directory was not listed.
    pub(super) fn keeps(&self, directory: File, name: &Name) -> bool {
        self.0
            .get(&directory)
            .is_none_or(|names| names.contains(name))
    }

    /// Takes all listings, in the order of their directories.
    pub(super) fn take(&mut self) -> BTreeMap<File, BTreeSet<Name>> {
        std::mem::take(&mut self.0)
    }
}
