//! Compares the tree that was followed with the one that a log says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::memory_disk::{TrialFolders, done};
use crate::program::Lowroad;

/// Bytes in which the tree differs from what is restored of the log; a file that is missing on one
/// side differs in all it has, and in one byte at least.
pub(super) fn differing(lowroad: &Lowroad, folders: &TrialFolders) -> Result<u64> {
    let copy = folders.out().join("copy");
    let mut restore = lowroad.command(&["replicate", "restore"]);
    restore
        .arg(folders.out().join("log"))
        .arg("--out")
        .arg(&copy);
    done(&mut restore)?;
    between(folders.tree(), &copy)
}

/// Bytes in which two folders differ.
pub(super) fn between(source: &Path, copy: &Path) -> Result<u64> {
    let names: BTreeSet<PathBuf> = files(source)?.union(&files(copy)?).cloned().collect();
    let mut differing = 0;
    for name in names {
        let [source, copy] = [source, copy].map(|folder| fs::read(folder.join(&name)).ok());
        differing += match (source, copy) {
            (Some(source), Some(copy)) => difference(&source, &copy),
            (one, other) => one.or(other).map_or(1, |bytes| bytes.len().max(1) as u64),
        };
    }
    Ok(differing)
}

fn difference(one: &[u8], other: &[u8]) -> u64 {
    let bytes = one.iter().zip(other).filter(|(one, other)| one != other);
    bytes.count() as u64 + one.len().abs_diff(other.len()) as u64
}

/// The names of all files below a folder.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut unseen = vec![folder.to_owned()];
    while let Some(at) = unseen.pop() {
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                unseen.push(entry.path());
            } else if let Ok(name) = entry.path().strip_prefix(folder) {
                files.insert(name.to_owned());
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_or_are_missing_are_counted() {
        assert_eq!(difference(b"same", b"same"), 0);
        assert_eq!(difference(b"some", b"same!"), 2);
    }
}
