//! Finds the identifiers of a log's files in a promoted tree, by their names, which are the same.

use std::collections::BTreeSet;

use super::Error;
use super::source::Source;
use crate::record::{Entry, File, Kind, Renumbering};
use crate::tree::Tree;

/// The number of pairs per record, of 24 bytes each. Such a record is below the size limit.
const EACH: usize = 256 << 10;
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

/// Renumbers all files of the log's tree. Files that are not found get unused identifiers: the
/// comparison that follows records them as gone, together with all other differences.
pub(super) fn find(tree: &Tree, source: &mut Source) -> Result<Renumbering, Error> {
    let mut all = Renumbering::default();
    let Some(root) = tree.root() else {
        return Ok(all);
    };
    let mut used = BTreeSet::from([source.name()]);
    all.insert(root, source.name());
    let mut left = vec![(root, source.name())];
    while let Some((known, directory)) = left.pop() {
        let Some(names) = source.list(directory, |_, _| Ok(true))? else {
            continue;
        };
        for (name, file) in names {
            let Some(known) = tree.child(known, &name).filter(|known| !all.has(*known)) else {
                continue;
            };
            let below = tree
                .get(known)
                .is_some_and(|node| node.kind == Kind::Directory);
            if below != is_directory(source, file)? || !used.insert(file) {
                continue;
            }
            all.insert(known, file);
            if below {
                left.push((known, file));
            }
        }
    }
    all.cover(tree.files().map(|(file, _)| file));
    Ok(all)
}

/// The records of the renumbering.
pub(super) fn entries(all: Renumbering) -> Vec<Entry> {
    let parts = all.pairs(EACH);
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(at, pairs)| Entry::Renumber {
            pairs,
            last: at + 1 == count,
        })
        .collect()
}

fn is_directory(source: &Source, file: File) -> Result<bool, Error> {
    let stat = source.stat(file)?;
    Ok(stat.is_some_and(|stat| stat.st_mode & TYPE == DIRECTORY))
}
