//! The files of an overlay, which cannot be opened by file handle. Each is kept open as a
//! descriptor, so that it can be reached whatever happens to its names. The BPF programs are asked
//! how they identify it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::fstat;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};
use sys::handle;

use super::maps::Answers;
use super::source::{Lookup, gone, patiently};
use crate::record::{File, Name};

/// Lengths in a call that has no other effect, which the programs recognise: one asks for a file,
/// one releases it.
const ASK: u64 = 0x6c_6f77_726f_6164;
const LEAVE: u64 = 0x6c_6f77_726f_6165;
/// An answer may be evicted by those to other processes.
const ATTEMPTS: usize = 10;
/// The kernel's limit of open files per process.
const MAX_LAYERS: &str = "/proc/sys/fs/nr_open";

/// The files of the tree.
#[derive(Debug)]
pub(super) struct OverlayFiles {
    device: u64,
    mount: u64,
    /// Set once the programs are attached.
    answers: Option<Answers>,
    files: BTreeMap<File, OpenFile>,
    /// Files by the kernel's identifier. Several names of a lower file share it until each of them
    /// is copied up.
    called: BTreeMap<u64, BTreeSet<File>>,
}

#[derive(Debug)]
struct OpenFile {
    descriptor: OwnedFd,
    called: u64,
    /// The file will not be copied up any more, and was not since the directories above it were
    /// read.
    settled: bool,
}

/// What the kernel knows of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    called: u64,
    /// The type of the upper directory's file system, or zero if there is none.
    pub(super) magic: u64,
    /// Processes may store to the file through memory.
    pub(super) mapped: bool,
    /// The inode number in the upper directory, or zero if the file is only in a lower one.
    upper: u64,
}

impl Answer {
    /// Whether the file was created in the upper directory.
    fn original(self) -> bool {
        self.upper == self.called
    }
}

impl OverlayFiles {
    /// Opens the overlay of an open directory. At first it contains only that directory.
    pub(super) fn new(root: &OwnedFd) -> io::Result<(File, Self)> {
        allow_many();
        let status = status(root)?;
        let file = file(&status);
        let root = OpenFile {
            descriptor: root.try_clone()?,
            called: status.stx_ino,
            settled: false,
        };
        let files = Self {
            device: device(&status),
            mount: status.stx_mnt_id,
            answers: None,
            files: BTreeMap::from([(file, root)]),
            called: BTreeMap::new(),
        };
        Ok((file, files))
    }

    /// Starts asking the programs. Returns their answer about the root.
    pub(super) fn attach(&mut self, root: File, answers: Answers) -> io::Result<Answer> {
        self.answers = Some(answers);
        let pin = self.files.remove(&root).ok_or(io::ErrorKind::NotFound)?;
        let answer = self.ask(&pin.descriptor, ASK)?;
        self.keep(root, pin.descriptor, answer);
        Ok(answer)
    }

    /// Opens a file. `None` if it is not kept.
    pub(super) fn open(&self, file: File, flags: OFlag) -> io::Result<Option<OwnedFd>> {
        let Some(OpenFile { descriptor, .. }) = self.files.get(&file) else {
            return Ok(None);
        };
        if flags.contains(OFlag::O_PATH) {
            return descriptor.try_clone().map(Some);
        }
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(flags.bits());
        match patiently(|| options.open(&path).map(OwnedFd::from)) {
            Err(cause) => Err(too_many(cause)),
            opened => opened,
        }
    }

