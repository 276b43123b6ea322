//! The boundary of the tree. A file that patterns exclude is treated like one outside of the tree.
//! A file crosses the boundary when it gains or loses names, or when a directory above it does.

use std::collections::BTreeSet;

use nix::errno::Errno;

use crate::patterns::Filter;
use crate::record::{Change, File, Kind, Name};
use crate::tree::Tree;

/// Decides which names belong to the tree.
#[derive(Debug)]
pub(super) struct Boundary {
    filter: Filter,
    /// Directories that were recorded as new and have no name yet.
    new_directories: BTreeSet<File>,
}

/// Decides which names of one directory belong to the tree.
#[derive(Debug)]
pub(super) struct DirectoryFilter<'a> {
    filter: &'a Filter,
    path: Vec<u8>,
}

impl Boundary {
    pub(super) fn new(filter: Filter) -> Self {
        Self {
            filter,
            new_directories: BTreeSet::new(),
        }
    }

    /// Whether no patterns exclude anything.
    pub(super) fn is_open(&self) -> bool {
        self.filter.is_empty()
    }

    /// Whether a name in a directory of the tree belongs to the tree.
    pub(super) fn admits(
        &self,
        tree: &Tree,
        directory: File,
        name: &Name,
        is_directory: bool,
    ) -> bool {
        if self.is_open() {
            return true;
        }
        let path = path_of(tree, directory);
        path.is_some_and(|path| self.filter.admits(&join(path, name), is_directory))
    }

    /// The filter for a directory. `None` if no path leads to it, because the patterns then cannot
    /// be applied.
    pub(super) fn of_directory(&self, tree: &Tree, directory: File) -> Option<DirectoryFilter<'_>> {
        let path = match self.is_open() {
            true => Vec::new(),
            false => path_of(tree, directory)?,
        };
        Some(DirectoryFilter {
            filter: &self.filter,
            path,
        })
    }

    /// Whether the contents of a directory may become part of the tree with its next name. The
    /// contents of a new directory are read after that anyway.
    pub(super) fn is_moved_by_link(&mut self, directory: File, has_name: bool) -> bool {
        let is_new = self.new_directories.remove(&directory);
        !is_new && (self.filter.moves() || !has_name)
    }

    /// Notes a directory that is recorded as new.
    pub(super) fn follow(&mut self, change: &Change) {
        match change {
            Change::New {
                file,
                kind: Kind::Directory,
            } if !self.is_open() => drop(self.new_directories.insert(*file)),
            Change::Gone { file } => drop(self.new_directories.remove(file)),
            _ => {}
        }
    }
}

impl DirectoryFilter<'_> {
    /// Whether a name belongs to the tree. `is_directory` is called only if the answer depends on
    /// it.
    pub(super) fn admits(
        &self,
        name: &Name,
        is_directory: &dyn Fn() -> Result<bool, Errno>,
    ) -> Result<bool, Errno> {
        if self.filter.is_empty() {
            return Ok(true);
        }
        let path = join(self.path.clone(), name);
        Ok(self.filter.admits(&path, is_directory()?))
    }
}

fn path_of(tree: &Tree, directory: File) -> Option<Vec<u8>> {
    let names = tree.path(directory)?;
    Some(
        names
            .iter()
            .map(Name::as_bytes)
            .collect::<Vec<_>>()
            .join(&b'/'),
    )
}

fn join(mut path: Vec<u8>, name: &Name) -> Vec<u8> {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend(name.as_bytes());
    path
}
