//! Who sees what is written: `lowroad`, programs that people use for it today, or nobody.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use datapath::Missing;
use nix::mount::{MntFlags, umount2};
use serde_json::Value;
use testbed::Child;

use super::memory_disk::TrialFolders;
use crate::program::{lowroad_command, program};

/// How long it may take to start, and to write down what it has.
const TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Nobody.
    None,
    /// `lowroad replicate capture --journal`.
    Journal,
    /// `lowroad replicate capture`.
    Data,
    /// Every write call and its bytes, of a program and its children.
    Strace,
    /// As `Strace`, and only these calls stop the program.
    StraceSeccomp,
    /// `inotifywait`: that a file was written, not what.
    Inotify,
    /// Another mount of the tree through a process that could keep what is written; it keeps nothing.
    Bindfs,
}

/// An arm at work. It ends when dropped.
#[derive(Debug)]
pub(super) struct RunningArm {
    arm: Arm,
    child: Option<Child>,
    /// Where programs find the tree.
    work: PathBuf,
    out: PathBuf,
}

impl Arm {
    pub(super) const ALL: [Self; 7] = [
        Self::None,
        Self::Journal,
        Self::Data,
        Self::Strace,
        Self::StraceSeccomp,
        Self::Inotify,
        Self::Bindfs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Journal => "journal",
            Self::Data => "data",
            Self::Strace => "strace",
            Self::StraceSeccomp => "strace-seccomp",
            Self::Inotify => "inotify",
            Self::Bindfs => "bindfs",
        }
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arm| arm.name() == name)
    }

    pub(super) fn check(self) -> Result<(), Missing> {
        match self {
            Self::None | Self::Journal | Self::Data => Ok(()),
            Self::Strace | Self::StraceSeccomp => program("strace", "apt-get install strace"),
            Self::Inotify => program("inotifywait", "apt-get install inotify-tools"),
            Self::Bindfs => {
                program("bindfs", "apt-get install bindfs")?;
                if Path::new("/dev/fuse").exists() {
                    return Ok(());
                }
                Err(Missing::new("this kernel has no FUSE", "CONFIG_FUSE_FS=y"))
            }
        }
    }

    /// What writes a log that can be compared with the tree.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Journal | Self::Data)
    }

    /// A command of a program whose writes are seen.
    pub(super) fn wrap(self, program: &Path, out: &Path) -> Command {
        let options: &[&str] = match self {
            Self::Strace => &["-f", "-qq", "-y", "-s", "4096"],
            Self::StraceSeccomp => &["-f", "--seccomp-bpf", "-qq", "-y", "-s", "4096"],
            _ => return Command::new(program),
        };
        let mut command = Command::new("strace");
        command
            .args(options)
            .args(["-e", "trace=write,pwrite64,writev,pwritev,pwritev2", "-o"])
            .arg(out.join("strace"))
            .arg(program);
        command
    }

    /// Starts it, and returns once it sees what is written to the tree.
    pub(super) fn start(self, folders: &TrialFolders) -> Result<RunningArm> {
        let mut running = RunningArm {
            arm: self,
            child: None,
            work: folders.tree().to_owned(),
            out: folders.out().to_owned(),
        };
        match self {
            Self::None | Self::Strace | Self::StraceSeccomp => {}
            Self::Journal | Self::Data => running.capture(folders)?,
            Self::Inotify => running.inotify(folders)?,
            Self::Bindfs => running.bindfs(folders)?,
        }
        Ok(running)
    }
}

impl RunningArm {
    /// Where programs find the tree.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// Its process, if it has one of its own.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it as a user would, once nobody writes any more: its account, where it gives one.
    pub(super) fn stop(mut self) -> Result<Option<Value>> {
        self.unmount();
        let Some(mut child) = self.child.take() else {
            return Ok(None);
        };
        let status = child.stop(TIMEOUT)?;
        if !self.arm.is_own() {
            return Ok(None);
        }
        let said = fs::read_to_string(self.out.join("said"))?;
        let ended = said.lines().rfind(|line| line.contains("\"ended\""));
        let Some(account) = ended.filter(|_| status.success()) else {
            bail!("the capture ended with {status}: {}", self.errors());
        };
        let account: Value = serde_json::from_str(account).context("the account of a capture")?;
        Ok(Some(account["ended"].clone()))
    }

    fn capture(&mut self, folders: &TrialFolders) -> Result<()> {
        let ready = self.out.join("ready");
        let notified = UnixDatagram::bind(&ready)?;
        notified.set_nonblocking(true)?;
        let mut command = lowroad_command(&["replicate", "--json", "capture", "--tree"]);
        command
            .arg(folders.tree())
            .arg("--to")
            .arg(self.out.join("log"));
        if self.arm == Arm::Journal {
            command.arg("--journal");
        }
        command
            .env("NOTIFY_SOCKET", &ready)
            .stdout(File::create(self.out.join("said"))?);
        let mut said = [0; 256];
        self.spawn(command, |_| notified.recv(&mut said).is_ok())
    }

    fn inotify(&mut self, folders: &TrialFolders) -> Result<()> {
        let mut command = Command::new("inotifywait");
        command
            .args(["-m", "-r", "-o"])
            .arg(self.out.join("events"));
        command.arg(folders.tree()).stdout(Stdio::null());
        self.spawn(command, |running| running.errors().contains("established"))
    }

    fn bindfs(&mut self, folders: &TrialFolders) -> Result<()> {
        self.work = self.out.join("mounted");
        fs::create_dir(&self.work)?;
        let mut command = Command::new("bindfs");
        command.arg("-f").arg(folders.tree()).arg(&self.work);
        command.stdout(Stdio::null());
        self.spawn(command, |running| {
            let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
            matches!((device(&running.work), device(&running.out)), (Ok(one), Ok(other)) if one != other)
        })
    }

    /// Starts a program and waits until it is ready.
    fn spawn(&mut self, mut command: Command, mut ready: impl FnMut(&Self) -> bool) -> Result<()> {
        command
            .stdin(Stdio::null())
            .stderr(File::create(self.out.join("errors"))?);
        let name = command.get_program().to_string_lossy().into_owned();
        self.child = Some(Child::start(command).with_context(|| name.clone())?);
        let deadline = Instant::now() + TIMEOUT;
        while !ready(self) {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?;
            if ended.flatten().is_some() || Instant::now() > deadline {
                bail!("{name} did not start: {}", self.errors());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn errors(&self) -> String {
        let said = fs::read_to_string(self.out.join("errors")).unwrap_or_default();
        said.trim().to_owned()
    }

    fn unmount(&self) {
        if self.arm == Arm::Bindfs {
            // Nobody uses it any more, or what does is killed next.
            let _ended = umount2(&self.work, MntFlags::MNT_DETACH);
        }
    }
}

impl Drop for RunningArm {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Bytes that an arm has written down.
pub(super) fn written(out: &Path) -> u64 {
    let files = ["log", "events", "strace"].map(|name| out.join(name));
    files.iter().map(|path| size(path)).sum()
}

/// Bytes of a file, or of all files in a folder.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::metadata(path) else {
        return 0;
    };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path())).sum()
}
