//! Turns a tree of another origin into a replica: one of another history, a source, or a promoted
//! replica. Everything is compared with the log, and only differences are rewritten.

use std::fs::File as Opened;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fgetxattr};
use rustix::io::Errno;

use super::folders::{self, called, open_path};
use super::inspect::inspect;
use super::omissions::Omissions;
use super::state::{Phase, StateFile};
use super::{Error, Gate, Replica, STATE, StepReport, TREE};
use crate::contents::{Extents, Source};
use crate::folder::Folder;
use crate::log::Id;
use crate::make::Maker;
use crate::record::{File, Kind};
use crate::tree::{Node, Stale};

/// How much is compared at once, in bytes.
const PIECE: usize = 256 << 10;
const USER: &[u8] = b"user.";

/// Whether a file is as the log has it, apart from what `inspect` compares.
enum Verdict {
    Same,
    Bytes,
    Extended,
}

/// The stored state of a replica, readable while another process changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaState {
    pub log: Id,
    /// The epoch of its tree and the number of its record. Both are zero before the first.
    pub epoch: u64,
    pub record: u64,
    pub promoted: bool,
}

impl ReplicaState {
    /// # Errors
    /// [`Error::NoReplica`], [`Error::Io`]
    pub fn read(to: &Path) -> Result<Self, Error> {
        let io = |cause: io::Error| match cause.kind() {
            io::ErrorKind::NotFound => Error::NoReplica(to.to_owned()),
            _ => Error::Io {
                path: to.to_owned(),
                cause,
            },
        };
        let top = Folder::open(to).map_err(io)?;
        let kept = StateFile::open((&top, STATE), Gate::default()).map_err(io)?;
        let now = kept.ok_or_else(|| Error::NoReplica(to.to_owned()))?.now;
        if now.phase == Phase::Nothing {
            return Err(Error::NoReplica(to.to_owned()));
        }
        Ok(Self {
            log: now.log,
            epoch: now.epoch,
            record: now.record,
            promoted: now.phase == Phase::Promoted,
        })
    }
}

impl Replica {
    /// Files that the epoch has in an earlier state.
    pub(crate) fn stale(&self) -> Stale {
        Stale::of(&self.fold.tree)
    }

    /// Records that the tree continues by itself. Nothing is applied to it any more.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub(crate) fn promote(mut self) -> Result<(), Error> {
        self.say(Phase::Promoted, true)
    }

    /// As [`Self::apply`], for a tree in any state.
    pub(super) fn resync(&mut self, up_to: Option<u64>) -> Result<Option<StepReport>, Error> {
        let Some(target) = self.fold.look(up_to)? else {
            return Ok(None);
        };
        if up_to.is_some_and(|epoch| target.epoch > epoch) || !self.fold.to(target.record)? {
            return Ok(None);
        }
        self.fold.renumbered = None;
        match folders::open(&self.top, TREE, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => {}
            Err(Errno::NOENT) => {
                self.options.resync = false;
                return self.begin(target).map(Some);
            }
            Err(errno) => return Err(Error::of(self.to.join(TREE), errno.into())),
        }
        self.check_replacement(target)?;
        self.kept.now.log = self.fold.id()?.unwrap_or_default();
        self.kept.now.privileged = Some(self.options.privileged);
        let mut folders = self.open_folders()?;
        self.left = Omissions::default();
        let maker = Maker::new(self.options.privileged, self.options.gate.clone());
        self.found = inspect(&self.fold.tree, (&mut folders, &self.left), &maker)
            .map_err(|(path, errno)| Error::of(self.to.join(TREE).join(path), errno.into()))?;
        self.compare(&folders.tree)?;
        self.fold.begin(true);
        self.folders = Some(folders);
        // From here on the tree is neither in its former state nor a replica.
        self.say(Phase::Nothing, true)?;
        self.resyncing = true;
        // The guard has seen what the tree loses.
        self.allowed = true;
        let applied = self.step(target)?;
        self.options.resync = false;
        Ok(Some(applied))
    }

    /// Adds files with other bytes or extended attributes to the deviations.
    fn compare(&mut self, tree: &OwnedFd) -> Result<(), Error> {
        let mut source = Source::default();
        let files: Vec<_> = self.fold.tree.files().map(|(file, _)| file).collect();
        for file in files {
            let Some(node) = self.fold.tree.get(file) else {
                continue;
            };
            if self.found.lost.contains(&file)
                || !matches!(node.kind, Kind::Regular | Kind::Directory)
            {
                continue;
            }
            let Some(path) = self.path_of(file) else {
                continue;
            };
            if self.options.gate.is_closed() {
                return Err(Error::Ended(self.to.clone()));
            }
            let extents = self.fold.contents.get(file);
            let verdict = self.verdict((tree, &path), node, (extents, &mut source))?;
            match verdict {
                Verdict::Same => continue,
                Verdict::Bytes => self.found.lost.insert(file),
                Verdict::Extended => self.found.worn.insert(file),
            };
            self.found.names += 1;
        }
        Ok(())
    }

    fn path_of(&self, file: File) -> Option<PathBuf> {
        let path = self.fold.tree.path(file)?;
        Some(path.iter().map(called).collect())
    }

    fn verdict(
        &self,
        (tree, path): (&OwnedFd, &PathBuf),
        node: &Node,
        (extents, source): (Option<&Extents>, &mut Source),
    ) -> Result<Verdict, Error> {
        // What cannot be read is written again.
        let Ok(opened) = open_path(tree, path, OFlags::RDONLY | OFlags::NONBLOCK) else {
            return Ok(match node.kind {
                Kind::Regular => Verdict::Bytes,
                _ => Verdict::Extended,
            });
        };
        let opened = Opened::from(opened);
        if node.kind == Kind::Regular && !is_same(&opened, node.size, extents, source)? {
            return Ok(Verdict::Bytes);
        }
        let given = |name: &[u8]| self.options.privileged || name.starts_with(USER);
        let same = node.extended.iter().all(|(name, value)| {
            let mut there = vec![0; value.len() + 1];
            let read = fgetxattr(opened.as_fd(), name.as_slice(), &mut there[..]);
            !given(name) || read.is_ok_and(|length| there.get(..length) == Some(value))
        });
        Ok(match same {
            true => Verdict::Same,
            false => Verdict::Extended,
        })
    }
}

/// Whether a file has the bytes that the log has. An unreadable file counts as different.
fn is_same(
    file: &Opened,
    size: u64,
    extents: Option<&Extents>,
    source: &mut Source,
) -> Result<bool, Error> {
    let (mut here, mut wanted) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    while at < size {
        let length = usize::try_from(size - at).map_or(PIECE, |left| left.min(PIECE));
        let (here, wanted) = (&mut here[..length], &mut wanted[..length]);
        if file.read_exact_at(here, at).is_err() {
            return Ok(false);
        }
        wanted.fill(0);
        if let Some(extents) = extents {
            extents.fill(source, at, wanted)?;
        }
        if here != wanted {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}
