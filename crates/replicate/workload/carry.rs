//! Carries steps out by the system calls that they name, and keeps what stays open between them.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, linkat, lremovexattr, lsetxattr, makedev,
    mkdirat, mknodat, openat, renameat_with, symlinkat, unlinkat, utimensat,
};
use sys::file_mapping::FileMapping;

use crate::data::{self, bytes};
use crate::operation::{Area, Creation, Node, Operation, Renaming, Syncing, Timestamp};
use crate::peer::Peer;

/// How many files are held open, and mapped, at most.
const MAX_OPEN: usize = 4;

/// What stays from step to step.
#[derive(Debug)]
pub(crate) struct Hands {
    root: PathBuf,
    held: Vec<File>,
    mapped: Vec<Mapped>,
    peer: Option<Peer>,
}

/// A mapping whose descriptor is closed. Its size is queried through a read-only descriptor.
#[derive(Debug)]
struct Mapped {
    map: FileMapping,
    file: File,
}

impl Hands {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            held: Vec::new(),
            mapped: Vec::new(),
            peer: None,
        }
    }

    pub(crate) fn holds_more(&self) -> bool {
        self.held.len() < MAX_OPEN
    }

    pub(crate) fn maps_more(&self) -> bool {
        self.mapped.len() < MAX_OPEN
    }

    pub(crate) fn held(&self, random: &mut Rng) -> Option<usize> {
        random.choice(0..self.held.len())
    }

    pub(crate) fn mapped(&self, random: &mut Rng) -> Option<usize> {
        random.choice(0..self.mapped.len())
    }

    /// Carries out the step. Returns the number of bytes that it reports as moved, or 0.
    pub(crate) fn carry_out(&mut self, operation: &Operation) -> io::Result<u64> {
        match operation {
            Operation::Hold { .. }
            | Operation::HeldWrite { .. }
            | Operation::HeldResize { .. }
            | Operation::HeldMode { .. }
            | Operation::Release { .. } => self.hold(operation),
            Operation::Map { .. }
            | Operation::MappedStore { .. }
            | Operation::MappedSync { .. }
            | Operation::Unmap { .. } => self.map(operation),
            Operation::Write { path, area, how } => {
                let peer = &mut self.peer;
                data::write(&self.root.join(path), *area, *how, peer)
            }
            Operation::Create { path, mode, how } => {
                create(&self.root.join(path), *mode, *how).map(|()| 0)
            }
            Operation::Sync { path, how } => sync(&self.root.join(path), *how).map(|()| 0),
            Operation::Chmod { .. }
            | Operation::Chown { .. }
            | Operation::Times { .. }
            | Operation::SetExtended { .. }
            | Operation::RemoveExtended { .. } => attributes(&self.root, operation).map(|()| 0),
            Operation::Mkdir { .. }
            | Operation::Mknod { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Rename { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. } => names(&self.root, operation).map(|()| 0),
            _ => data::carry_out(&self.root, operation),
        }
    }

    fn hold(&mut self, operation: &Operation) -> io::Result<u64> {
        match operation {
            Operation::Hold { path } => {
                self.held.push(data::open(&self.root.join(path))?);
                Ok(0)
            }
            Operation::HeldWrite { slot, area, append } => {
                let file = &self.held[*slot];
                let offset = if *append {
                    file.metadata()?.len()
                } else {
                    area.offset
                };
                data::write_at(file, &bytes(*area), offset)
            }
            Operation::HeldResize { slot, size } => self.held[*slot].set_len(*size).map(|()| 0),
            Operation::HeldMode { slot, mode } => {
                let mode = Permissions::from_mode(*mode);
                self.held[*slot].set_permissions(mode).map(|()| 0)
            }
            Operation::Release { slot } => {
                self.held.swap_remove(*slot);
                Ok(0)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn map(&mut self, operation: &Operation) -> io::Result<u64> {
        match operation {
            Operation::Map { path, length } => {
                let path = self.root.join(path);
                let map = FileMapping::new(data::open(&path)?, *length, 0)?;
                let file = openat(CWD, &path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
                let file = File::from(file);
                self.mapped.push(Mapped { map, file });
            }
            Operation::MappedStore { slot, area } => return self.mapped[*slot].store(*area),
            Operation::MappedSync { slot } => self.mapped[*slot].map.sync()?,
            Operation::Unmap { slot } => drop(self.mapped.swap_remove(*slot)),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(0)
    }
}

impl Mapped {
    /// Stores what lies inside both the mapping and the file, which may have become shorter.
    fn store(&self, area: Area) -> io::Result<u64> {
        let reach = self.file.metadata()?.len().min(self.map.len() as u64);
        let room = reach.saturating_sub(area.offset);
        let length = area.length.min(usize::try_from(room).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(0);
        }
        let at = usize::try_from(area.offset).map_err(io::Error::other)?;
        self.map.store(at, &bytes(Area { length, ..area }));
        Ok(length as u64)
    }
}

fn create(path: &Path, mode: u32, how: Creation) -> io::Result<()> {
    let more = match how {
        Creation::Open => OFlags::empty(),
        Creation::Exclusive => OFlags::EXCL,
        Creation::Truncating => OFlags::TRUNC,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | more;
    openat(CWD, path, flags, Mode::from_raw_mode(mode))?;
    Ok(())
}

fn names(root: &Path, operation: &Operation) -> io::Result<()> {
    match operation {
        Operation::Mkdir { path, mode } => {
            mkdirat(CWD, root.join(path), Mode::from_raw_mode(*mode))?;
        }
        Operation::Mknod { path, mode, what } => node(&root.join(path), *mode, *what)?,
        Operation::Symlink { path, target } => symlinkat(target, CWD, root.join(path))?,
        Operation::Link { from, to } => {
            linkat(CWD, root.join(from), CWD, root.join(to), AtFlags::empty())?;
        }
        Operation::Rename { from, to, how } => {
            let (from, to) = (root.join(from), root.join(to));
            let flags = match how {
                Renaming::Replace => RenameFlags::empty(),
                Renaming::NoReplace => RenameFlags::NOREPLACE,
                Renaming::Exchange => RenameFlags::EXCHANGE,
                Renaming::Ring => return sys::uring::rename(&c_path(&from)?, &c_path(&to)?),
            };
            renameat_with(CWD, from, CWD, to, flags)?;
        }
        Operation::Unlink { path, ring: true } => {
            sys::uring::unlink(&c_path(&root.join(path))?)?;
        }
        Operation::Unlink { path, ring: false } => {
            unlinkat(CWD, root.join(path), AtFlags::empty())?;
        }
        Operation::Rmdir { path } => unlinkat(CWD, root.join(path), AtFlags::REMOVEDIR)?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

fn node(path: &Path, mode: u32, what: Node) -> io::Result<()> {
    let (kind, device) = match what {
        Node::Fifo => (FileType::Fifo, 0),
        Node::Socket => (FileType::Socket, 0),
        // The null device, and a disk that does not exist.
        Node::Character => (FileType::CharacterDevice, makedev(1, 3)),
        Node::Block => (FileType::BlockDevice, makedev(240, 300)),
    };
    Ok(mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device)?)
}

fn attributes(root: &Path, operation: &Operation) -> io::Result<()> {
    match operation {
        Operation::Chmod { path, mode } => {
            let mode = Mode::from_raw_mode(*mode);
            chmodat(CWD, root.join(path), mode, AtFlags::empty())?;
        }
        Operation::Chown { path, uid, gid } => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(CWD, root.join(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Operation::Times { path, modified } => {
            utimensat(
                CWD,
                root.join(path),
                &timestamps(*modified),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        Operation::SetExtended {
            path,
            name,
            length,
            seed,
        } => {
            let value = bytes(Area {
                offset: 0,
                length: *length,
                seed: *seed,
            });
            let path = root.join(path);
            lsetxattr(path, name.as_str(), &value, XattrFlags::empty())?;
        }
        Operation::RemoveExtended { path, name } => {
            lremovexattr(root.join(path), name.as_str())?;
        }
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

fn timestamps(modified: Option<Timestamp>) -> Timestamps {
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    };
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    Timestamps {
        last_access: omit,
        last_modification: modified.map_or(now, |(seconds, nanoseconds)| Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        }),
    }
}

fn sync(path: &Path, how: Syncing) -> io::Result<()> {
    let file = data::open(path)?;
    match how {
        Syncing::File => file.sync_all(),
        Syncing::Data => file.sync_data(),
        Syncing::System => Ok(rustix::fs::syncfs(&file)?),
        Syncing::Ring => sys::uring::fsync(&file),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
