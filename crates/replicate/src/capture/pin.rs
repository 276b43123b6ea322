//! A journal that outlives its capture: the programs stay attached and note the files that they
//! would have reported. The next capture reads those files instead of the whole tree.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::statvfs::{FsFlags, statvfs};
use rustix::fs::{AtFlags, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use super::Error;
use super::maps::{self, CounterMap, Counters, FileSet, LabelMap, Variable};
use super::mounts;
use super::program::{Programs, Scope};
use super::source::Source;
use crate::record::File;

/// The default folder of journals.
pub const FOLDER: &str = "/sys/fs/bpf/lowroad";
/// The most folders of BPF file systems that are searched for journals. Other programs have their
/// own there.
const MAX_FOLDERS: usize = 10_000;
/// The number of files in each of the two maps.
pub(super) const FILES: u32 = 65_536;
/// The shortest interval between two turns of the maps.
const TURN: Duration = Duration::from_secs(1);
/// The file names of the maps.
const EVEN: &str = "even_turns";
const ODD: &str = "odd_turns";
const COUNTERS: &str = "counters";
const LABEL: &str = "label";
/// The version of the journal's format.
const FORMAT: u32 = 2;
/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8: an identifier that is not reused by a later mount.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The settings of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The folder in a BPF file system.
    pub folder: PathBuf,
    /// The folder of the log, and the log's id.
    pub log: PathBuf,
    pub id: [u8; 16],
}

/// The label of a journal, which identifies it for programs and people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    written_by: String,
    tree: String,
    log: String,
    of: Identity,
    /// An epoch of the log that contains everything that is not noted.
    epoch: Option<u64>,
}

/// The values that must be unchanged for a journal to be usable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    version: String,
    log: [u8; 16],
    device: u64,
    inode: u64,
    generation: u32,
    /// A file system that was unmounted and mounted again may have changed in between.
    mount: u64,
    /// The mount points within the tree at that epoch. Changes of what mounts hide or reveal are
    /// not noted.
    mounts: String,
}

/// The journal of a running capture.
#[derive(Debug)]
pub(super) struct Journal {
    even: FileSet,
    odd: FileSet,
    turn: Variable,
    label_map: LabelMap,
    label: Label,
    turns: u64,
    state: State,
    /// The mount points of the last epoch. The label has none after they have changed.
    mounts: Mounts,
}

#[derive(Debug, PartialEq, Eq)]
enum Mounts {
    Said,
    /// No epoch contains the effects of the change yet.
    Changed,
    /// An epoch contains them, with these mount points.
    Known(String),
}

#[derive(Debug)]
enum State {
    /// Everything before this event number is in the log.
    Resting { until: Instant, number: u64 },
    /// Programs that still note files in the previous map may be running.
    Turning(JoinHandle<io::Result<()>>),
    /// The events of the previous map are before this number.
    Until(u64),
    /// An epoch contains them.
    Covered(u64),
    /// The kernel does not report when its programs have finished.
    Stuck,
}

impl Pin {
    /// Checks that journals can be kept in the folder.
    ///
    /// # Errors
    /// [`Error::Pin`] names what is missing.
    pub(super) fn check(&self, source: &Source) -> Result<(), Error> {
        let failed = |cause: String| Error::Pin {
            folder: self.folder.clone(),
            cause,
        };
        if source.format().silent() || source.is_overlay() {
            let on = source.format().name();
            return Err(failed(format!("{on} does not tell enough for a journal")));
        }
        mount_of(source).map_err(|cause| failed(cause.to_string()))?;
        let there = self.folder.ancestors().find(|place| place.exists());
        let kind = there.map(nix::sys::statfs::statfs).transpose();
        let kind = kind.map_err(|errno| failed(errno.to_string()))?;
        if kind.is_none_or(|kind| kind.filesystem_type() != nix::sys::statfs::BPF_FS_MAGIC) {
            return Err(failed(
                "no BPF file system: mount -t bpf bpf /sys/fs/bpf".to_owned(),
            ));
        }
        let options = there.map(statvfs).transpose();
        let options = options.map_err(|errno| failed(errno.to_string()))?;
        if options.is_some_and(|options| options.flags().contains(FsFlags::ST_RDONLY)) {
            let cause = "it cannot be written to; in a unit of systemd ProtectKernelTunables=no says that it may";
            return Err(failed(cause.to_owned()));
        }
        Ok(())
    }

