//! Examines a step before anything is changed: whether it would remove most of the replica, and
//! whether there is enough space for it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Dir, FileType, OFlags};
use rustix::io::Errno;

use super::folders::{self, Folders, called};
use super::plan::{Directory, Plan, View};
use crate::make::Gate;
use crate::record::{File, Kind, Name};
use crate::space::{self, Allocation, Space};
use crate::tree::{Node, Tree};

/// A step may always remove this many files.
const MAX_UNGUARDED: u64 = 100;

/// The number of files of all kinds that a step removes: nothing has their paths afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) removed: u64,
    /// The number of files in the replica before.
    pub(super) files: u64,
}

impl Deletion {
    /// What a step removes. `None` if that is little.
    ///
    /// # Errors
    /// `EINTR` if the gate was closed.
    pub(super) fn of_step(view: View<'_>, gate: &Gate) -> Result<Option<Self>, Errno> {
        let mut paths = Paths::new(view);
        let mut removed = 0;
        for file in view.fold.before.keys() {
            if gate.is_closed() {
                return Err(Errno::INTR);
            }
            removed += u64::from(paths.loses(*file));
        }
        // Count all files only if this many are removed.
        if removed <= MAX_UNGUARDED {
            return Ok(None);
        }
        let before = &view.fold.before;
        let tree = &view.fold.tree;
        let untouched = tree.files().filter(|(file, _)| !before.contains_key(file));
        let all = untouched
            .map(|(file, _)| file)
            .chain(before.keys().copied());
        let files = all.filter(|file| view.applied(*file).is_some()).count() as u64;
        Ok(Self { removed, files }.if_large())
    }

    /// What is lost if another tree replaces the one in an open directory.
    pub(super) fn of_replacement(there: &OwnedFd, by: &Tree) -> Option<Self> {
        let mut deletion = Self::default();
        let mut left = vec![(PathBuf::new(), by.root())];
        // The last directory that was opened. The next one is usually in it, so that a deep tree
        // takes linear time.
        let mut above: Option<(PathBuf, OwnedFd)> = None;
        while let Some((below, directory)) = left.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let opened = match (&above, below.parent(), below.file_name()) {
                (Some((path, fd)), Some(parent), Some(name)) if path == parent => {
                    folders::open(fd, name, flags)
                }
                _ => folders::open_path(there, &below, flags),
            };
            // What cannot be read is not counted. The replacement may fail there later, or succeed.
            let Ok(opened) = opened else { continue };
            let _ = deletion.count(&opened, (below.as_path(), directory), by, &mut left);
            above = Some((below, opened));
        }
        deletion.if_large()
    }

    fn count(
        &mut self,
        opened: &OwnedFd,
        (below, directory): (&Path, Option<File>),
        by: &Tree,
        left: &mut Vec<(PathBuf, Option<File>)>,
    ) -> Result<(), Errno> {
        for entry in Dir::read_from(opened)? {
            let entry = entry?;
            let Ok(name) = Name::new(entry.file_name().to_bytes()) else {
                continue;
            };
            let file = directory.and_then(|directory| by.child(directory, &name));
            self.files += 1;
            self.removed += u64::from(file.is_none());
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                left.push((below.join(OsStr::from_bytes(name.as_bytes())), file));
            }
        }
        Ok(())
    }

    fn if_large(self) -> Option<Self> {
        let large = self.removed > MAX_UNGUARDED && self.removed.saturating_mul(2) > self.files;
        large.then_some(self)
    }
}

/// Resolves paths of the replica after a step.
struct Paths<'a> {
    view: View<'a>,
    /// The result for each directory that was looked up, so that the directories of a chain are
    /// resolved once and not again for each file below them.
    after: BTreeMap<File, Option<File>>,
}

impl<'a> Paths<'a> {
    fn new(view: View<'a>) -> Self {
        Self {
            view,
            after: BTreeMap::new(),
        }
    }

    /// Whether a file was visible, and nothing is at any of its paths afterwards.
    fn loses(&mut self, file: File) -> bool {
        let view = self.view;
        let Some(node) = view.applied(file).filter(|_| view.after(file).is_none()) else {
            return false;
        };
        let names = view.names_before(node);
        !names
            .iter()
            .any(|(directory, name)| self.is_taken(*directory, name))
    }