    /// Looks up a name in a directory, and keeps the file open from now on.
    pub(super) fn find(&mut self, within: &OwnedFd, name: &Name) -> io::Result<Lookup> {
        let Some((descriptor, status)) = open_entry(within, name)? else {
            return Ok(Lookup::Gone);
        };
        if status.stx_mnt_id != self.mount {
            return Ok(Lookup::Hidden);
        }
        if device(&status) != self.device {
            let why = "the overlay's directories are on several file systems, and it numbers files of each \
                       by themselves: mount it with xino=on";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let file = file(&status);
        let same = match self.files.get(&file) {
            Some(pin) => fstat(&pin.descriptor)?.st_ino == file.inode,
            None => false,
        };
        if !same {
            let answer = self.ask(&descriptor, ASK)?;
            self.keep(file, descriptor, answer);
        }
        Ok(Lookup::File(file))
    }

    /// Releases a file. If it is still the same file, stores through existing mappings are no
    /// longer reported.
    pub(super) fn forget(&mut self, file: File) {
        let Some(pin) = self.remove(file) else {
            return;
        };
        if fstat(&pin.descriptor).is_ok_and(|stat| stat.st_ino == file.inode) {
            // If the release fails, the programs only report unnecessary events.
            let _told = self.ask(&pin.descriptor, LEAVE);
        }
    }

    /// Writes back what processes have stored through memory, so that the next store is reported,
    /// unless stores are never reported. Returns whether processes may store more.
    pub(super) fn clean(&self, opened: &OwnedFd, silent: bool) -> io::Result<bool> {
        let mapped = self.ask(opened, ASK)?.mapped;
        if mapped && !silent {
            handle::write_back(opened)?;
        }
        Ok(mapped)
    }

    /// The files that a kernel identifier stands for: those that had it when they were opened, and
    /// the one that has this number now.
    pub(super) fn named(&self, called: u64) -> Vec<File> {
        let files = self.called.get(&called).into_iter().flatten();
        let mut files: BTreeSet<_> = files.copied().collect();
        let numbered = File {
            inode: called,
            generation: 0,
        };
        if self.files.contains_key(&numbered) {
            files.insert(numbered);
        }
        files.into_iter().collect()
    }

    /// Whether the file may have been copied up since the last call. During the copy, its directory
    /// has a different time than before and after.
    pub(super) fn is_copied(&mut self, file: File, over: bool) -> io::Result<bool> {
        let Some(pin) = self.files.get(&file).filter(|pin| !pin.settled) else {
            return Ok(false);
        };
        let copied = self.ask(&pin.descriptor, ASK)?.upper != 0;
        if copied
            && over
            && let Some(pin) = self.files.get_mut(&file)
        {
            pin.settled = true;
        }
        Ok(copied)
    }

    fn keep(&mut self, file: File, descriptor: OwnedFd, answer: Answer) {
        self.remove(file);
        let called = answer.called;
        self.called.entry(called).or_default().insert(file);
        let settled = answer.original();
        let pin = OpenFile {
            descriptor,
            called,
            settled,
        };
        self.files.insert(file, pin);
    }

    fn remove(&mut self, file: File) -> Option<OpenFile> {
        let pin = self.files.remove(&file)?;
        if let Some(files) = self.called.get_mut(&pin.called) {
            files.remove(&file);
            if files.is_empty() {
                self.called.remove(&pin.called);
            }
        }
        Some(pin)
    }

    fn ask(&self, descriptor: &OwnedFd, what: u64) -> io::Result<Answer> {
        let answers = self.answers.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let failed = |error: bpf::Error| io::Error::other(error.source);
        for _ in 0..ATTEMPTS {
            let question = fastrand::u64(1..1 << 62);
            handle::mention(descriptor, question, what);
            if let Some(answer) = answers.get(&question).map_err(failed)? {
                answers.remove(&question).map_err(failed)?;
                return Ok(Answer {
                    called: answer.inode,
                    magic: answer.magic,
                    mapped: answer.mapped != 0,
                    upper: answer.upper,
                });
            }
        }
        Err(io::Error::other("the programs do not know the file"))
    }
}

/// Opens a name with `O_PATH`, to find out what it is. `None` if there is no such name.
pub(super) fn open_entry(within: &OwnedFd, name: &Name) -> io::Result<Option<(OwnedFd, Statx)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(within, name.as_bytes(), flags, Mode::empty()).map_err(io::Error::from);
    match opened.and_then(|opened| Ok((status(&opened)?, opened))) {
        Ok((status, opened)) => Ok(Some((opened, status))),
        Err(cause) if gone(&cause) => Ok(None),
        Err(cause) => Err(too_many(cause)),
    }
}

fn status(opened: impl AsFd) -> io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    Ok(statx(opened, "", AtFlags::EMPTY_PATH, wanted)?)
}

/// Overlays have no generations, but an open file keeps its number.
fn file(status: &Statx) -> File {
    File {
        inode: status.stx_ino,
        generation: 0,
    }
}

fn device(status: &Statx) -> u64 {
    rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor)
}

/// Raises the limit of open files as far as possible, because each file of the tree is kept open.
fn allow_many() {
    let most = std::fs::read_to_string(MAX_LAYERS);
    let most = most.ok().and_then(|most| most.trim().parse::<u64>().ok());
    if let Some(most) = most
        && setrlimit(Resource::RLIMIT_NOFILE, most, most).is_err()
        && let Ok((_, most)) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE)
    {
        // The existing limit may be enough.
        let _left = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

fn too_many(cause: io::Error) -> io::Error {
    if cause.raw_os_error() == Some(Errno::EMFILE as i32) {
        let why = "too many open files: each file of a tree on an overlay is one; raise the limit (LimitNOFILE, \
                   ulimit -Hn)";
        return io::Error::other(why);
    }
    cause
}
