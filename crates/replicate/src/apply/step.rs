//! Carries out a plan: first the invisible part outside of the tree, then the names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::{fs, io::Errno};

use super::Error;
use super::folders::{self, Folders, called, staged};
use super::inspect::is_of;
use super::omissions::{Entry, Omissions};
use super::plan::{Depths, Directory, Plan, View};
use crate::make::{Bytes, Fault, Maker, OWNER_RW, OWNER_RWX, refuses_name};
use crate::record::{File, Kind, Name};
use crate::tree::Node;

/// The temporary name of an additional link before it is put in its place.
const LINK: &str = "link";

pub(super) struct Step<'a> {
    pub(super) view: View<'a>,
    pub(super) plan: &'a Plan,
    pub(super) debris: &'a [(Directory, OsString)],
    /// Names that the file system cannot hold. Those of this step are added.
    pub(super) left: &'a mut Omissions,
    /// Files that it cannot hold or give additional names, with the error.
    pub(super) unfit: BTreeMap<File, Errno>,
    /// An omitted file now has a place, and its bytes have to be read from the beginning of the
    /// log.
    pub(super) unread: bool,
    pub(super) folders: &'a mut Folders,
    pub(super) maker: &'a mut Maker,
    /// The path of the tree, for errors.
    pub(super) path: &'a Path,
}

