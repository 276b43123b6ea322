//! Freezes and thaws a cgroup of version 2.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use rustix::fs::XattrFlags;
use sys::owner::Owner;

/// An extended attribute of the cgroup with the process that froze it. If the process is killed
/// together with its watchdog, the next run can thaw the cgroup.
const MARK: &str = "user.lowroad.frozen";

/// Why a cgroup cannot be frozen.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("cgroup {}: there is none: start the application first", .0.display())]
    Missing(PathBuf),
    #[error("cgroup {}: no directory of a cgroup2 file system; `mount -t cgroup2` says where one is", .0.display())]
    Version(PathBuf),
    #[error("cgroup {}: the root cgroup cannot be frozen: name the application's", .0.display())]
    Root(PathBuf),
    #[error("cgroup {}: a threaded one, which has parts of processes: name the one above that has them whole", .0.display())]
    Threaded(PathBuf),
    #[error("cgroup {}: lowroad is in it, and would freeze itself: name one that has the application only", .0.display())]
    Own(PathBuf),
    #[error("cgroup {}: it cannot be written ({cause}): run as root, with systemd with ProtectControlGroups=no", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

#[derive(Debug)]
pub(super) struct Cgroup {
    folder: File,
    freeze: File,
    events: File,
}

impl Cgroup {
    pub(super) fn open(path: &Path) -> Result<Self, FreezeError> {
        let failed = |cause: io::Error| match cause.kind() {
            ErrorKind::NotFound => FreezeError::Missing(path.to_owned()),
            ErrorKind::NotADirectory => FreezeError::Version(path.to_owned()),
            _ => FreezeError::Io {
                path: path.to_owned(),
                cause,
            },
        };
        let at = fs::metadata(path).map_err(failed)?;
        if !at.is_dir() {
            return Err(FreezeError::Version(path.to_owned()));
        }
        let folder = File::open(path).map_err(failed)?;
        let system = fstatfs(&folder).map_err(|errno| failed(errno.into()))?;
        if system.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(FreezeError::Version(path.to_owned()));
        }
        let file = path.join("cgroup.freeze");
        if !file.exists() {
            return Err(FreezeError::Root(path.to_owned()));
        }
        let kind = fs::read_to_string(path.join("cgroup.type")).map_err(failed)?;
        if kind.trim() == "threaded" {
            return Err(FreezeError::Threaded(path.to_owned()));
        }
        if has(path, &std::process::id().to_string()).map_err(failed)? {
            return Err(FreezeError::Own(path.to_owned()));
        }
        let freeze = OpenOptions::new().read(true).write(true).open(file);
        Ok(Self {
            folder,
            freeze: freeze.map_err(failed)?,
            events: File::open(path.join("cgroup.events")).map_err(failed)?,
        })
    }

    /// The file to which a write thaws the cgroup.
    pub(super) fn switch(&self) -> &File {
        &self.freeze
    }

    /// Whether a freeze has been requested by anyone.
    pub(super) fn is_freeze_requested(&self) -> io::Result<bool> {
        Ok(read(&self.freeze)?.trim() == "1")
    }

    /// Whether no process in it runs.
    pub(super) fn frozen(&self) -> io::Result<bool> {
        Ok(read(&self.events)?.lines().any(|line| line == "frozen 1"))
    }

    /// Requests a freeze. [`Self::frozen`] tells when it is complete.
    pub(super) fn freeze(&self) -> io::Result<()> {
        let owner = Owner::current().to_string();
        // Without such attributes, a later run cannot tell who froze it.
        let _ = rustix::fs::fsetxattr(&self.folder, MARK, owner.as_bytes(), XattrFlags::empty());
        self.freeze.write_all_at(b"1", 0)
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        self.freeze.write_all_at(THAW, 0)?;
        let _ = rustix::fs::fremovexattr(&self.folder, MARK);
        Ok(())
    }

    /// The process that last froze it with [`Self::freeze`] and has not thawed it.
    pub(super) fn owner(&self) -> Option<Owner> {
        let mut room = [0; 64];
        let length = rustix::fs::fgetxattr(&self.folder, MARK, &mut room[..]).ok()?;
        std::str::from_utf8(&room[..length]).ok()?.parse().ok()
    }
}

/// The bytes that thaw it when written to the switch.
pub(super) const THAW: &[u8] = b"0";

fn read(file: &File) -> io::Result<String> {
    let mut bytes = [0; 256];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Whether a process is in a cgroup or one below.
fn has(cgroup: &Path, process: &str) -> io::Result<bool> {
    match fs::read_to_string(cgroup.join("cgroup.procs")) {
        Ok(list) if list.lines().any(|line| line == process) => return Ok(true),
        Ok(_) => {}
        // A threaded cgroup: its processes are listed in one above.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {}
        Err(error) => return gone(error),
    }
    let below = match fs::read_dir(cgroup) {
        Ok(below) => below,
        Err(error) => return gone(error),
    };
    for entry in below {
        let entry = entry?;
        if entry.file_type()?.is_dir() && has(&entry.path(), process)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A cgroup that has just been removed has no processes.
fn gone(error: io::Error) -> io::Result<bool> {
    match error.raw_os_error() {
        Some(errno) if [Errno::ENOENT as i32, Errno::ENODEV as i32].contains(&errno) => Ok(false),
        _ => Err(error),
    }
}
