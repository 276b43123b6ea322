//! The open folder of a log or a replica. Every file in it is reached through this descriptor and a
//! single name, so that neither a symbolic link nor a replaced folder leads a privileged program
//! elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::{fs, io::Errno};

/// The most symbolic links in a path, which is the kernel's limit.
const SYMLINKS: u32 = 40;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A folder that belongs to the caller or to root and that only its owner can write to.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    /// The path, for errors.
    path: PathBuf,
}

impl Folder {
    /// Opens a folder. Symbolic links in its path are followed if they belong to the caller or to
    /// root.
    ///
    /// # Errors
    /// `PermissionDenied`, with a remedy, for a folder of another user or one that others can write
    /// to; errors of opening it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::find(path, None)
    }

    /// As [`Self::open`], and creates the missing folders of the path with this mode.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn create(path: &Path, mode: Mode) -> io::Result<Self> {
        Self::find(path, Some(mode))
    }

    fn find(path: &Path, make: Option<Mode>) -> io::Result<Self> {
        let fd = resolve(path, make)?;
        check_folder(&fs::fstat(&fd)?)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// The path as it was given to [`Self::open`].
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The names in the folder.
    ///
    /// # Errors
    /// `NotFound` if the folder itself was removed; errors of reading it.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = fs::openat(&self.fd, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(listed)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        if names.is_empty() && fs::fstat(&self.fd)?.st_nlink == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(names)
    }

    /// The status of the file with this name. Symbolic links are not followed.
    ///
    /// # Errors
    /// Those of `fstatat`.
    pub(crate) fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Stat> {
        let name = one_name(name.as_ref())?;
        Ok(fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens a file. With `CREATE`, creates it so that only its owner can read it.
    ///
    /// # Errors
    /// The file is not regular, belongs to another user, or is opened for writing and has several
    /// names; errors of opening it.
    pub(crate) fn file(&self, name: impl AsRef<OsStr>, flags: OFlags) -> io::Result<File> {
        let mode = match flags.contains(OFlags::CREATE) {
            true => Mode::RUSR | Mode::WUSR,
            false => Mode::empty(),
        };
        // Opening a FIFO would block.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match open_beneath(&self.fd, name, flags, mode) {
            Err(Errno::LOOP) => return Err(refused("a symlink is not followed here; remove it")),
            // A FIFO without a reader, a socket, or a device without a driver.
            Err(Errno::NXIO | Errno::ISDIR | Errno::NODEV) => return Err(not_regular()),
            opened => opened?,
        };
        check_file(
            &fs::fstat(&opened)?,
            !flags.contains(OFlags::WRONLY) && !flags.contains(OFlags::RDWR),
        )?;
        fs::fcntl_setfl(&opened, flags & OFlags::APPEND)?;
        Ok(opened.into())
    }

    /// Locks a file with this name until it is dropped, and creates it if there is none. Only its
    /// owner can open it, because everyone who can open a file can hold its lock.
    ///
    /// # Errors
    /// `WouldBlock` while another program holds the lock; those of [`Self::file`].
    pub(crate) fn lock(&self, name: &str) -> Result<File, TryLockError> {
        let file = self.file(name, OFlags::WRONLY | OFlags::CREATE);
        let file = file.map_err(TryLockError::Error)?;
        let closed = fs::fchmod(&file, Mode::RUSR | Mode::WUSR);
        closed.map_err(|errno| TryLockError::Error(errno.into()))?;
        file.try_lock()?;
        Ok(file)
    }

    /// Creates a new file in place of any file with this name.
    ///
    /// # Errors
    /// Errors of removing and of creating it.
    pub(crate) fn replace(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        self.remove(name)?;
        self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// # Errors
    /// Those of `renameat`.
    pub(crate) fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (from, to) = (one_name(from.as_ref())?, one_name(to.as_ref())?);
        Ok(fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file. A missing file is not an error.
    ///
    /// # Errors
    /// Those of `unlinkat`.
    pub(crate) fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match fs::unlinkat(&self.fd, one_name(name.as_ref())?, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Returns when the folder's entries survive a power failure.
    ///
    /// # Errors
    /// Those of `fsync`.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.fd)?)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a name in a directory. Neither a symbolic link nor a mount is followed.
///
/// # Errors
/// `LOOP` for a symbolic link, unless `PATH` opens the link itself; `XDEV` for a mount; errors of
/// opening it.
pub(crate) fn open_beneath(
    at: impl AsFd,
    name: impl AsRef<OsStr>,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let (at, name) = (at.as_fd(), one_name(name.as_ref())?);
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat2(at, name, flags, mode, resolve) {
        // Container runtimes that do not know the call reject it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_name(at, name, flags, mode),
        opened => opened,
    }
}

/// As [`open_beneath`] on kernels without `openat2`. Mounts are followed, but only root can mount.
fn open_by_name(
    at: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    fs::openat(at, one_name(name)?, flags | OFlags::NOFOLLOW, mode)
}

fn one_name(name: &OsStr) -> Result<&OsStr, Errno> {
    let bytes = name.as_bytes();
    match bytes.is_empty() || bytes.contains(&b'/') || bytes == b".." {
        true => Err(Errno::INVAL),
        false => Ok(name),
    }
}

/// Opens a folder by its path, one component after the other.
fn resolve(path: &Path, make: Option<Mode>) -> io::Result<OwnedFd> {
    let mut left = Vec::new();
    push(&mut left, path);
    let mut at = enter(CWD, OsStr::new("."))?;
    let mut followed = 0;
    while let Some(name) = left.pop() {
        if name == "/" {
            at = enter(CWD, &name)?;
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || fs::openat(&at, &name, flags, Mode::empty());
        let found = match (open(), make) {
            (Err(Errno::NOENT), Some(mode)) => match fs::mkdirat(&at, &name, mode) {
                Ok(()) | Err(Errno::EXIST) => open()?,
                Err(errno) => return Err(errno.into()),
            },
            (found, _) => found?,
        };
        let stat = fs::fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            at = found;
            continue;
        }
        followed += 1;
        if followed > SYMLINKS {
            return Err(Errno::LOOP.into());
        }
        if !is_trusted(&stat) {
            let (name, owner) = (name.display(), stat.st_uid);
            return Err(refused(&format!(
                "{name} is a symlink of user {owner}, which could lead anywhere; name the folder itself"
            )));
        }
        let target = fs::readlinkat(&found, "", Vec::new())?.into_bytes();
        push(&mut left, Path::new(OsStr::from_bytes(&target)));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(&at, ".", flags, Mode::empty())?)
}

/// Pushes the components of a path, the first one last.
fn push(left: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|part| match part {
        Component::CurDir | Component::Prefix(_) => None,
        Component::RootDir => Some("/".into()),
        Component::ParentDir => Some("..".into()),
        Component::Normal(name) => Some(name.to_owned()),
    });
    left.extend(names);
}

fn enter(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(at, name, flags, Mode::empty())
}

/// # Errors
/// `PermissionDenied` for a folder whose contents another user controls.
pub(crate) fn check_folder(stat: &Stat) -> io::Result<()> {
    if !is_trusted(stat) {
        let owner = stat.st_uid;
        return Err(refused(&format!(
            "the folder belongs to user {owner}; run as that user, or name a folder of your own"
        )));
    }
    if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(
            "others can write to the folder; chmod go-w it, or name a folder of your own",
        ));
    }
    Ok(())
}

fn check_file(stat: &Stat, read_only: bool) -> io::Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_regular());
    }
    if !is_trusted(stat) {
        let owner = stat.st_uid;
        return Err(refused(&format!(
            "the file belongs to user {owner}; remove it"
        )));
    }
    // A write here would change the file under its other name.
    if !read_only && stat.st_nlink > 1 {
        return Err(refused(
            "the file has another name as well, a hard link; put a copy in its place",
        ));
    }
    Ok(())
}

fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw()
}

fn not_regular() -> io::Error {
    refused("it is no regular file; remove it")
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;

    #[test]
    fn a_kernel_without_openat2_follows_no_symlink_either() {
        let top = std::env::temp_dir().join(format!("folder-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        std::fs::write(top.join("file"), "").unwrap();
        std::os::unix::fs::symlink("file", top.join("symlink")).unwrap();
        let folder = Folder::open(&top).unwrap();
        let (at, none) = (folder.as_fd(), Mode::empty());
        for has_openat2 in [false, true] {
            let open = |name: &str| {
                let (name, flags) = (OsStr::new(name), OFlags::RDONLY);
                let opened = match has_openat2 {
                    true => open_beneath(at, name, flags, none),
                    false => open_by_name(at, name, flags, none),
                };
                opened.map(drop)
            };
            assert_eq!(open("file"), Ok(()));
            assert_eq!(open("symlink"), Err(Errno::LOOP));
            assert_eq!(open("none"), Err(Errno::NOENT));
            for name in ["..", "", "/etc", "../etc"] {
                assert_eq!(open(name), Err(Errno::INVAL), "{name}");
            }
        }
        std::fs::remove_dir_all(top).unwrap();
    }
}
