//! Files of an overlay, which opens none by a handle: each is held by a descriptor, so that it stays the
//! same whatever becomes of its names. What the programs call it, they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{FileStat, fstat};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};
use sys::handle;

use super::Error;
use super::derive::Deriver;
use super::event::{Event, What};
use super::skel::{Plain, types};
use super::source::{Named, Source, gone, patiently};
use crate::record::{File, Name, Part};

/// Lengths of a call that does nothing, as the programs know them: what is a file, and that it is left.
const ASK: u64 = 0x6c_6f77_726f_6164;
const LEAVE: u64 = 0x6c_6f77_726f_6165;
/// An answer may be pushed out by those that others get.
const ATTEMPTS: usize = 10;
/// As many files as a process may be allowed to open.
const MOST: &str = "/proc/sys/fs/nr_open";
/// No file is called so.
const STRANGER: File = File {
    inode: u64::MAX,
    generation: u32::MAX,
};

/// The files of the tree.
#[derive(Debug)]
pub(super) struct Held {
    device: u64,
    mount: u64,
    /// Once the programs are there.
    answers: Option<MapHandle>,
    files: BTreeMap<File, Pin>,
    /// By what the kernel calls them, which is the same for names of a lower file that is yet to be copied
    /// up by each of them.
    called: BTreeMap<u64, BTreeSet<File>>,
}

#[derive(Debug)]
struct Pin {
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

impl Held {
    /// Those of the overlay of an open directory: as yet only that.
    pub(super) fn new(root: &OwnedFd) -> io::Result<(File, Self)> {
        allow_many();
        let status = status(root)?;
        let file = file(&status);
        let root = Pin {
            descriptor: root.try_clone()?,
            called: status.stx_ino,
            settled: false,
        };
        let held = Self {
            device: device(&status),
            mount: status.stx_mnt_id,
            answers: None,
            files: BTreeMap::from([(file, root)]),
            called: BTreeMap::new(),
        };
        Ok((file, held))
    }

    /// From now on the programs are asked; what they say of the root.
    pub(super) fn attach(&mut self, root: File, answers: MapHandle) -> io::Result<Answer> {
        self.answers = Some(answers);
        let pin = self.files.remove(&root).ok_or(io::ErrorKind::NotFound)?;
        let answer = self.ask(&pin.descriptor, ASK)?;
        self.keep(root, pin.descriptor, answer);
        Ok(answer)
    }

    /// Opens a file; none where it is not held.
    pub(super) fn open(&self, file: File, flags: OFlag) -> io::Result<Option<OwnedFd>> {
        let Some(Pin { descriptor, .. }) = self.files.get(&file) else {
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
    pub(super) fn find(&mut self, within: &OwnedFd, name: &Name) -> io::Result<Named> {
        let Some((descriptor, status)) = look(within, name)? else {
            return Ok(Named::Gone);
        };
        if status.stx_mnt_id != self.mount {
            return Ok(Named::Hidden);
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
        Ok(Named::File(file))
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
    fn named(&self, called: u64) -> Vec<File> {
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
    fn is_copied(&mut self, file: File, over: bool) -> io::Result<bool> {
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
        let pin = Pin {
            descriptor,
            called,
            settled,
        };
        self.files.insert(file, pin);
    }

    fn remove(&mut self, file: File) -> Option<Pin> {
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
        for _ in 0..ATTEMPTS {
            let question = fastrand::u64(1..1 << 62);
            handle::mention(descriptor, question, what);
            let key = question.to_ne_bytes();
            let answer = answers.lookup(&key, MapFlags::ANY);
            if let Some(bytes) = answer.map_err(io::Error::other)? {
                answers.delete(&key).map_err(io::Error::other)?;
                let (answer, _) = types::answer::split(&bytes).ok_or(io::ErrorKind::InvalidData)?;
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

impl Source {
    /// Whether an overlay may have copied the file up by now, with an operation that is over or not.
    fn is_copied(&mut self, file: File, over: bool) -> Result<bool, Error> {
        let copied = self.held_mut().map(|held| held.is_copied(file, over));
        let copied = copied.transpose();
        Ok(copied.map_err(|cause| self.failed(file, cause))? == Some(true))
    }

    /// Files by what the programs call one.
    pub(super) fn called(&self, file: File) -> Vec<File> {
        match self.held() {
            Some(held) => held.named(file.inode),
            None => vec![file],
        }
    }

    /// The events that one is of all files that it may be about.
    pub(super) fn translate(&self, mut event: Event) -> Vec<Event> {
        if !self.holds() {
            return vec![event];
        }
        let first = |file| self.called(file).first().copied().unwrap_or(STRANGER);
        if let What::New(state) | What::State(state) | What::Unlink(state) = &mut event.what {
            state.parent = first(state.parent);
            if let Some((directory, _)) = &mut state.name {
                *directory = first(*directory);
            }
        }
        let mut files = self.called(event.file);
        if files.is_empty() {
            files.push(STRANGER);
        }
        let events = files.into_iter().map(|file| Event {
            file,
            ..event.clone()
        });
        events.collect()
    }
}

impl Deriver {
    /// What an event of the programs means.
    pub(super) fn take(&mut self, event: Event) -> Result<(), Error> {
        if !self.source.holds() {
            return self.event(event);
        }
        for event in self.source.translate(event) {
            if let What::State(_) = event.what {
                self.copied(event.file, !event.flags.in_the_middle())?;
            }
            self.event(event)?;
        }
        Ok(())
    }

    /// Reads again the times of the directories that a copy was made in: one that was read meanwhile is of
    /// no state of the tree.
    fn copied(&mut self, file: File, over: bool) -> Result<(), Error> {
        let mut copied = vec![file];
        while let Some(file) = copied.pop() {
            if !self.source.is_copied(file, over)? {
                continue;
            }
            for (directory, _) in self.held(file) {
                self.doubt(directory, Part::Attributes);
                copied.push(directory);
            }
        }
        Ok(())
    }

    /// Whether the file is what it was. One of a lower directory becomes another when it is copied up, if
    /// it had several names: each is a file of its own then.
    pub(super) fn recognise(&mut self, file: File, stat: &FileStat) -> Result<bool, Error> {
        if !self.source.holds() || Some(file) == self.tree.root() {
            return Ok(true);
        }
        let names = self.held(file);
        if stat.st_ino != file.inode {
            for (directory, _) in names {
                self.doubt(directory, Part::Names);
            }
            self.source.forget(file);
            self.doubt(file, Part::Attributes);
            return Ok(false);
        }
        if names.len() > 1 {
            for (directory, name) in names {
                if self.source.inode_of(directory, &name)? != Some(file.inode) {
                    self.doubt(directory, Part::Names);
                }
            }
        }
        Ok(true)
    }
}

/// A name, opened only to say what it is; none where there is no such.
pub(super) fn look(within: &OwnedFd, name: &Name) -> io::Result<Option<(OwnedFd, Statx)>> {
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
    let most = std::fs::read_to_string(MOST);
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
