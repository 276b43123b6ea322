//! Plans a step from the tree before and the tree after. The order of the source's operations does
//! not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::fold::Fold;
use super::folders::called;
use super::omissions::Omissions;
use crate::record::{File, Kind, Name};
use crate::tree::Node;

/// A directory. `None` is the root, which may become another file but stays in its place.
pub(super) type Directory = Option<File>;

/// The two trees of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) fold: &'a Fold,
    /// Files on the disk that are not as they were applied.
    pub(super) lost: &'a BTreeSet<File>,
    /// Whether device nodes are created.
    pub(super) devices: bool,
    /// Names that the file system could not hold before the step.
    pub(super) left: &'a Omissions,
}

impl<'a> View<'a> {
    /// The state of the file before the step. The root has none.
    pub(super) fn applied(&self, file: File) -> Option<&'a Node> {
        let node = match self.fold.before.get(&file) {
            Some(before) => before.as_ref(),
            None => self.fold.tree.get(file),
        };
        let node = node.filter(|node| self.is_shown(node) && Some(file) != self.fold.root_before);
        // A file without a name is not there.
        node.filter(|node| self.left.is_empty() || !self.names_before(node).is_empty())
    }

    /// Whether the file had a name that the file system could not hold.
    pub(super) fn was_left_out(&self, file: File) -> bool {
        let node = match self.fold.before.get(&file) {
            Some(before) => before.as_ref(),
            None => self.fold.tree.get(file),
        };
        let names = node.map(|node| names(node, self.fold.root_before));
        names.is_some_and(|names| names.iter().any(|entry| self.left.has(entry)))
    }

    /// Whether the step moves an omission: the file itself, or the topmost omitted directory above
    /// it.
    pub(super) fn is_moved(&self, file: File) -> bool {
        let mut moved = false;
        let mut at = Some(file);
        while let Some(file) = at {
            let names = self.after(file).map(|node| self.names_after(node));
            let names = names.unwrap_or_default();
            let Some((directory, _)) = names.first() else {
                return false;
            };
            if self.was_left_out(file) {
                moved = names.iter().any(|entry| !self.left.has(entry));
            }
            at = *directory;
        }
        moved
    }

    /// The state of the file before the step, if it is like that on the disk.
    pub(super) fn before(&self, file: File) -> Option<&'a Node> {
        self.applied(file).filter(|_| !self.lost.contains(&file))
    }

    pub(super) fn after(&self, file: File) -> Option<&'a Node> {
        let node = self.fold.tree.get(file);
        node.filter(|node| self.is_shown(node) && Some(file) != self.fold.tree.root())
    }

    /// A path of the file below the root: the one after the step, or else the one before.
    pub(super) fn path(&self, file: File) -> Option<PathBuf> {
        let above = |file| match self.after(file) {
            Some(node) => self.names_after(node).pop_first(),
            None => self.names_before(self.applied(file)?).pop_first(),
        };
        let mut names = Vec::new();
        let mut at = Some(file);
        // The directories in between were checked before, and the path is not longer than this.
        while let Some(file) = at.filter(|_| names.len() < 4096) {
            let (directory, name) = above(file)?;
            names.push(called(&name).to_owned());
            at = directory;
        }
        Some(names.iter().rev().collect())
    }

    /// How many new names of the file are not created because it is a device node.
    fn left_out(&self, file: File) -> u64 {
        let names = |node: Option<&Node>| match node {
            Some(node) if !self.devices && is_device(node) => node.names.len() as u64,
            _ => 0,
        };
        let before = match self.fold.before.get(&file) {
            Some(before) => before.as_ref(),
            None => self.fold.tree.get(file),
        };
        names(self.fold.tree.get(file)).saturating_sub(names(before))
    }

    /// Tries an omitted directory, and everything in it, again when something in it or above it
    /// changes.
    fn see_omissions(&self, seen: &mut BTreeSet<File>) {
        if self.left.is_empty() {
            return;
        }
        let mut tried = Vec::new();
        let mut looked_at = BTreeSet::new();
        for file in seen.iter() {
            let mut at = Some(*file);
            while let Some(file) = at.filter(|file| looked_at.insert(*file)) {
                let node = self.fold.tree.get(file);
                let is_directory = node.is_some_and(|node| node.kind == Kind::Directory);
                if is_directory && self.was_left_out(file) {
                    tried.push(file);
                }
                let above = node.and_then(|node| node.names.first());
                at = above.map(|(directory, _)| *directory);
            }
        }
        let mut expanded = BTreeSet::new();
        while let Some(file) = tried.pop() {
            seen.insert(file);
            if expanded.insert(file) {
                tried.extend(self.fold.tree.children(file).map(|(_, file)| file));
            }
        }
    }

    fn is_shown(&self, node: &Node) -> bool {
        !node.names.is_empty() && (self.devices || !is_device(node))
    }

    pub(super) fn names_before(&self, node: &Node) -> BTreeSet<(Directory, Name)> {
        let mut names = names(node, self.fold.root_before);
        names.retain(|entry| !self.left.has(entry));
        names
    }

    pub(super) fn names_after(&self, node: &Node) -> BTreeSet<(Directory, Name)> {
        names(node, self.fold.tree.root())
    }

    /// Whether the directory exists before and after the step.
    fn stays(&self, directory: Directory) -> bool {
        let is = |node: Option<&Node>| node.is_some_and(|node| node.kind == Kind::Directory);
        directory.is_none_or(|file| is(self.before(file)) && is(self.after(file)))
    }

    fn depth_before(&self, directory: Directory, depths: &mut Depths) -> usize {
        depths.of(directory, |file| {
            let node = self.applied(file)?;
            self.names_before(node).pop_first()?.0
        })
    }

    pub(super) fn depth_after(&self, directory: Directory, depths: &mut Depths) -> usize {
        depths.of(directory, |file| {
            let node = self.after(file)?;
            self.names_after(node).pop_first()?.0
        })
    }
}

