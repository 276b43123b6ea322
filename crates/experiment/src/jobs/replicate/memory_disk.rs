//! Where trials write: an ext4 file system in memory, the same on every machine, in a mount namespace
//! that ends with this process. What arms write down goes to the machine's own disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

/// Bytes of an image. It takes no memory before it is written.
const SIZE: u64 = 2 << 30;
/// No threads that go on making it while trials run.
const MAKE: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

#[derive(Debug)]
pub(super) struct MemoryDisk {
    memory: TempDir,
}

/// One trial's folders.
#[derive(Debug)]
pub(super) struct TrialFolders {
    /// The tree that is captured.
    tree: TempDir,
    /// Everything else, on the disk of this machine.
    out: TempDir,
}

impl MemoryDisk {
    /// The calling thread, and what it starts from now on, sees the file system; others do not.
    pub(super) fn new() -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
        let memory = tempfile::tempdir()?;
        let none = MsFlags::empty();
        mount(
            Some("tmpfs"),
            memory.path(),
            Some("tmpfs"),
            none,
            None::<&str>,
        )
        .context("tmpfs")?;
        let disk = Self { memory };
        disk.image("image", &disk.disk())?;
        Ok(disk)
    }

    fn image(&self, name: &str, at: &Path) -> Result<()> {
        let image = self.memory.path().join(name);
        File::create_new(&image)?.set_len(SIZE)?;
        done(Command::new("mkfs.ext4").args(MAKE).arg(&image))?;
        fs::create_dir(at)?;
        let mut mount = Command::new("mount");
        // Removed files must not stay in memory.
        done(mount.args(["-o", "loop,discard"]).arg(&image).arg(at))
    }

    /// A folder on another file system in memory, for logs and copies that must not wait for a disk.
    pub(super) fn scratch(&self) -> Result<TempDir> {
        let at = self.memory.path().join("scratch");
        if !at.exists() {
            self.image("scratch.image", &at)?;
        }
        Ok(tempfile::tempdir_in(at)?)
    }

    pub(super) fn folders(&self) -> Result<TrialFolders> {
        Ok(TrialFolders {
            // A subdirectory, because programs rarely have a whole file system.
            tree: tempfile::tempdir_in(self.disk())?,
            out: tempfile::tempdir()?,
        })
    }

    fn disk(&self) -> PathBuf {
        self.memory.path().join("disk")
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        // With all that is mounted below; the folder is removed after.
        let _ended = umount2(self.memory.path(), MntFlags::MNT_DETACH);
    }
}

impl TrialFolders {
    pub(super) fn tree(&self) -> &Path {
        self.tree.path()
    }

    pub(super) fn out(&self) -> &Path {
        self.out.path()
    }
}

/// Runs a program to its end; what it says is the error.
pub(super) fn done(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("{:?}", command.get_program()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{:?}: {}", command.get_program(), said.trim());
    }
    Ok(())
}
