//! Keeps the tree of a replica up to date from a log. New files are created beside the tree and
//! then get their names in it. An interrupted step is never guessed at: the next run examines the
//! tree, and creates again from the log whatever is not as it was applied.

mod error;
mod fold;
mod folders;
mod guard;
mod inspect;
mod omissions;
mod plan;
mod rebuild;
mod resync;
mod state;
mod step;
mod suspects;
pub(crate) mod wipe;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::{fs, io::Errno};

use crate::folder::{Folder, check_folder};
use crate::make::Maker;
pub use crate::make::{Gate, SkipCounts};
use crate::space::{Allocation, Space};
pub use error::Error;
use fold::{Fold, Later, Target};
use folders::Folders;
use guard::Deletion;
use inspect::{Deviations, inspect};
use omissions::Omissions;
use plan::{Plan, View};
use rebuild::Rebuild;
pub use resync::ReplicaState;
use state::{Phase, State, StateFile};
use step::Step;
use suspects::Suspects;

pub(crate) const TREE: &str = "tree";
const STAGING: &str = "staging";
const STATE: &str = "state";
const LOCK: &str = "lock";

/// How a replica is kept.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// As [`restore::Options::privileged`].
    pub privileged: bool,
    /// Builds the whole tree anew, from any log, and replaces the existing one.
    pub fresh: bool,
    /// Compares the existing tree with the log, byte by byte, and rewrites what differs. The tree
    /// may have any origin.
    pub resync: bool,
    /// Repairs what others changed in the tree.
    pub repair: bool,
    /// Files of at least this many bytes are changed in place instead of being copied. A program
    /// that has such a file open sees its bytes change.
    pub in_place: Option<u64>,
    /// The limit for the total size of all files, in bytes.
    pub max_bytes: Option<u64>,
    /// The limit for the number of names below the root.
    pub max_files: Option<u64>,
    /// Lets a step remove more than half of the files, if those are more than 100.
    pub allow_delete: bool,
    pub gate: Gate,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    pub epoch: u64,
    /// The number of the epoch's record.
    pub record: u64,
    /// When the capture wrote that record, in nanoseconds since 1970.
    pub at_ns: u64,
    /// Names added and removed.
    pub names: u64,
    /// Bytes written to files.
    pub bytes: u64,
    /// Names that deviated from the applied tree and are repaired.
    pub repaired: u64,
    pub left: SkipCounts,
}

impl StepReport {
    /// Combines the reports of two steps.
    fn and(self, next: Self) -> Self {
        let mut left = self.left;
        left += next.left;
        Self {
            names: self.names + next.names,
            bytes: self.bytes + next.bytes,
            repaired: self.repaired + next.repaired,
            left,
            ..next
        }
    }
}

/// A replica. It is the only process that changes it.
#[derive(Debug)]
pub struct Replica {
    log: PathBuf,
    to: PathBuf,
    options: Options,
    top: Folder,
    kept: StateFile,
    fold: Fold,
    /// `None` before the tree exists.
    folders: Option<Folders>,
    /// Deviations to repair with the next step.
    found: Deviations,
    /// Names that the file system cannot hold.
    left: Omissions,
    pending: bool,
    /// The next step may remove most of the files.
    allowed: bool,
    /// The state of the tree is unknown until the step is done.
    resyncing: bool,
    /// The record of an epoch that was refused because it removes most files, and what it removes.
    refused: Option<(u64, Deletion)>,
    _lock: File,
}