/// Counts the directories above each file. The directories of a chain are counted once, not once
/// per file.
#[derive(Debug, Default)]
pub(super) struct Depths(BTreeMap<File, usize>);

impl Depths {
    fn of(&mut self, directory: Directory, above: impl Fn(File) -> Directory) -> usize {
        let mut chain = Vec::new();
        let mut at = directory;
        let mut depth = loop {
            let Some(file) = at else { break 0 };
            if let Some(depth) = self.0.get(&file) {
                break *depth;
            }
            chain.push(file);
            at = above(file);
        };
        for file in chain.into_iter().rev() {
            depth += 1;
            self.0.insert(file, depth);
        }
        depth
    }
}

fn is_device(node: &Node) -> bool {
    matches!(node.kind, Kind::CharacterDevice(_) | Kind::BlockDevice(_))
}

fn names(node: &Node, root: Option<File>) -> BTreeSet<(Directory, Name)> {
    let names = node.names.iter().map(|(directory, name)| {
        let directory = Some(*directory).filter(|file| Some(*file) != root);
        (directory, name.clone())
    });
    names.collect()
}

/// The parts of a step, in the order in which they are done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Files to create outside of the tree: new ones, or ones with other bytes.
    pub(super) fresh: Vec<File>,
    /// Regular files whose bytes are changed in place.
    pub(super) in_place: BTreeSet<File>,
    /// Files that get additional names.
    pub(super) linked: BTreeMap<File, (Directory, Name)>,
    /// Directories to take out of the tree, deepest first, because they move or are gone.
    pub(super) out: Vec<(File, Directory, Name)>,
    /// Names to add, upper directories first.
    pub(super) place: Vec<(Directory, Name, File)>,
    /// Names to remove.
    pub(super) remove: Vec<(Directory, Name)>,
    /// Files that stay, but get other attributes.
    pub(super) attributes: BTreeSet<File>,
    /// Directories that get their attributes last, because changes in them alter those.
    pub(super) directories: BTreeSet<Directory>,
    /// The number of new names of device nodes that are not created.
    pub(super) devices: u64,
}

impl Plan {
    /// `worn` has the files whose attributes are not those that were applied. Files of at least
    /// `in_place` bytes are changed in place.
    pub(super) fn new(view: View<'_>, worn: &BTreeSet<File>, in_place: Option<u64>) -> Self {
        let mut plan = Self::default();
        let mut seen: BTreeSet<File> = view.fold.before.keys().copied().collect();
        seen.extend(view.lost);
        seen.extend(worn);
        view.see_omissions(&mut seen);
        let mut gone = Vec::new();
        for file in seen {
            let worn = worn.contains(&file);
            if Some(file) == view.fold.tree.root() {
                plan.directories.insert(None);
            }
            let is = |node: &&Node| node.kind == Kind::Directory;
            let (was, is_now) = (view.before(file).filter(is), view.after(file).filter(is));
            plan.directory(view, file, was, is_now, worn);
            if was.is_some() && is_now.is_none() {
                gone.push(file);
            }
            plan.file(view, file, worn, in_place);
            plan.devices += view.left_out(file);
        }
        plan.drop_gone(view, &gone);
        let placed: BTreeSet<_> = plan
            .place
            .iter()
            .map(|(directory, name, _)| (*directory, name.clone()))
            .collect();
        plan.remove
            .retain(|entry| view.stays(entry.0) && !placed.contains(entry));
        let (mut before, mut after) = (Depths::default(), Depths::default());
        plan.place
            .sort_by_cached_key(|(directory, _, _)| view.depth_after(*directory, &mut after));
        plan.out.sort_by_cached_key(|(_, directory, _)| {
            usize::MAX - view.depth_before(*directory, &mut before)
        });
        plan.disturbed(view);
        plan
    }