    /// The path of this log's journal. Names in a BPF file system have no dots.
    fn place(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}{suffix}", name(&self.log)))
    }

    /// Files that may differ from the log's last epoch. `None` if there is no usable journal.
    pub(super) fn noted_files(&self, label: &Label, last: u64) -> Option<Vec<File>> {
        ["", "-new"]
            .iter()
            .find_map(|suffix| read(&self.place(suffix), label, last))
    }

    /// Detaches journals that earlier captures to a log have left in any BPF file system except in
    /// this folder. Returns the folders that had any.
    ///
    /// # Errors
    /// The folder that cannot be removed, and the reason.
    pub fn remove_others(
        log: &Path,
        but: Option<&Path>,
    ) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let but = but.and_then(|folder| folder.canonicalize().ok());
        let name = name(log);
        let names = ["", "-new"].map(|suffix| format!("{name}{suffix}"));
        let mut removed = Vec::new();
        // Journals cannot be found without the list of mounts.
        let mut left = mounts::of_kind(b"bpf").unwrap_or_default();
        let mut folders = 0;
        while let Some(folder) = left.pop().filter(|_| folders < MAX_FOLDERS) {
            folders += 1;
            // A folder that is gone, or belongs to another user, has no journal.
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if !names.iter().any(|name| entry.file_name() == name.as_str()) {
                    left.push(path);
                } else if but.as_ref() != Some(&folder) {
                    remove(&path).map_err(|cause| (folder.clone(), cause))?;
                    removed.push(path);
                }
            }
        }
        Ok(removed)
    }

    /// Detaches the journal of an earlier capture. Returns whether there was one.
    ///
    /// # Errors
    /// The journal cannot be removed.
    pub fn remove(&self) -> io::Result<bool> {
        let mut any = false;
        for suffix in ["", "-new"] {
            any |= remove(&self.place(suffix))?;
        }
        Ok(any)
    }

    /// Keeps the programs attached from now on. `left` has the files that the log may have wrong
    /// until its next epoch.
    pub(super) fn keep(
        &self,
        programs: &mut Programs,
        label: Label,
        left: &[File],
    ) -> Result<Journal, Error> {
        let (place, new) = (self.place(""), self.place("-new"));
        let failed = |cause: io::Error| Error::Pin {
            folder: self.folder.clone(),
            cause: cause.to_string(),
        };
        let maps = programs.maps();
        let duplicated = || Error::bpf("duplicating a map's descriptor");
        let journal = Journal {
            even: maps.even.try_clone().map_err(duplicated())?,
            odd: maps.odd.try_clone().map_err(duplicated())?,
            turn: maps.turn.try_clone().map_err(duplicated())?,
            label_map: maps.label.try_clone().map_err(duplicated())?,
            label,
            turns: 0,
            state: State::Resting {
                until: Instant::now(),
                number: 0,
            },
            mounts: Mounts::Said,
        };
        journal.seed(left)?;
        journal.write()?;
        remove(&new).map_err(failed)?;
        fs::create_dir_all(&new).map_err(failed)?;
        programs.pin(&new)?;
        let maps = programs.maps();
        let pinned = || Error::bpf("pinning the journal");
        maps.even.pin(&new.join(EVEN)).map_err(pinned())?;
        maps.odd.pin(&new.join(ODD)).map_err(pinned())?;
        maps.counters.pin(&new.join(COUNTERS)).map_err(pinned())?;
        // A journal without a label is not usable.
        maps.label.pin(&new.join(LABEL)).map_err(pinned())?;
        remove(&place).map_err(failed)?;
        fs::rename(&new, &place).map_err(failed)?;
        Ok(journal)
    }
}

impl Label {
    pub(super) fn new(
        pin: &Pin,
        tree: &Path,
        source: &Source,
        scope: &Scope,
        mounts: String,
    ) -> Result<Self, Error> {
        Ok(Self {
            written_by: "lowroad replicate capture --pin".to_owned(),
            tree: tree.to_string_lossy().into_owned(),
            log: pin.log.to_string_lossy().into_owned(),
            of: Identity {
                format: FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                log: pin.id,
                device: scope.device,
                inode: scope.root.inode,
                generation: scope.root.generation,
                mount: mount_of(source).map_err(Error::io("the tree's mount"))?,
                mounts,
            },
            epoch: None,
        })
    }

    /// The label for a log with this epoch.
    pub(super) fn since(self, epoch: u64) -> Self {
        Self {
            epoch: Some(epoch),
            ..self
        }
    }
}

