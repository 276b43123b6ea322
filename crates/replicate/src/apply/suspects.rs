//! Lists what an interrupted step may have left in a tree.

use std::collections::BTreeSet;

use super::fold::Later;
use crate::record::{File, Kind};
use crate::tree::Tree;

/// Files that may not be as they were applied.
#[derive(Debug)]
pub(super) struct Suspects {
    /// Directories that may have other attributes.
    pub(super) worn: BTreeSet<File>,
    /// Other files, which may have been replaced.
    pub(super) lost: BTreeSet<File>,
}

impl Suspects {
    /// Collects everything that later records mention, and what is below directories that they
    /// move. Another file that looks the same may have such a name by now.
    pub(super) fn new(tree: &Tree, later: Later) -> Self {
        let is_directory = |file: File| {
            tree.get(file)
                .is_some_and(|node| node.kind == Kind::Directory)
        };
        let of_two_kinds = |files: BTreeSet<File>| -> (Vec<File>, Vec<File>) {
            let known = files.into_iter().filter(|file| tree.get(*file).is_some());
            known.partition(|file| is_directory(*file))
        };
        let (worn, mut lost) = of_two_kinds(later.changed);
        let (mut moved, renamed) = of_two_kinds(later.named);
        lost.extend(renamed);
        let mut suspects = Self {
            worn: worn.into_iter().collect(),
            lost: lost.into_iter().collect(),
        };
        let mut seen = BTreeSet::new();
        while let Some(directory) = moved.pop() {
            if !seen.insert(directory) {
                continue;
            }
            suspects.worn.insert(directory);
            for (_, file) in tree.children(directory) {
                if is_directory(file) {
                    moved.push(file);
                } else {
                    suspects.lost.insert(file);
                }
            }
        }
        suspects
    }
}