    fn directory(
        &mut self,
        view: View<'_>,
        file: File,
        was: Option<&Node>,
        is_now: Option<&Node>,
        worn: bool,
    ) {
        let Some(now) = is_now else { return };
        let Some(to) = view.names_after(now).pop_first() else {
            return;
        };
        let from = was.and_then(|was| view.names_before(was).pop_first());
        if from.as_ref() != Some(&to) {
            self.place.push((to.0, to.1, file));
            self.directories.insert(Some(file));
        }
        match (was, from) {
            (Some(was), Some(from)) => {
                let same = was.has_attributes_of(now);
                if !same || worn {
                    self.directories.insert(Some(file));
                }
                if view.names_after(now).first() != Some(&from) {
                    self.out.push((file, from.0, from.1));
                }
            }
            _ => self.fresh.push(file),
        }
    }

    fn file(&mut self, view: View<'_>, file: File, worn: bool, in_place: Option<u64>) {
        let is = |node: &&Node| node.kind != Kind::Directory;
        let was = view.before(file).filter(is);
        let now = view.after(file).filter(is);
        let names = now.map(|now| view.names_after(now)).unwrap_or_default();
        if let Some(now) = now {
            self.changed(view, file, (was, now), worn, in_place);
        }
        let applied = view.applied(file).filter(is);
        let before = applied.map(|node| view.names_before(node));
        let removed = before.into_iter().flatten();
        self.remove
            .extend(removed.filter(|entry| !names.contains(entry)));
    }

    fn changed(
        &mut self,
        view: View<'_>,
        file: File,
        (was, now): (Option<&Node>, &Node),
        worn: bool,
        in_place: Option<u64>,
    ) {
        let was = was.filter(|was| was.kind == now.kind);
        let bytes = now.kind == Kind::Regular
            && (view.fold.contents.get(file).is_some()
                || was.is_some_and(|was| was.size != now.size));
        let had = was.map(|was| view.names_before(was)).unwrap_or_default();
        let mut added = view.names_after(now);
        match was {
            Some(was) if !bytes || in_place.is_some_and(|least| was.size >= least) => {
                added.retain(|entry| !had.contains(entry));
                if let (false, Some(from)) = (added.is_empty(), had.first()) {
                    self.linked.insert(file, from.clone());
                }
                if bytes {
                    self.in_place.insert(file);
                }
                let same = was.has_attributes_of(now);
                if bytes || worn || !same {
                    self.attributes.insert(file);
                }
            }
            _ => self.fresh.push(file),
        }
        let placed = added.into_iter();
        self.place
            .extend(placed.map(|(directory, name)| (directory, name, file)));
    }

    /// Takes everything below a removed directory out with it.
    fn drop_gone(&mut self, view: View<'_>, gone: &[File]) {
        let all: BTreeSet<File> = gone.iter().copied().collect();
        for file in gone {
            let place = view.before(*file);
            let place = place.and_then(|node| view.names_before(node).pop_first());
            if let Some((directory, name)) = place
                && !directory.is_some_and(|above| all.contains(&above))
            {
                self.out.push((*file, directory, name));
            }
        }
    }

    /// Finds the directories in which something is changed.
    fn disturbed(&mut self, view: View<'_>) {
        let out = self.out.iter().map(|(_, directory, _)| *directory);
        let placed = self.place.iter().map(|(directory, _, _)| *directory);
        let removed = self.remove.iter().map(|(directory, _)| *directory);
        let all: BTreeSet<_> = out.chain(placed).chain(removed).collect();
        self.directories.extend(all);
        let there = |directory: &Directory| {
            directory.is_none_or(|file| {
                view.after(file)
                    .is_some_and(|node| node.kind == Kind::Directory)
            })
        };
        self.directories.retain(there);
    }
}
