//! The supported file systems: how each identifies a file for as long as it exists, and which
//! changes it reports.

use std::io;
use std::os::fd::AsFd;

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC,
    XFS_SUPER_MAGIC, fstatfs,
};
use nix::sys::statvfs::fstatvfs;
use sys::handle::{Handle, file_system_uuid};

use super::mounts;
use crate::record::File;

/// Types of file handles.
const INODE_AND_GENERATION: i32 = 1;
const XFS_WIDE: i32 = 0x81;
const BTRFS: i32 = 0x4d;
/// Inode numbers of the first directory of a file system or of a subvolume.
const EXT4_FIRST: u64 = 2;
const BTRFS_FIRST: u64 = 256;

/// A supported file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Ext4,
    Xfs,
    /// A subvolume of btrfs.
    Btrfs {
        subvolume: u64,
    },
    Tmpfs,
    Overlay {
        /// Stores through memory are not reported: the upper directory's file system does not
        /// report them, or no call writes them back.
        silent: bool,
    },
}

/// The supported file systems, for messages.
pub(super) const ALL: &str = "ext4, xfs, btrfs, tmpfs, and overlays above one of these";
const UPPER: &str = "ext4, xfs, btrfs and tmpfs";
/// The options of an overlay that is never synced, on older and newer kernels.
const VOLATILE: [&str; 2] = ["volatile", "fsync=volatile"];

impl Format {
    /// The format of an open directory's file system. `None` if it is not supported.
    pub(super) fn of(directory: impl AsFd) -> io::Result<Option<Self>> {
        let kind = fstatfs(&directory)?.filesystem_type();
        let format = match kind {
            EXT4_SUPER_MAGIC => Self::Ext4,
            TMPFS_MAGIC => Self::Tmpfs,
            XFS_SUPER_MAGIC => Self::Xfs,
            BTRFS_SUPER_MAGIC => match subvolume(&Handle::of(directory, "".as_ref())?) {
                Some(subvolume) => Self::Btrfs { subvolume },
                None => return Ok(None),
            },
            OVERLAYFS_SUPER_MAGIC => Self::Overlay {
                silent: mounts::has_option(directory, &VOLATILE)?,
            },
            FsType(_) => return Ok(None),
        };
        Ok(Some(format))
    }

    /// The format of an overlay whose upper directory is on this kind of file system. The error
    /// names an unsupported file system.
    pub(super) fn above(self, magic: u64) -> Result<Self, String> {
        let Self::Overlay { .. } = self else {
            return Ok(self);
        };
        let magic = FsType(magic.try_into().unwrap_or(0));
        match magic {
            EXT4_SUPER_MAGIC | XFS_SUPER_MAGIC | BTRFS_SUPER_MAGIC => Ok(self),
            TMPFS_MAGIC => Ok(Self::Overlay { silent: true }),
            FsType(0) => {
                Err("an overlay that has no upper directory: nothing can change in it".into())
            }
            FsType(_) => Err(format!(
                "an overlay, and its upper directory on none of {UPPER}"
            )),
        }
    }

    /// Whether it reports changes when they take place, and mostly the data as well. Other file
    /// systems only report that something has changed.
    pub(super) fn exact(self) -> bool {
        self == Self::Ext4
    }

    /// Whether the file is known to be the root directory of the file system.
    pub(super) fn is_first(self, file: File) -> bool {
        match self {
            Self::Ext4 => file.inode == EXT4_FIRST,
            Self::Btrfs { .. } => file.inode == BTRFS_FIRST,
            Self::Xfs | Self::Tmpfs | Self::Overlay { .. } => false,
        }
    }

    /// Whether it does not report stores through memory.
    pub(super) fn silent(self) -> bool {
        matches!(self, Self::Tmpfs | Self::Overlay { silent: true })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs { .. } => "btrfs",
            Self::Tmpfs => "tmpfs",
            Self::Overlay { .. } => "overlay",
        }
    }

    /// An identifier of an open directory's file system that stays the same when it is mounted
    /// again. Empty if there is none.
    pub(super) fn volume(self, directory: impl AsFd) -> io::Result<Vec<u8>> {
        let mut volume = match file_system_uuid(&directory)? {
            Some(uuid) => uuid,
            // Before Linux 6.9 these file systems derive it from the UUID. xfs uses the device
            // number, which may change at a mount.
            None if matches!(self, Self::Ext4 | Self::Btrfs { .. } | Self::Tmpfs) => {
                let id = fstatvfs(&directory)?.filesystem_id();
                id.to_le_bytes().to_vec()
            }
            None => Vec::new(),
        };
        if let Self::Btrfs { subvolume } = self {
            volume.extend(subvolume.to_le_bytes());
        }
        Ok(volume)
    }

    /// Returns `None` for a file of another file system or subvolume.
    pub(super) fn file(self, handle: &Handle) -> Option<File> {
        let mut bytes = handle.bytes.as_slice();
        let file = match (self, handle.kind) {
            // Both types for xfs, because a remount changes the type.
            (Self::Ext4 | Self::Xfs, INODE_AND_GENERATION) => File {
                inode: u64::from(word(&mut bytes)?),
                generation: word(&mut bytes)?,
            },
            (Self::Xfs, XFS_WIDE) => File {
                inode: long(&mut bytes)?,
                generation: word(&mut bytes)?,
            },
            (Self::Btrfs { subvolume }, BTRFS) => {
                let inode = long(&mut bytes)?;
                (long(&mut bytes)? == subvolume).then_some(())?;
                let generation = word(&mut bytes)?;
                File { inode, generation }
            }
            (Self::Tmpfs, INODE_AND_GENERATION) => {
                let generation = word(&mut bytes)?;
                let inode = long(&mut bytes)?;
                File { inode, generation }
            }
            _ => return None,
        };
        bytes.is_empty().then_some(file)
    }

    pub(super) fn handle(self, file: File) -> Handle {
        let File { inode, generation } = file;
        let generation = generation.to_ne_bytes();
        let narrow = u32::try_from(inode).unwrap_or(0);
        let inode = inode.to_ne_bytes();
        let (kind, bytes) = match self {
            Self::Ext4 => (
                INODE_AND_GENERATION,
                [narrow.to_ne_bytes().as_slice(), &generation].concat(),
            ),
            Self::Xfs => (XFS_WIDE, [inode.as_slice(), &generation].concat()),
            Self::Btrfs { subvolume } => {
                let subvolume = subvolume.to_ne_bytes();
                let parts = [inode.as_slice(), &subvolume, &generation];
                (BTRFS, parts.concat())
            }
            Self::Tmpfs => (
                INODE_AND_GENERATION,
                [generation.as_slice(), &inode].concat(),
            ),
            // An overlay cannot open a file by handle.
            Self::Overlay { .. } => (0, Vec::new()),
        };
        Handle { kind, bytes }
    }
}

/// Whether this is the inode of a subvolume's root, which no other btrfs directory has.
pub(super) fn is_first_of_subvolume(inode: u64) -> bool {
    inode == BTRFS_FIRST
}

fn subvolume(handle: &Handle) -> Option<u64> {
    let mut bytes = handle.bytes.as_slice();
    let _inode = long(&mut bytes)?;
    long(&mut bytes)
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_ne_bytes(*first))
}

fn long(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_ne_bytes(*first))
}
