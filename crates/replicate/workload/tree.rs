//! What a tree contains, found by looking.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Paths below the root, sorted, so that a seed chooses the same ones again.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) regular: Vec<PathBuf>,
    pub(crate) others: Vec<PathBuf>,
}

impl Tree {
    pub(crate) fn scan(root: &Path) -> io::Result<Self> {
        let mut tree = Self {
            directories: vec![PathBuf::new()],
            ..Self::default()
        };
        let mut next = 0;
        while let Some(directory) = tree.directories.get(next).cloned() {
            for entry in fs::read_dir(root.join(&directory))? {
                let entry = entry?;
                let kind = entry.file_type()?;
                let path = directory.join(entry.file_name());
                if kind.is_dir() {
                    tree.directories.push(path);
                } else if kind.is_file() {
                    tree.regular.push(path);
                } else {
                    tree.others.push(path);
                }
            }
            next += 1;
        }
        tree.directories.sort();
        tree.regular.sort();
        tree.others.sort();
        Ok(tree)
    }

    pub(crate) fn len(&self) -> usize {
        self.directories.len() + self.regular.len() + self.others.len()
    }

    /// How many levels of names a path has below its own.
    pub(crate) fn depth_below(&self, path: &Path) -> usize {
        let below = self.directories.iter();
        let levels = below.filter_map(|directory| directory.strip_prefix(path).ok());
        let deepest = levels.map(|rest| rest.components().count()).max();
        // The files of the deepest directory.
        deepest.map_or(0, |levels| levels + 1)
    }
}