impl Step<'_> {
    /// Creates all new files in a separate folder. The tree stays as it is.
    pub(super) fn stage(&mut self) -> Result<(), Error> {
        for file in &self.plan.fresh {
            let done = self.fresh(*file);
            self.fits(*file, done)?;
        }
        for (file, (directory, name)) in &self.plan.linked {
            let done = self.linked(*file, *directory, name);
            self.fits(*file, done)?;
        }
        for (file, _, _) in &self.plan.out {
            let there = self.open(Some(*file));
            there.map_err(|errno| self.fault(*file, errno.into()))?;
        }
        for file in &self.plan.in_place {
            let there = self.old(*file, OFlags::RDWR);
            there.map_err(|fault| self.fault(*file, fault))?;
        }
        for file in &self.plan.attributes {
            if self.keeps_bytes(*file).is_some() {
                let there = self.is_as_applied(*file);
                there.map_err(|fault| self.fault(*file, fault))?;
            }
        }
        Ok(())
    }

    /// Continues without a file that the file system cannot hold.
    fn fits(&mut self, file: File, done: Result<(), Fault>) -> Result<(), Error> {
        let fault = match done {
            Ok(()) => return Ok(()),
            Err(fault) => fault,
        };
        match fault.exceeded_limit() {
            Some(errno) => {
                self.unfit.insert(file, errno);
                Ok(())
            }
            None => Err(self.fault(file, fault)),
        }
    }

    /// The former state of a regular file whose bytes the step does not change.
    fn keeps_bytes(&self, file: File) -> Option<&Node> {
        let node = self.view.before(file)?;
        let kept = node.kind == Kind::Regular && !self.plan.in_place.contains(&file);
        kept.then_some(node)
    }

    /// Gives the tree its new names and makes the changes in place.
    pub(super) fn place(&mut self) -> Result<(), Error> {
        for (at, (directory, name)) in self.debris.iter().enumerate() {
            let to = format!("x{at}");
            let moved = self.take_out(*directory, name, to.as_ref());
            moved.map_err(|errno| self.failed(*directory, name, errno))?;
        }
        for (file, directory, name) in &self.plan.out {
            let to = staged(*file, true);
            let moved = self.take_out(*directory, called(name), &to);
            moved.map_err(|errno| self.failed(*directory, called(name), errno))?;
            self.folders.is_staged(*file);
        }
        for file in &self.plan.in_place {
            let Err(fault) = self.rewrite(*file) else {
                continue;
            };
            let Some(errno) = fault.exceeded_limit() else {
                return Err(self.fault(*file, fault));
            };
            self.unfit.insert(*file, errno);
            let names = self
                .view
                .after(*file)
                .map(|node| self.view.names_after(node));
            for entry in names.into_iter().flatten() {
                self.leave_out(entry, errno)?;
            }
        }
        let mut omitted = Vec::new();
        let mut left: BTreeMap<File, usize> = BTreeMap::new();
        for (_, _, file) in &self.plan.place {
            *left.entry(*file).or_default() += 1;
        }
        for (directory, name, file) in &self.plan.place {
            let last = left.get_mut(file).is_none_or(|left| {
                *left -= 1;
                *left == 0
            });
            // What is in a directory that was not created is not there either.
            let above = directory.and_then(|directory| self.unfit.get(&directory));
            let done = match above.or_else(|| self.unfit.get(file)).copied() {
                Some(errno) => {
                    self.unfit.insert(*file, errno);
                    Err(errno)
                }
                None => self.put(*directory, name, *file, last),
            };
            match done {
                Err(errno) if refuses_name(errno) => {
                    self.leave_out((*directory, name.clone()), errno)?;
                    omitted.push(*file);
                }
                done => {
                    done.map_err(|errno| self.failed(*directory, called(name), errno))?;
                    self.left.remove(&(*directory, name.clone()));
                }
            }
        }
        // After the names that were put into them where they were created.
        for file in omitted {
            let tree = &self.view.fold.tree;
            self.left.add_below(tree, file, self.view.left);
        }
        for (directory, name) in &self.plan.remove {
            let done = self.remove(*directory, called(name));
            done.map_err(|errno| self.failed(*directory, called(name), errno))?;
        }
        self.attributes()
    }

    fn fresh(&mut self, file: File) -> Result<(), Fault> {
        let Some(node) = self.view.after(file) else {
            return Ok(());
        };
        let extents = self.view.fold.contents.get(file);
        let is = |node: &&Node| node.kind == Kind::Regular;
        let known = extents.is_some_and(|extents| extents.covers(node.size));
        let was = self.view.before(file).filter(is);
        let old = match (was, &node.kind) {
            (Some(_), Kind::Regular) if !known => Some(self.old(file, OFlags::RDONLY)?),
            _ => None,
        };
        if node.kind == Kind::Regular && !known && old.is_none() && node.size > 0 {
            if !self.view.was_left_out(file) {
                return Err(Errno::NODATA.into());
            }
            // If the file still is in the place that was refused, the next start tries it, and
            // reads the bytes anyway.
            self.unread = self.unread || self.view.is_moved(file);
            return Err(Errno::FBIG.into());
        }
        let name = staged(file, node.kind == Kind::Directory);
        let bytes = Bytes {
            extents,
            old: old.as_ref(),
        };
        let staging = Arc::clone(&self.folders.staging);
        self.maker.make(staging.as_fd(), &name, node, bytes)?;
        if node.kind == Kind::Directory {
            self.folders.is_staged(file);
        }
        Ok(())
    }

    /// Opens a regular file in its state before the step.
    fn old(&mut self, file: File, flags: OFlags) -> Result<std::fs::File, Fault> {
        let node = self.view.before(file).ok_or(Errno::NOENT)?;
        let place = self.view.names_before(node).pop_first();
        let (directory, name) = place.ok_or(Errno::NOENT)?;
        let at = self.open(directory)?;
        let opened = match folders::open(&at, called(&name), flags | OFlags::NONBLOCK) {
            Err(Errno::ACCESS) if !self.maker.owned => {
                let closed = folders::open(&at, called(&name), OFlags::PATH)?;
                check(&closed, node)?;
                self.folders.permit(closed.as_fd(), OWNER_RW)?;
                folders::open(&at, called(&name), flags)?
            }
            opened => opened?,
        };
        check(&opened, node)?;
        Ok(opened.into())
    }

    fn is_as_applied(&mut self, file: File) -> Result<(), Fault> {
        let node = self.view.before(file).ok_or(Errno::NOENT)?;
        let place = self.view.names_before(node).pop_first();
        let (directory, name) = place.ok_or(Errno::NOENT)?;
        let at = self.open(directory)?;
        let there = folders::open(&at, called(&name), OFlags::PATH)?;
        Ok(check(&there, node)?)
    }

    fn linked(&mut self, file: File, directory: Directory, name: &Name) -> Result<(), Fault> {
        let node = self.view.before(file).ok_or(Errno::NOENT)?;
        let at = self.open(directory)?;
        let to = staged(file, false);
        let staging = &self.folders.staging;
        self.maker.gate.pass()?;
        let linked = fs::linkat(&at, called(name), staging, &to, AtFlags::empty());
        self.maker.permitted(linked)?;
        let status = fs::statat(staging, &to, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(is_as(node, &status)?)
    }

    fn take_out(&mut self, directory: Directory, name: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let at = self.open(directory)?;
        self.maker.gate.pass()?;
        if !self.maker.owned {
            // Moving a directory writes to it, and its owner may not have that permission.
            match folders::open(&at, name, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(moved) => {
                    self.folders.permit(moved.as_fd(), OWNER_RWX)?;
                }
                Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::XDEV) => {}
                Err(errno) => return Err(errno),
            }
        }
        match fs::renameat(&at, name, &self.folders.staging, to) {
            Err(Errno::NOENT) if to.as_encoded_bytes().first() == Some(&b'x') => Ok(()),
            done => done,
        }
    }

    fn rewrite(&mut self, file: File) -> Result<(), Fault> {
        let Some(node) = self.view.after(file) else {
            return Ok(());
        };
        let to = self.old(file, OFlags::RDWR)?;
        let extents = self.view.fold.contents.get(file);
        self.maker.rewrite(&to, node.size, extents)
    }

    /// Omits an entry. Nothing has its name afterwards: neither the file nor the one that had the
    /// name before.
    fn leave_out(&mut self, entry: Entry, errno: Errno) -> Result<(), Error> {
        let (directory, name) = &entry;
        let is_there = directory.is_none_or(|directory| !self.unfit.contains_key(&directory));
        match is_there.then(|| self.remove(*directory, called(name))) {
            None => {}
            // No file can have this name, so nothing has it.
            Some(Err(errno)) if refuses_name(errno) => {}
            Some(done) => done.map_err(|errno| self.failed(*directory, called(name), errno))?,
        }
        let above = directory.and_then(|file| self.view.path(file));
        let path = self.path.join(above.unwrap_or_default()).join(called(name));
        self.left.add(entry, self.view.left, &path, errno);
        Ok(())
    }

    /// Gives a file a name. `last` marks the last of its new names.
    fn put(
        &mut self,
        directory: Directory,
        name: &Name,
        file: File,
        last: bool,
    ) -> Result<(), Errno> {
        let Some(node) = self.view.after(file) else {
            return Ok(());
        };
        let is_directory = node.kind == Kind::Directory;
        let at = self.open(directory)?;
        let from = staged(file, is_directory);
        let (staging, called) = (Arc::clone(&self.folders.staging), called(name));
        self.maker.gate.pass()?;
        if is_directory {
            match fs::renameat(&staging, &from, &at, called) {
                Err(Errno::NOTDIR) => {
                    fs::unlinkat(&at, called, AtFlags::empty())?;
                    self.maker.gate.pass()?;
                    fs::renameat(&staging, &from, &at, called)?;
                }
                renamed => renamed?,
            }
            self.folders.is_placed(file, directory, name.clone());
            return Ok(());
        }
        if last {
            return fs::renameat(&staging, &from, &at, called);
        }
        let linked = fs::linkat(&staging, &from, &staging, LINK, AtFlags::empty());
        self.maker.permitted(linked)?;
        self.maker.gate.pass()?;
        let renamed = fs::renameat(&staging, LINK, &at, called);
        // The link stays if both names were of one file already, or if the new name was refused.
        match fs::unlinkat(&staging, LINK, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => renamed,
            Err(errno) => Err(errno),
        }
    }

    fn remove(&mut self, directory: Directory, name: &OsStr) -> Result<(), Errno> {
        let at = self.open(directory)?;
        self.maker.gate.pass()?;
        match fs::unlinkat(&at, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    /// Directories get theirs last, and lower ones before upper ones.
    fn attributes(&mut self) -> Result<(), Error> {
        for file in &self.plan.attributes {
            let done = self.attributes_of(*file);
            done.map_err(|errno| self.fault(*file, errno.into()))?;
        }
        let mut all = self.plan.directories.clone();
        all.extend(self.debris.iter().map(|(directory, _)| *directory));
        for directory in &all {
            // A removed directory has nothing above it to be closed again.
            let _ = self.open(*directory);
        }
        // The directories above now allow their owner access, too.
        all.extend(&self.folders.relaxed);
        let is = |directory: &Directory| {
            let node = |file| self.view.after(file);
            directory.is_none_or(|file| {
                let made = !self.unfit.contains_key(&file);
                made && node(file).is_some_and(|n| n.kind == Kind::Directory)
            })
        };
        let mut all: Vec<_> = all.into_iter().filter(is).collect();
        let mut depths = Depths::default();
        all.sort_by_cached_key(|directory| {
            usize::MAX - self.view.depth_after(*directory, &mut depths)
        });
        // All are opened before the first is closed to its owner.
        for directory in all {
            let file = directory.or_else(|| self.view.fold.tree.root());
            let Some(node) = file.and_then(|file| self.view.fold.tree.get(file)) else {
                continue;
            };
            let done = match self.open(directory) {
                Ok(fd) => self.maker.attributes(node, fd.as_fd()),
                Err(errno) => Err(errno),
            };
            done.map_err(|errno| self.failed(directory, OsStr::new(""), errno))?;
        }
        Ok(())
    }

    fn attributes_of(&mut self, file: File) -> Result<(), Errno> {
        let Some(node) = self.view.after(file) else {
            return Ok(());
        };
        let mut names = self.view.names_after(node).into_iter();
        let place = names.find(|entry| !self.left.has(entry));
        let Some((directory, name)) = place else {
            return Ok(());
        };
        let at = self.open(directory)?;
        let fd = folders::open(&at, called(&name), OFlags::PATH)?;
        if FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) != kind(node) {
            return Err(Errno::NOENT);
        }
        // Otherwise bytes of another writer would get the log's time, and would be taken for the
        // applied ones.
        if let Some(was) = self.keeps_bytes(file) {
            check(&fd, was)?;
        }
        self.maker.attributes(node, fd.as_fd())
    }

    fn open(&mut self, directory: Directory) -> Result<Arc<OwnedFd>, Errno> {
        let view = self.view;
        self.folders.directory(directory, &|file| {
            view.names_before(view.before(file)?).pop_first()
        })
    }

    fn fault(&self, file: File, fault: Fault) -> Error {
        let path = self.view.path(file).unwrap_or_default();
        match fault {
            Fault::Log(log) => Error::Log(log),
            Fault::Io(cause) => Error::of(self.path.join(path), cause),
        }
    }

    fn failed(&self, directory: Directory, name: &OsStr, errno: Errno) -> Error {
        let above = directory.and_then(|file| self.view.path(file));
        let path: PathBuf = self.path.join(above.unwrap_or_default()).join(name);
        Error::of(path, errno.into())
    }
}

/// # Errors
/// `ESTALE` for a file that is not as it was applied.
fn check(fd: impl AsFd, node: &Node) -> Result<(), Errno> {
    let fd: BorrowedFd<'_> = fd.as_fd();
    is_as(node, &fs::fstat(fd)?)
}

fn is_as(node: &Node, status: &Stat) -> Result<(), Errno> {
    let size = node.kind != Kind::Regular || status.st_size.cast_unsigned() == node.size;
    let same = FileType::from_raw_mode(status.st_mode) == kind(node);
    let time = node.kind != Kind::Regular || is_of(node, status);
    if size && same && time {
        return Ok(());
    }
    Err(Errno::STALE)
}

fn kind(node: &Node) -> FileType {
    match node.kind {
        Kind::Regular => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice(_) => FileType::CharacterDevice,
        Kind::BlockDevice(_) => FileType::BlockDevice,
    }
}