impl Replica {
    /// Opens the replica in `to`, or begins one if there is nothing.
    ///
    /// # Errors
    /// All of [`Error`] except [`Error::Quota`] and [`Error::Full`]. The tree stays as it is.
    pub fn open(log: &Path, to: &Path, options: Options) -> Result<Self, Error> {
        let fold = Fold::open(log, options.gate.clone())?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |cause| Error::Io { path, cause }
        };
        let top = Folder::create(to, Mode::from_raw_mode(0o755)).map_err(io(to))?;
        // Check this first, so that nothing is left behind in a folder that is not a replica.
        if !is_blank(&top.names().map_err(io(to))?, options.resync) {
            return Err(Error::Occupied(to.to_owned()));
        }
        let lock = lock(&top)?;
        // The lock is held now, so that no other process writes the state.
        let state = to.join(STATE);
        let place = (&top, STATE);
        let kept = match StateFile::open(place, options.gate.clone()).map_err(io(&state))? {
            Some(kept) => kept,
            None => StateFile::create(place, options.gate.clone()).map_err(io(&state))?,
        };
        let mut replica = Self {
            log: log.to_owned(),
            to: to.to_owned(),
            options,
            top,
            kept,
            fold,
            folders: None,
            found: Deviations::default(),
            left: Omissions::default(),
            pending: false,
            allowed: false,
            resyncing: false,
            refused: None,
            _lock: lock,
        };
        match replica.kept.now.phase {
            _ if replica.options.resync => {}
            Phase::Promoted => return Err(Error::Promoted(to.to_owned())),
            Phase::Nothing => {}
            _ if replica.options.fresh => {}
            _ => replica.resume(false)?,
        }
        Ok(replica)
    }

    /// The epoch of the tree and the number of its record. Both are zero before the first.
    pub fn reached(&self) -> (u64, u64) {
        match self.kept.now.phase {
            Phase::Nothing => (0, 0),
            _ => (self.kept.now.epoch, self.kept.now.record),
        }
    }

    /// Applies the log's last epoch so far, or the epoch `up_to`. `None` if there is nothing to do,
    /// or no such epoch.
    ///
    /// # Errors
    /// All of [`Error`]. The next run repairs an interrupted step.
    pub fn apply(&mut self, up_to: Option<u64>) -> Result<Option<StepReport>, Error> {
        let mut applied = self.apply_once(up_to)?;
        // A step ends where the log's files are renumbered, and another one follows.
        while self.fold.is_at_border() {
            match self.apply_once(up_to)? {
                Some(next) => applied = Some(applied.map_or(next, |before| before.and(next))),
                None => break,
            }
        }
        Ok(applied)
    }

    fn apply_once(&mut self, up_to: Option<u64>) -> Result<Option<StepReport>, Error> {
        if self.options.resync {
            return self.resync(up_to);
        }
        let begun = self.kept.now.phase != Phase::Nothing && !self.options.fresh;
        if begun && self.folders.is_none() {
            // The last step failed.
            self.resume(true)?;
        }
        let target = self.fold.look(up_to)?;
        let Some(mut target) = target else {
            return Ok(None);
        };
        let beyond = up_to.is_some_and(|epoch| target.epoch > epoch);
        if self.folders.is_none() {
            return match beyond {
                true => Ok(None),
                false => self.begin(target).map(Some),
            };
        }
        let now = self.kept.now.record;
        if beyond || target.record <= now {
            let reached = self.fold.reached().filter(|at| at.record == now);
            let Some(reached) = reached.filter(|_| self.pending) else {
                return Ok(None);
            };
            target = reached;
        }
        let replaced = self.folders.as_ref().map(|there| self.is_replaced(there));
        if replaced.transpose()?.unwrap_or(false) {
            self.resume(true)?;
        }
        match self.step(target) {
            Err(Error::Changed { .. }) if self.options.repair => {
                self.resume(true)?;
                self.step(target).map(Some)
            }
            done => done.map(Some),
        }
    }

    /// Lets the next step remove most of the files.
    pub fn allow_delete_once(&mut self) {
        self.allowed = true;
    }

    /// Records that the tree is not being changed any more, so that the next run can trust it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end(mut self) -> Result<(), Error> {
        if self.kept.now.phase != Phase::Whole {
            return Ok(());
        }
        self.say(Phase::Ended, true)
    }

    /// Applies a renumbering of files.
    fn renumber(&mut self) {
        if let Some(all) = self.fold.renumbered.take() {
            self.found.renumber(&all);
            self.left.renumber(&all);
            if let Some(folders) = &mut self.folders {
                folders.renumber(&all);
            }
        }
    }

    /// Continues where the last run ended. `all` keeps every byte that the log has.
    fn resume(&mut self, all: bool) -> Result<(), Error> {
        let now = self.kept.now;
        self.fold = Fold::open(&self.log, self.options.gate.clone())?;
        let (log, epoch) = (self.log.clone(), now.epoch);
        match self.fold.id()? {
            None => return Err(Error::Short { log, epoch }),
            Some(id) if id != now.log => {
                let to = self.to.clone();
                return Err(Error::OtherLog { to, log });
            }
            Some(_) => {}
        }
        let privileged = self.options.privileged;
        if let Some(made) = now.privileged.filter(|made| *made != privileged) {
            // A step rewrites only what changes in the log, so the rest of the tree would keep the old setting.
            let to = self.to.clone();
            return Err(Error::Privileged { to, made });
        }
        self.kept.now.privileged = Some(privileged);
        let there = self.fold.to(now.record)?;
        self.fold.renumbered = None;
        if self.fold.tree.number() < now.record {
            return Err(Error::Short { log, epoch });
        }
        let same = self.fold.ends_with(now.at_ns);
        if !there || self.fold.tree.epoch() != epoch || !same {
            return Err(Error::Behind { log, epoch });
        }
        let maker = Maker::new(self.options.privileged, self.options.gate.clone());
        let mut folders = self.open_folders()?;
        self.left = self.read_omissions()?;
        self.found = inspect(&self.fold.tree, (&mut folders, &self.left), &maker)
            .map_err(|(path, errno)| Error::of(self.to.join(TREE).join(path), errno.into()))?;
        let whole = self.kept.is_whole();
        if whole && self.found.names > 0 && !self.options.repair {
            let first = self.found.first.clone().unwrap_or_default();
            let (path, names) = (self.to.join(TREE).join(first), self.found.names);
            return Err(Error::Changed { path, names });
        }
        // There may be enough space for it by now.
        self.found.worn.extend(self.left.files(&self.fold.tree));
        let as_it_was = self.found.names == 0 && self.found.worn.is_empty();
        self.pending = !whole || !as_it_was || !folders.relaxed.is_empty();
        self.fold.begin(self.pending || all);
        if !whole {
            let suspects = Suspects::new(&self.fold.tree, self.later()?);
            self.found.worn.extend(suspects.worn);
            self.found.lost.extend(suspects.lost);
        }
        self.folders = Some(folders);
        Ok(())
    }

    /// Parts of the tree that an interrupted step may have changed already.
    fn later(&self) -> Result<Later, Error> {
        let later = self.fold.later()?;
        let State {
            phase,
            to_ns,
            epoch,
            ..
        } = self.kept.now;
        if phase == Phase::Placing && to_ns != 0 && !later.epochs.contains(&to_ns) {
            // The file has lost that name, or another file has it now.
            let log = self.log.clone();
            return Err(match later.epochs.is_empty() {
                true => Error::Short { log, epoch },
                false => Error::Behind { log, epoch },
            });
        }
        Ok(later)
    }

    fn read_omissions(&self) -> Result<Omissions, Error> {
        let read = Omissions::read(&self.top);
        read.map_err(|cause| Error::of(self.to.clone(), cause))
    }

    fn write_omissions(&self) -> Result<(), Error> {
        let written = self.left.write(&self.top);
        written.map_err(|cause| Error::of(self.to.clone(), cause))
    }

    fn open_folders(&self) -> Result<Folders, Error> {
        let opened = |name: &str| {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let opened = folders::open(&self.top, name, flags);
            opened.map_err(|errno| Error::of(self.to.join(name), errno.into()))
        };
        let tree = opened(TREE)?;
        Ok(Folders::new(
            tree,
            self.staging()?,
            self.options.gate.clone(),
        ))
    }

    /// Whether another tree is in the place of the one being changed.
    fn is_replaced(&self, folders: &Folders) -> Result<bool, Error> {
        let failed = |errno: Errno| Error::of(self.to.join(TREE), errno.into());
        let ours = fs::fstat(&folders.tree).map_err(failed)?;
        let there = fs::statat(&self.top, TREE, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        Ok((ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino))
    }

    /// Creates an empty folder that only its owner can enter.
    fn staging(&self) -> Result<OwnedFd, Error> {
        let failed = |errno: Errno| Error::of(self.to.join(STAGING), errno.into());
        match fs::mkdirat(&self.top, STAGING, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let other = STAGING.to_uppercase();
        if folders::is_one(&self.top, STAGING, &other).map_err(failed)? {
            let _emptied = fs::unlinkat(&self.top, STAGING, AtFlags::REMOVEDIR);
            return Err(Error::Case(self.to.clone()));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let staging = folders::open(&self.top, STAGING, flags).map_err(failed)?;
        let status = fs::fstat(&staging).map_err(failed)?;
        let checked = check_folder(&status);
        checked.map_err(|cause| Error::of(self.to.join(STAGING), cause))?;
        wipe::wipe(staging.as_fd(), &self.options.gate).map_err(failed)?;
        Ok(staging)
    }

    /// Builds the whole tree anew, and then replaces the existing one.
    fn begin(&mut self, target: Target) -> Result<StepReport, Error> {
        if !self.fold.to(target.record)? {
            return Err(self.behind(target));
        }
        self.check_quota(target)?;
        self.check_replacement(target)?;
        if !self.fold.has_contents() {
            self.fold = Fold::open(&self.log, self.options.gate.clone())?;
            if !self.fold.to(target.record)? {
                return Err(self.behind(target));
            }
        }
        // Later records use only the new numbers.
        self.fold.renumbered = None;
        self.fold.persist()?;
        let staging = (self.staging()?, self.to.join(STAGING));
        self.check_first_room(target, &staging.0)?;
        let maker = Maker::new(self.options.privileged, self.options.gate.clone());
        let mut rebuild = Rebuild::new(&self.fold, &self.top, staging, maker)?;
        let filled = rebuild.fill()?;
        let nothing = State {
            phase: Phase::Nothing,
            to_ns: 0,
            ..self.kept.now
        };
        let said = self.kept.say(nothing, true);
        said.map_err(|cause| Error::of(self.to.join(STATE), cause))?;
        let maker = rebuild.place()?;
        let log = self.fold.id()?.unwrap_or_default();
        self.kept.now.log = log;
        self.kept.now.privileged = Some(self.options.privileged);
        let root = self.fold.tree.root();
        let below = |(directory, name)| (Some(directory).filter(|of| Some(*of) != root), name);
        self.left = Omissions::new(filled.left.into_iter().map(below));
        self.write_omissions()?;
        self.record_target(target)?;
        self.folders = Some(self.open_folders()?);
        self.options.fresh = false;
        self.allowed = false;
        self.fold.settle(&self.left.files(&self.fold.tree));
        Ok(StepReport {
            epoch: target.epoch,
            record: target.record,
            at_ns: target.at_ns,
            names: filled.names,
            bytes: maker.bytes,
            repaired: 0,
            left: SkipCounts {
                names: self.left.added(),
                ..maker.left
            },
        })
    }

    fn behind(&self, target: Target) -> Error {
        Error::Behind {
            log: self.log.clone(),
            epoch: target.epoch,
        }
    }

    fn step(&mut self, target: Target) -> Result<StepReport, Error> {
        match self.try_step(target, false)? {
            Some(applied) => Ok(applied),
            None => {
                // The log has the bytes, from its beginning on.
                self.resume(true)?;
                let applied = self.try_step(target, true)?;
                applied.ok_or_else(|| self.behind(target))
            }
        }
    }

    /// Returns `None` if the log has to be read again for the bytes of files, unless that was just
    /// done. The tree is then unchanged.
    fn try_step(&mut self, target: Target, read_again: bool) -> Result<Option<StepReport>, Error> {
        if !self.fold.to(target.record)? {
            return Err(self.behind(target));
        }
        self.renumber();
        self.check_quota(target)?;
        if self.folders.is_none() {
            return self.begin(target).map(Some);
        }
        let Some(plan) = self.plan(target)? else {
            return Ok(None);
        };
        // The step must not be ahead of the log after a power failure, because such a replica could
        // not be opened again.
        self.fold.persist()?;
        let Some(mut folders) = self.folders.take() else {
            return self.begin(target).map(Some);
        };
        let mut maker = Maker::new(self.options.privileged, self.options.gate.clone());
        let found = std::mem::take(&mut self.found);
        let mut left = self.left.clone();
        left.begin();
        let view = View {
            fold: &self.fold,
            lost: &found.lost,
            devices: self.options.privileged,
            left: &self.left,
        };
        let path = self.to.join(TREE);
        let mut step = Step {
            view,
            plan: &plan,
            debris: &found.debris,
            left: &mut left,
            unfit: BTreeMap::new(),
            unread: false,
            folders: &mut folders,
            maker: &mut maker,
            path: &path,
        };
        step.stage()?;
        if step.unread && !read_again {
            return Ok(None);
        }
        if !found.lost.is_empty() {
            // No later record mentions repaired files, so after a power failure they would not be
            // suspected.
            self.sync(step.folders)?;
        }
        let placing = self.placing(target);
        // While the disk still has the phase `Ended`, the tree counts as unchanged.
        let first = self.kept.now.phase == Phase::Ended;
        let said = self.kept.say(placing, first);
        said.map_err(|cause| Error::of(self.to.join(STATE), cause))?;
        step.place()?;
        self.sync(&folders)?;
        if self.is_replaced(&folders)? {
            let (path, names) = (self.to.join(TREE), 1);
            return Err(Error::Changed { path, names });
        }
        maker.left.names += left.added();
        maker.left.devices += plan.devices;
        left.retain(&self.fold.tree);
        let changed = !left.is_same(&self.left);
        self.left = left;
        if changed {
            self.write_omissions()?;
        }
        self.record_target(target)?;
        let wiped = wipe::wipe(folders.staging.as_fd(), &self.options.gate);
        wiped.map_err(|errno| Error::of(self.to.join(STAGING), errno.into()))?;
        folders.settle();
        self.folders = Some(folders);
        self.pending = false;
        self.resyncing = false;
        self.allowed = false;
        self.fold.settle(&self.left.files(&self.fold.tree));
        Ok(Some(StepReport {
            epoch: target.epoch,
            record: target.record,
            at_ns: target.at_ns,
            names: (plan.place.len() + plan.remove.len()) as u64,
            bytes: maker.bytes,
            repaired: found.names,
            left: maker.left,
        }))
    }

    /// The state to store while the tree becomes this epoch.
    fn placing(&self, target: Target) -> State {
        State {
            phase: match self.resyncing {
                // No later run would know which bytes differ.
                true => Phase::Nothing,
                false => Phase::Placing,
            },
            to_ns: target.at_ns,
            ..self.kept.now
        }
    }

    /// Syncs the file system of the tree.
    fn sync(&self, folders: &Folders) -> Result<(), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = fs::openat(&folders.staging, ".", flags, Mode::empty()).and_then(fs::syncfs);
        synced.map_err(|errno| Error::of(self.to.join(TREE), errno.into()))
    }

    /// Plans the step, and checks that it does not remove most of the files and that there is space
    /// for it. Returns `None` if the log has to be read again for it.
    fn plan(&mut self, target: Target) -> Result<Option<Plan>, Error> {
        let view = View {
            fold: &self.fold,
            lost: &self.found.lost,
            devices: self.options.privileged,
            left: &self.left,
        };
        if !self.may_delete() && !self.is_interrupted(target) {
            let refused = self.refused.filter(|(record, _)| *record == target.record);
            let known = refused.map(|(_, deletion)| deletion);
            let deletion = match known {
                Some(deletion) => Some(deletion),
                None => Deletion::of_step(view, &self.options.gate)
                    .map_err(|errno| Error::of(self.to.join(TREE), errno.into()))?,
            };
            if let Some(deletion) = deletion {
                self.refused = Some((target.record, deletion));
                // A person has to decide, and that may take long.
                self.fold.release();
                return Err(self.refusal(target, deletion));
            }
        }
        if !self.fold.has_contents() {
            return Ok(None);
        }
        let plan = Plan::new(view, &self.found.worn, self.options.in_place);
        if let Some(folders) = &self.folders {
            let missing = guard::missing_space(view, &plan, folders);
            let missing = missing.map_err(|cause| Error::of(self.to.join(STAGING), cause))?;
            if let Some((needs, left)) = missing {
                return Err(self.no_room(target, needs, left));
            }
        }
        Ok(Some(plan))
    }

    fn may_delete(&self) -> bool {
        self.options.allow_delete || self.allowed
    }

    /// Whether an earlier run was interrupted while it carried out this step. The step has then
    /// passed the guard already.
    fn is_interrupted(&self, target: Target) -> bool {
        let State { phase, to_ns, .. } = self.kept.now;
        phase == Phase::Placing && to_ns != 0 && to_ns == target.at_ns
    }

    fn refusal(&self, target: Target, deletion: Deletion) -> Error {
        Error::Deletion {
            to: self.to.clone(),
            epoch: target.epoch,
            removed: deletion.removed,
            files: deletion.files,
            interrupted: self.kept.now.phase == Phase::Placing,
        }
    }

    fn no_room(&self, target: Target, needs: Space, left: Space) -> Error {
        Error::Room {
            to: self.to.clone(),
            epoch: target.epoch,
            needs: needs.bytes,
            files: needs.files,
            has: left.bytes,
            names: left.files,
        }
    }

    /// Checks that an existing tree may be replaced by this one.
    fn check_replacement(&mut self, target: Target) -> Result<(), Error> {
        if self.may_delete() {
            return Ok(());
        }
        // While the step is refused, this is asked repeatedly. Listing the whole tree each time
        // would be expensive.
        let refused = self.refused.filter(|(record, _)| *record == target.record);
        if let Some((_, deletion)) = refused {
            return Err(self.refusal(target, deletion));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let there = match folders::open(&self.top, TREE, flags) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Error::of(self.to.join(TREE), errno.into())),
        };
        match Deletion::of_replacement(&there, &self.fold.tree) {
            Some(deletion) => {
                self.refused = Some((target.record, deletion));
                self.fold.release();
                Err(self.refusal(target, deletion))
            }
            None => Ok(()),
        }
    }

    /// Checks that there is space for the whole tree beside an existing one.
    fn check_first_room(&self, target: Target, staging: &OwnedFd) -> Result<(), Error> {
        let maker = Maker::new(self.options.privileged, self.options.gate.clone());
        let failed = |cause| Error::of(self.to.join(STAGING), cause);
        let tree = (&self.fold.tree, &self.fold.contents);
        let allocation = Allocation::of(staging).map_err(failed)?;
        let needs = Space::of_tree(tree, allocation, |kind| maker.makes(kind));
        let left = Space::available(staging).map_err(failed)?;
        match needs.fits(left) {
            true => Ok(()),
            false => Err(self.no_room(target, needs, left)),
        }
    }

    fn check_quota(&self, target: Target) -> Result<(), Error> {
        let Options {
            max_bytes,
            max_files,
            ..
        } = self.options;
        if max_bytes.is_none() && max_files.is_none() {
            return Ok(());
        }
        let (mut bytes, mut files) = (0_u64, 0);
        for (_, node) in self.fold.tree.files() {
            files += node.names.len() as u64;
            if !node.names.is_empty() {
                bytes = bytes.saturating_add(node.size);
            }
        }
        let epoch = target.epoch;
        for (what, has, limit) in [("bytes", bytes, max_bytes), ("files", files, max_files)] {
            if let Some(limit) = limit.filter(|limit| has > *limit) {
                return Err(Error::Quota {
                    epoch,
                    what,
                    has,
                    limit,
                });
            }
        }
        Ok(())
    }

    fn record_target(&mut self, target: Target) -> Result<(), Error> {
        self.kept.now.epoch = target.epoch;
        self.kept.now.record = target.record;
        self.kept.now.at_ns = target.at_ns;
        self.say(Phase::Whole, true)
    }

    fn say(&mut self, phase: Phase, durably: bool) -> Result<(), Error> {
        let state = State {
            phase,
            to_ns: 0,
            ..self.kept.now
        };
        let said = self.kept.say(state, durably);
        said.map_err(|cause| Error::of(self.to.join(STATE), cause))
    }
}

/// Whether a folder with these names has a state, or only what a new replica begins with.
fn is_blank(names: &[OsString], resync: bool) -> bool {
    let begins = |name: &OsString| {
        let tree = resync && name == TREE;
        tree || [STAGING, LOCK].iter().any(|ours| name == *ours)
    };
    names.iter().any(|name| name == STATE) || names.iter().all(begins)
}

fn lock(top: &Folder) -> Result<File, Error> {
    top.lock(LOCK).map_err(|error| match error {
        TryLockError::WouldBlock => Error::Busy(top.path().to_owned()),
        TryLockError::Error(cause) => Error::of(top.path().join(LOCK), cause),
    })
}
