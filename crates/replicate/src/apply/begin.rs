//! Makes the whole tree anew, beside the one that is there.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::{fs, io::Errno};

use super::fold::Target;
use super::state::Phase;
use super::{Applied, Error, Replica, STAGING, TREE, folders, wipe};
use crate::make::Maker;
use crate::restore::{self, fill};

impl Replica {
    /// The whole tree anew, which then takes the place of the one that is there.
    pub(super) fn begin(&mut self, target: Target) -> Result<Applied, Error> {
        let there = self.fold.to(target.record)?;
        debug_assert!(there);
        self.check_quota(target)?;
        self.fold.persist()?;
        let staging = self.staging()?;
        let path = self.to.join(STAGING).join(TREE);
        let failed = |errno: Errno| Error::of(path.clone(), errno.into());
        let gate = self.options.gate.clone();
        gate.pass().map_err(failed)?;
        fs::mkdirat(&staging, TREE, Mode::RWXU).map_err(failed)?;
        let new = folders::open(&staging, TREE, OFlags::RDONLY | OFlags::DIRECTORY);
        let new = new.map_err(failed)?;
        let mut maker = Maker::new(self.options.privileged, gate);
        let names = fill(
            &self.fold.tree,
            &self.fold.contents,
            (&new, &path),
            &mut maker,
        );
        let names = names.map_err(|error| match error {
            restore::Error::Log(log) => Error::Log(log),
            restore::Error::Io { path, cause } => Error::of(path, cause),
            restore::Error::Occupied(path) => Error::Occupied(path),
        })?;
        fs::syncfs(&new).map_err(failed)?;
        self.say(Phase::Nothing, true)?;
        self.put(&staging, &new, &mut maker).map_err(failed)?;
        fs::syncfs(&new).map_err(failed)?;
        let log = self.fold.id()?.unwrap_or_default();
        self.kept.now.log = log;
        self.kept.now.privileged = Some(self.options.privileged);
        self.said(target)?;
        self.folders = Some(self.open_folders()?);
        self.options.fresh = false;
        self.fold.settle();
        Ok(Applied {
            epoch: target.epoch,
            record: target.record,
            at_ns: target.at_ns,
            names,
            bytes: maker.bytes,
            repaired: 0,
            left: maker.left,
        })
    }

    /// Gives the new tree its name; what had it is left in `staging`.
    fn put(&self, staging: &OwnedFd, new: &OwnedFd, maker: &mut Maker) -> Result<(), Errno> {
        let gate = &self.options.gate;
        // A directory that goes elsewhere is written to, and its owner may not be allowed to.
        if !maker.owned {
            gate.pass()?;
            wipe::permit(new.as_fd())?;
            match folders::open(&self.top, TREE, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(old) => wipe::permit(old.as_fd())?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        gate.pass()?;
        let exchange = RenameFlags::EXCHANGE;
        match fs::renameat_with(staging, TREE, &self.top, TREE, exchange) {
            Err(Errno::NOENT) => fs::renameat(staging, TREE, &self.top, TREE)?,
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