    /// Whether the path of a name before the step leads to a file after it.
    fn is_taken(&mut self, directory: Directory, name: &Name) -> bool {
        let directory = self.directory(directory);
        let file = directory.and_then(|directory| self.view.fold.tree.child(directory, name));
        file.is_some_and(|file| self.view.after(file).is_some())
    }

    /// What the path of a directory before the step leads to after it.
    fn directory(&mut self, directory: Directory) -> Option<File> {
        let view = self.view;
        let mut chain = Vec::new();
        let mut at = directory;
        let mut reached = loop {
            let Some(file) = at else {
                break view.fold.tree.root();
            };
            if let Some(known) = self.after.get(&file) {
                break *known;
            }
            let above = view
                .applied(file)
                .and_then(|node| view.names_before(node).pop_first());
            let Some((directory, name)) = above else {
                self.after.insert(file, None);
                break None;
            };
            chain.push((file, name));
            at = directory;
        };
        while let Some((file, name)) = chain.pop() {
            reached = reached.and_then(|directory| view.fold.tree.child(directory, &name));
            self.after.insert(file, reached);
        }
        reached
    }
}

/// The space that a step needs and the space available, if that is too little.
pub(super) fn missing_space(
    view: View<'_>,
    plan: &Plan,
    folders: &Folders,
) -> io::Result<Option<(Space, Space)>> {
    let left = Space::available(&folders.staging)?;
    let allocation = Allocation::of(&folders.staging)?;
    let mut needs = Space {
        bytes: 0,
        files: plan.fresh.len() as u64,
    };
    if allocation != Allocation::Unknown {
        // Even this estimate is usually small enough.
        needs.bytes = sum(plan, view, |_, node| match node.kind {
            Kind::Regular => node.size.saturating_add(space::BLOCK),
            _ => space::BLOCK,
        });
    }
    if needs.fits(left) {
        return Ok(None);
    }
    if allocation != Allocation::Unknown {
        needs.bytes = sum(plan, view, |file, node| {
            let said = allocation.bytes(node, view.fold.contents.get(file));
            match allocation {
                Allocation::Plain => said.saturating_add(copied(view, file, node, folders)),
                Allocation::Shared | Allocation::Packed | Allocation::Unknown => said,
            }
        });
    }
    Ok((!needs.fits(left)).then_some((needs, left)))
}

/// Sums up new files, and the growth of files that are changed in place.
fn sum(plan: &Plan, view: View<'_>, of: impl Fn(File, &Node) -> u64) -> u64 {
    let new = plan.fresh.iter().filter_map(|file| {
        let node = view.after(*file)?;
        Some(of(*file, node))
    });
    let grown = plan.in_place.iter().filter_map(|file| {
        let (was, now) = (view.before(*file)?, view.after(*file)?);
        let written = Allocation::Plain.bytes(now, view.fold.contents.get(*file));
        Some(now.size.saturating_sub(was.size).min(written))
    });
    new.chain(grown).fold(0, u64::saturating_add)
}

/// Bytes that a new file takes over from its former state, at most as many as that has on the disk.
fn copied(view: View<'_>, file: File, node: &Node, folders: &Folders) -> u64 {
    let extents = view.fold.contents.get(file);
    let was = view.before(file).filter(|was| was.kind == Kind::Regular);
    if node.kind != Kind::Regular || extents.is_some_and(|extents| extents.covers(node.size)) {
        return 0;
    }
    let Some(was) = was else {
        return 0;
    };
    let on_disk = path_before(view, was).and_then(|path| {
        let there = folders::open_path(&folders.tree, &path, OFlags::PATH).ok()?;
        let blocks = fs::fstat(&there).ok()?.st_blocks;
        u64::try_from(blocks).ok()?.checked_mul(512)
    });
    // A missing file is reported when it is needed.
    on_disk
        .unwrap_or(0)
        .min(node.size.next_multiple_of(space::BLOCK))
}

/// The path of a file on the disk, below the root.
fn path_before(view: View<'_>, node: &Node) -> Option<PathBuf> {
    let (mut directory, name) = view.names_before(node).pop_first()?;
    let mut names = vec![name];
    while let Some(file) = directory {
        let (above, name) = view.names_before(view.applied(file)?).pop_first()?;
        names.push(name);
        directory = above;
    }
    Some(names.iter().rev().map(called).collect())
}
