//! Builds the whole tree anew, beside the existing one.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::{fs, io::Errno};

use super::fold::Fold;
use super::{Error, TREE, folders, wipe};
use crate::folder::Folder;
use crate::make::Maker;
use crate::restore::{self, Fill, fill};

/// A tree that is built in an empty folder and then replaces the existing one.
#[derive(Debug)]
pub(super) struct Rebuild<'a> {
    fold: &'a Fold,
    /// The folder of the replica.
    top: &'a Folder,
    staging: OwnedFd,
    new: OwnedFd,
    /// Where the tree is built.
    path: PathBuf,
    maker: Maker,
}

impl<'a> Rebuild<'a> {
    /// Creates an empty folder in `staging`, which is at `path`.
    pub(super) fn new(
        fold: &'a Fold,
        top: &'a Folder,
        (staging, path): (OwnedFd, PathBuf),
        maker: Maker,
    ) -> Result<Self, Error> {
        let path = path.join(TREE);
        let failed = |errno: Errno| Error::of(path.clone(), errno.into());
        maker.gate.pass().map_err(failed)?;
        fs::mkdirat(&staging, TREE, Mode::RWXU).map_err(failed)?;
        let new = folders::open(&staging, TREE, OFlags::RDONLY | OFlags::DIRECTORY);
        let new = new.map_err(failed)?;
        Ok(Self {
            fold,
            top,
            staging,
            new,
            path,
            maker,
        })
    }

    /// Creates all files. They are on the disk when this returns.
    pub(super) fn fill(&mut self) -> Result<Fill, Error> {
        let to = (&self.new, self.path.as_path());
        let filled = fill(&self.fold.tree, &self.fold.contents, to, &mut self.maker);
        let filled = filled.map_err(|error| match error {
            restore::Error::Log(log) => Error::Log(log),
            restore::Error::Io { path, cause } => Error::of(path, cause),
            restore::Error::Occupied(path) => Error::Occupied(path),
        })?;
        self.sync()?;
        Ok(filled)
    }

    /// Gives the new tree its name, and leaves the former one in `staging`. Returns the maker of
    /// the new tree.
    pub(super) fn place(mut self) -> Result<Maker, Error> {
        let placed = self.exchange();
        placed.map_err(|errno| Error::of(self.path.clone(), errno.into()))?;
        self.sync()?;
        Ok(self.maker)
    }

    fn sync(&self) -> Result<(), Error> {
        let failed = |errno: Errno| Error::of(self.path.clone(), errno.into());
        fs::syncfs(&self.new).map_err(failed)
    }

    fn exchange(&mut self) -> Result<(), Errno> {
        let Self {
            staging,
            new,
            maker,
            ..
        } = self;
        // Moving a directory writes to it, and its owner may not have that permission.
        if !maker.owned {
            maker.gate.pass()?;
            wipe::permit(new.as_fd())?;
            match folders::open(self.top, TREE, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(old) => wipe::permit(old.as_fd())?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        maker.gate.pass()?;
        let exchange = RenameFlags::EXCHANGE;
        match fs::renameat_with(&*staging, TREE, self.top, TREE, exchange) {
            Err(Errno::NOENT) => fs::renameat(&*staging, TREE, self.top, TREE)?,
            done => done?,
        }
        let tree = &self.fold.tree;
        match tree.root().and_then(|root| tree.get(root)) {
            Some(root) if !maker.owned => {
                let left = maker.left;
                let done = maker.attributes(root, new.as_fd());
                maker.left = left;
                done
            }
            _ => Ok(()),
        }
    }
}
