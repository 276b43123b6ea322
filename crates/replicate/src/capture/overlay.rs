//! Files of an overlay, which opens none by a handle: each is held by a descriptor, so that it stays the
//! same whatever becomes of its names. What the programs call it, they are asked.

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

/// Lengths of a call that does nothing, as the programs know them: what is a file, and that it is left.
const ASK: u64 = 0x6c_6f77_726f_6164;
const LEAVE: u64 = 0x6c_6f77_726f_6165;
/// An answer may be pushed out by those that others get.
const ATTEMPTS: usize = 10;
/// As many files as a process may be allowed to open.
const MAX_LAYERS: &str = "/proc/sys/fs/nr_open";

/// The files of the tree.
#[derive(Debug)]
pub(super) struct OverlayFiles {
    device: u64,
    mount: u64,
    /// Once the programs are there.
    answers: Option<Answers>,
    files: BTreeMap<File, OpenFile>,
    /// By what the kernel calls them, which is the same for names of a lower file that is yet to be copied
    /// up by each of them.
    called: BTreeMap<u64, BTreeSet<File>>,
}

#[derive(Debug)]
struct OpenFile {
    descriptor: OwnedFd,
    called: u64,
    /// It is not to be copied up any more, and was not since the directories above were read.
    settled: bool,
}

/// What the kernel has of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    called: u64,
    /// The kind of file system that the upper directory is on; zero where there is none.
    pub(super) magic: u64,
    /// Processes may store to it through memory.
    pub(super) mapped: bool,
    /// Its number in the upper directory; zero where it is only in a lower one.
    upper: u64,
}

impl Answer {
    /// Whether it was made in the upper directory.
    fn original(self) -> bool {
        self.upper == self.called
    }
}

impl OverlayFiles {
    /// Those of the overlay of an open directory: as yet only that.
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

    /// From now on the programs are asked; what they say of the root.
    pub(super) fn attach(&mut self, root: File, answers: Answers) -> io::Result<Answer> {
        self.answers = Some(answers);
        let pin = self.files.remove(&root).ok_or(io::ErrorKind::NotFound)?;
        let answer = self.ask(&pin.descriptor, ASK)?;
        self.keep(root, pin.descriptor, answer);
        Ok(answer)
    }

    /// Opens a file; none where it is not held.
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

    /// What a name in a directory is, which is held from now on.
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

    /// Lets go of a file. Who has it mapped stores to it unseen, if it is still what it was held as.
    pub(super) fn forget(&mut self, file: File) {
        let Some(pin) = self.remove(file) else {
            return;
        };
        if fstat(&pin.descriptor).is_ok_and(|stat| stat.st_ino == file.inode) {
            // What is watched in vain is told in vain.
            let _told = self.ask(&pin.descriptor, LEAVE);
        }
    }

    /// Writes what processes have stored to the file through memory, so that the next store is seen, unless nothing tells
    /// of them; whether they may store more.
    pub(super) fn clean(&self, opened: &OwnedFd, silent: bool) -> io::Result<bool> {
        let mapped = self.ask(opened, ASK)?.mapped;
        if mapped && !silent {
            handle::write_back(opened)?;
        }
        Ok(mapped)
    }

    /// Which files the kernel's name is of: those that it was the name of when they were held, and the one that has
    /// this number now.
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

    /// Whether the file may have been copied up since this was last asked. While the directory that it is
    /// in gets the copy, it has another time than before and after.
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

/// A name, opened only to say what it is; none where there is no such.
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

/// Overlays have no generations: what is held keeps its number.
fn file(status: &Statx) -> File {
    File {
        inode: status.stx_ino,
        generation: 0,
    }
}

fn device(status: &Statx) -> u64 {
    rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor)
}

/// Lets the process have as many files open as it is let, since each file of the tree is one.
fn allow_many() {
    let most = std::fs::read_to_string(MAX_LAYERS);
    let most = most.ok().and_then(|most| most.trim().parse::<u64>().ok());
    if let Some(most) = most
        && setrlimit(Resource::RLIMIT_NOFILE, most, most).is_err()
        && let Ok((_, most)) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE)
    {
        // What there is may do.
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