impl Journal {
    /// Continues to empty the previous map.
    pub(super) fn step(&mut self, programs: &Programs) -> Result<(), Error> {
        match &self.state {
            State::Resting { until, number }
                if *until <= Instant::now() && programs.counters()?.next != *number =>
            {
                self.turns += 1;
                maps::set(&self.turn, self.turns).map_err(Error::bpf("writing the journal"))?;
                self.state = State::Turning(thread::spawn(sys::sched::grace_period));
            }
            State::Turning(waiting) if waiting.is_finished() => {
                let State::Turning(waiting) = std::mem::replace(&mut self.state, State::Stuck)
                else {
                    return Ok(());
                };
                if let Ok(Ok(())) = waiting.join() {
                    self.state = State::Until(programs.counters()?.next);
                } else {
                    tracing::warn!("the journal grows: the kernel says of no grace period");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes the journal unusable after a change of mounts within the tree, until an epoch that
    /// contains the effects is in the log.
    pub(super) fn distrust(&mut self) -> Result<(), Error> {
        self.mounts = Mounts::Changed;
        self.label.of.mounts.clear();
        self.write()
    }

    /// Ends the wait for an epoch with all events before a number, if `reached` confirms that this
    /// one has them. No operation was under way when the epoch ended.
    pub(super) fn epoch(&mut self, mounts: String, reached: impl FnOnce(u64) -> bool) {
        if self.mounts != Mounts::Said {
            self.mounts = Mounts::Known(mounts);
        }
        if let State::Until(number) = self.state
            && reached(number)
        {
            self.state = State::Covered(number);
        }
    }

    /// Notes that the log's last epoch is on the disk.
    pub(super) fn recorded(&mut self, epoch: u64) -> Result<(), Error> {
        if let Mounts::Known(mounts) = &self.mounts {
            self.label.of.mounts.clone_from(mounts);
            self.mounts = Mounts::Said;
            // The journal has more files than this epoch lacks.
            self.label.epoch = self.label.epoch.map(|_| epoch);
            self.write()?;
        }
        let State::Covered(number) = self.state else {
            return Ok(());
        };
        let before = match self.turns & 1 {
            1 => &self.even,
            _ => &self.odd,
        };
        before.clear().map_err(Error::bpf("emptying the journal"))?;
        self.label.epoch = Some(epoch);
        self.write()?;
        self.state = State::Resting {
            until: Instant::now() + TURN,
            number,
        };
        Ok(())
    }

    fn seed(&self, files: &[File]) -> Result<(), Error> {
        for file in files {
            let inserted = self.even.insert(*file);
            inserted.map_err(Error::bpf("filling the journal"))?;
        }
        Ok(())
    }

    fn write(&self) -> Result<(), Error> {
        let text = serde_json::to_vec(&self.label);
        let text = text.map_err(|error| Error::io("a label")(error.into()))?;
        self.label_map.write(&text)
    }
}

/// Stands for a directory that has left the tree. What happened to its files then was not noted.
const DEPARTURES: File = File {
    inode: 0,
    generation: 0,
};

/// The files in a journal, if it belongs to this log up to an epoch that the log has.
fn read(place: &Path, wanted: &Label, last: u64) -> Option<Vec<File>> {
    let text = LabelMap::open(&place.join(LABEL))?.read()?;
    let label: Label = serde_json::from_slice(&text).ok()?;
    let holds = label.of == wanted.of && label.epoch.is_some_and(|epoch| epoch <= last);
    let mut files = FileSet::open(&place.join(EVEN))?.files();
    files.extend(FileSet::open(&place.join(ODD))?.files());
    if files.contains(&DEPARTURES) {
        return None;
    }
    // Read after the noted files, so that files that did not fit are counted by now.
    let Counters {
        forgotten,
        overlooked,
        ..
    } = CounterMap::open(&place.join(COUNTERS))?.read().ok()?;
    if !holds || forgotten + overlooked > 0 {
        return None;
    }
    files.sort_unstable();
    files.dedup();
    Some(files)
}

fn remove(place: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(place)?;
    Ok(true)
}

/// The name of a log's journal, which does not depend on the folder.
fn name(log: &Path) -> String {
    let log = log.canonicalize().unwrap_or_else(|_| log.to_owned());
    let hash = blake3::hash(log.as_os_str().as_bytes()).to_hex();
    hash.get(..16).unwrap_or_default().to_owned()
}

fn mount_of(source: &Source) -> io::Result<u64> {
    let found = statx(source.root(), c"", AtFlags::EMPTY_PATH, UNIQUE_MOUNT)?;
    if found.stx_mask & UNIQUE_MOUNT.bits() == 0 {
        let what = "a journal needs Linux 6.8 or later: mounts have no numbers of their own";
        return Err(io::Error::other(what));
    }
    Ok(found.stx_mnt_id)
}
