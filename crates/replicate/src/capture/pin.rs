//! A journal that outlives its capture: the programs stay attached, and note which files they would have told
//! of. Who takes up the log reads those instead of the whole tree.

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

/// Where journals lie unless another place is named.
pub const FOLDER: &str = "/sys/fs/bpf/lowroad";
/// Folders of BPF file systems in which journals are looked for, at most: other programs have theirs there.
const MAX_FOLDERS: usize = 10_000;
/// Files that each of both maps has room for.
pub(super) const FILES: u32 = 65_536;
/// How often a map is emptied, at most.
const TURN: Duration = Duration::from_secs(1);
/// The files of the maps.
const EVEN: &str = "even_turns";
const ODD: &str = "odd_turns";
const COUNTERS: &str = "counters";
const LABEL: &str = "label";
/// Of what the programs note. It changes with them.
const FORMAT: u32 = 2;
/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8: a number that no later mount gets.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// What a journal is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// In a BPF file system.
    pub folder: PathBuf,
    /// The folder of the log, and the log's number.
    pub log: PathBuf,
    pub id: [u8; 16],
}

/// What a journal says of itself, for programs and for who finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    written_by: String,
    tree: String,
    log: String,
    of: Identity,
    /// An epoch of the log: it has all that was not noted.
    epoch: Option<u64>,
}

/// What has to be the same for a journal to say anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    version: String,
    log: [u8; 16],
    device: u64,
    inode: u64,
    generation: u32,
    /// A file system that was mounted again may have changed meanwhile.
    mount: u64,
    /// Where others were mounted within the tree, as that epoch has it: of what they hide or show nothing is noted.
    mounts: String,
}

/// The journal of a capture that is at work.
#[derive(Debug)]
pub(super) struct Journal {
    even: FileSet,
    odd: FileSet,
    turn: Variable,
    label_map: LabelMap,
    label: Label,
    turns: u64,
    state: State,
    /// The mounts of the last epoch, where the label does not name any since they changed.
    mounts: Mounts,
}

#[derive(Debug, PartialEq, Eq)]
enum Mounts {
    Said,
    /// No epoch has what they have come to hide or show.
    Changed,
    /// An epoch has, with these.
    Known(String),
}

#[derive(Debug)]
enum State {
    /// All that was told before this number is in the log.
    Resting { until: Instant, number: u64 },
    /// Programs that note in the map before may still run.
    Turning(JoinHandle<io::Result<()>>),
    /// What is in the map before was told before this number.
    Until(u64),
    /// An epoch has it.
    Covered(u64),
    /// The kernel does not say when its programs are through.
    Stuck,
}

impl Pin {
    /// Whether journals can be kept there.
    ///
    /// # Errors
    /// [`Error::Pin`] says what is missing.
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

    /// Of this log's journal. A BPF file system has no dots in its names.
    fn place(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}{suffix}", name(&self.log)))
    }

    /// Files that may not be as the log says up to its last epoch. None where no journal tells.
    pub(super) fn noted_files(&self, label: &Label, last: u64) -> Option<Vec<File>> {
        ["", "-new"]
            .iter()
            .find_map(|suffix| read(&self.place(suffix), label, last))
    }

    /// Detaches what earlier captures to a log have left in any BPF file system, but in this folder; where there was
    /// anything.
    ///
    /// # Errors
    /// When it cannot be removed: the folder, and why.
    pub fn remove_others(
        log: &Path,
        but: Option<&Path>,
    ) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let but = but.and_then(|folder| folder.canonicalize().ok());
        let name = name(log);
        let names = ["", "-new"].map(|suffix| format!("{name}{suffix}"));
        let mut removed = Vec::new();
        // Without a list of mounts nothing is known of journals.
        let mut left = mounts::of_kind(b"bpf").unwrap_or_default();
        let mut folders = 0;
        while let Some(folder) = left.pop().filter(|_| folders < MAX_FOLDERS) {
            folders += 1;
            // One that is gone by now, or of somebody else, has none.
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

    /// Detaches what an earlier capture has left; whether there was anything.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> io::Result<bool> {
        let mut any = false;
        for suffix in ["", "-new"] {
            any |= remove(&self.place(suffix))?;
        }
        Ok(any)
    }

    /// Keeps the programs attached from now on. `left` are files that the log may be wrong about until its
    /// next epoch.
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
        // Without a label it says nothing.
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

    /// From now on it holds for a log with this epoch.
    pub(super) fn since(self, epoch: u64) -> Self {
        Self {
            epoch: Some(epoch),
            ..self
        }
    }
}

impl Journal {
    /// Goes on with emptying the map of the turn before.
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

    /// Something else is mounted within the tree: until an epoch has that and is in the log, it says nothing.
    pub(super) fn distrust(&mut self) -> Result<(), Error> {
        self.mounts = Mounts::Changed;
        self.label.of.mounts.clear();
        self.write()
    }

    /// Ends the wait for an epoch with all events before a number, if `reached` says that this one has them.
    /// No operation was under way when it ended.
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

    /// The log has this epoch, its last, on its disk.
    pub(super) fn recorded(&mut self, epoch: u64) -> Result<(), Error> {
        if let Mounts::Known(mounts) = &self.mounts {
            self.label.of.mounts.clone_from(mounts);
            self.mounts = Mounts::Said;
            // What is noted is more than what this epoch lacks.
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

/// In place of a directory that has left the tree: what became of its files then, nobody has noted.
const DEPARTURES: File = File {
    inode: 0,
    generation: 0,
};

/// What a journal has noted, if it is one of that log up to an epoch that the log has.
fn read(place: &Path, wanted: &Label, last: u64) -> Option<Vec<File>> {
    let text = LabelMap::open(&place.join(LABEL))?.read()?;
    let label: Label = serde_json::from_slice(&text).ok()?;
    let holds = label.of == wanted.of && label.epoch.is_some_and(|epoch| epoch <= last);
    let mut files = FileSet::open(&place.join(EVEN))?.files();
    files.extend(FileSet::open(&place.join(ODD))?.files());
    if files.contains(&DEPARTURES) {
        return None;
    }
    // Behind what was noted: what found no room then is counted by now.
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

/// A log's journal is called so in whatever folder.
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
