//! The program that captures writes: `lowroad`, a common alternative, or none.

use std::ffi::OsString;
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
use crate::arms::{Place, ProgramArm, ProgramProcess, Values};
use crate::outcome::Outcome;
use crate::program::{Lowroad, program};

/// How long it may take to start, and to write down what it has.
const TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(5);
/// The folder for the output of an external program.
const PROGRAM_FOLDER: &str = "program";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// No capture.
    None,
    /// `lowroad replicate capture --journal`.
    Journal,
    /// `lowroad replicate capture`.
    Data,
    /// Every write call and its bytes, of a program and its children.
    Strace,
    /// As `Strace`, and only these calls stop the program.
    StraceSeccomp,
    /// Another mount of the tree through a process that could keep what is written; it keeps nothing.
    Bindfs,
    /// An external program, whatever it keeps.
    Program,
}

/// The program that follows the tree in a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follower<'a> {
    pub(super) arm: Arm,
    /// The build that captures.
    pub(super) lowroad: &'a Lowroad,
    /// The program of [`Arm::Program`].
    pub(super) program: Option<&'a ProgramArm>,
}

/// An arm at work. It ends when dropped.
#[derive(Debug)]
pub(super) struct RunningArm {
    arm: Arm,
    lowroad: Lowroad,
    child: Option<Child>,
    program: Option<ProgramProcess>,
    /// Where programs find the tree.
    work: PathBuf,
    out: PathBuf,
}

impl Arm {
    pub(super) const ALL: [Self; 6] = [
        Self::None,
        Self::Journal,
        Self::Data,
        Self::Strace,
        Self::StraceSeccomp,
        Self::Bindfs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Journal => "journal",
            Self::Data => "data",
            Self::Strace => "strace",
            Self::StraceSeccomp => "strace-seccomp",
            Self::Bindfs => "bindfs",
            Self::Program => "program",
        }
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arm| arm.name() == name)
    }

    pub(super) fn check(self) -> Result<(), Missing> {
        match self {
            Self::None | Self::Journal | Self::Data | Self::Program => Ok(()),
            Self::Strace | Self::StraceSeccomp => program("strace", "apt-get install strace"),
            Self::Bindfs => {
                program("bindfs", "apt-get install bindfs")?;
                if Path::new("/dev/fuse").exists() {
                    return Ok(());
                }
                Err(Missing::new("this kernel has no FUSE", "CONFIG_FUSE_FS=y"))
            }
        }
    }

    /// Whether it writes a log that can be compared with the tree.
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
}

impl Follower<'_> {
    /// Starts it, and returns once it sees what is written to the tree.
    pub(super) fn start(self, folders: &TrialFolders) -> Result<RunningArm> {
        let mut running = RunningArm {
            arm: self.arm,
            lowroad: self.lowroad.clone(),
            child: None,
            program: None,
            work: folders.tree().to_owned(),
            out: folders.out().to_owned(),
        };
        match self.arm {
            Arm::None | Arm::Strace | Arm::StraceSeccomp => {}
            Arm::Journal | Arm::Data => running.capture(folders)?,
            Arm::Bindfs => running.bindfs(folders)?,
            Arm::Program => running.start_program(self.program, folders)?,
        }
        Ok(running)
    }
}

impl RunningArm {
    /// Where programs find the tree.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// The build that captures, which can read what it has written.
    pub(super) fn lowroad(&self) -> &Lowroad {
        &self.lowroad
    }

    /// Its processes, if it has some of its own.
    pub(super) fn pids(&self) -> Vec<u32> {
        let program = self.program.iter().flat_map(ProgramProcess::pids);
        self.child.iter().map(Child::id).chain(program).collect()
    }

    /// Notes what an external program was.
    ///
    /// # Errors
    /// It has ended by itself.
    pub(super) fn note(&mut self, outcome: &mut Outcome) -> Result<()> {
        match &mut self.program {
            Some(program) => program.note(outcome),
            None => Ok(()),
        }
    }

    /// Ends it as a user would, once the writer has stopped, and returns its account, if it gives one.
    pub(super) fn stop(mut self) -> Result<Option<Value>> {
        self.unmount();
        if let Some(program) = self.program.take() {
            program.stop()?;
        }
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
        let mut command = self.lowroad.command(&[]);
        command
            .args(arguments(self.arm, folders.tree(), &self.out))
            .env("NOTIFY_SOCKET", &ready)
            .stdout(File::create(self.out.join("said"))?);
        let mut said = [0; 256];
        self.spawn(command, |_| notified.recv(&mut said).is_ok())
    }

    fn start_program(
        &mut self,
        program: Option<&ProgramArm>,
        folders: &TrialFolders,
    ) -> Result<()> {
        let program = program.context("an arm without a program")?;
        let folder = self.out.join(PROGRAM_FOLDER);
        fs::create_dir(&folder)?;
        let tree = folders.tree().display().to_string();
        let values = Values::from([("tree", vec![tree])]);
        let process = ProgramProcess::start(program, Place::Machine, values, &folder)?;
        self.program = Some(process);
        Ok(())
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
            // Nothing uses it by now, except processes that are killed next.
            let _ended = umount2(&self.work, MntFlags::MNT_DETACH);
        }
    }
}

impl Drop for RunningArm {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// The arguments of a capture.
pub(super) fn arguments(arm: Arm, tree: &Path, out: &Path) -> Vec<OsString> {
    let words = ["replicate", "--json", "capture", "--tree"];
    let words = words.into_iter().map(OsString::from);
    let paths = [tree.into(), "--to".into(), out.join("log").into()];
    let journal = (arm == Arm::Journal).then(|| "--journal".into());
    words.chain(paths).chain(journal).collect()
}

/// Bytes that an arm has written down.
pub(super) fn written(out: &Path) -> u64 {
    let files = ["log", PROGRAM_FOLDER, "strace"].map(|name| out.join(name));
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
