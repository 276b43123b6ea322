//! Estimates the disk space that a tree takes and that a disk has left. It is an estimate, because
//! a file system has structures of its own, and other programs also write to it.

use std::io;
use std::os::fd::AsFd;

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs,
};
use nix::sys::statvfs::fstatvfs;

use crate::contents::{Bytes, Contents, Extents};
use crate::record::Kind;
use crate::tree::{Node, Tree};

/// The minimum size of a file, and the unit of its bytes.
pub(crate) const BLOCK: u64 = 4096;
/// The largest file whose bytes btrfs stores in its metadata.
const MAX_INLINE: u64 = 2048;

/// Bytes and files that are needed or available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) bytes: u64,
    /// The number of files of all kinds.
    pub(crate) files: u64,
}

impl Space {
    /// The space available to the calling process on the file system of an open directory.
    pub(crate) fn available(directory: impl AsFd) -> io::Result<Self> {
        let free = fstatvfs(&directory)?;
        let ext4 = fstatfs(&directory)?.filesystem_type() == EXT4_SUPER_MAGIC;
        let blocks = match ext4 && nix::unistd::geteuid().is_root() {
            // The file system reserves some blocks for root.
            true => free.blocks_free(),
            false => free.blocks_available(),
        };
        Ok(Self {
            // Zero blocks mean a tmpfs without a limit.
            bytes: match free.blocks() {
                0 => u64::MAX,
                _ => blocks.saturating_mul(free.fragment_size()),
            },
            // Zero files mean that inodes are allocated on demand.
            files: match free.files() {
                0 => u64::MAX,
                _ => free.files_available(),
            },
        })
    }

    /// The space of the files of a tree that `makes` selects.
    pub(crate) fn of_tree(
        (tree, contents): (&Tree, &Contents),
        allocation: Allocation,
        makes: impl Fn(&Kind) -> bool,
    ) -> Self {
        let mut needs = Self::default();
        for (file, node) in tree.files() {
            if !node.names.is_empty() && makes(&node.kind) {
                needs.files += 1;
                let bytes = allocation.bytes(node, contents.get(file));
                needs.bytes = needs.bytes.saturating_add(bytes);
            }
        }
        needs
    }

    pub(crate) fn fits(self, left: Self) -> bool {
        self.bytes <= left.bytes && self.files <= left.files
    }
}

/// The allocated size of a new file for the bytes that the log has of it.
fn in_blocks(node: &Node, extents: Option<&Extents>) -> u64 {
    if node.kind == Kind::Directory {
        return BLOCK;
    }
    let (mut needs, mut reached) = (0_u64, 0);
    for (start, end, bytes) in extents.into_iter().flat_map(Extents::iter) {
        let (start, end) = (reached.max(start / BLOCK * BLOCK), end.min(node.size));
        if start < end && !matches!(bytes, Bytes::Hole) {
            reached = end.next_multiple_of(BLOCK);
            needs = needs.saturating_add(reached - start);
        }
    }
    needs
}

/// How a file system allocates bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// As many as are written.
    Plain,
    /// As many as are written, but a copy of a file shares its blocks.
    Shared,
    /// As `Shared`, and small files have no blocks of their own.
    Packed,
    /// Possibly fewer, because it may compress, or its behaviour is unknown.
    Unknown,
}

impl Allocation {
    pub(crate) fn of(directory: impl AsFd) -> io::Result<Self> {
        Ok(match fstatfs(&directory)?.filesystem_type() {
            EXT4_SUPER_MAGIC | TMPFS_MAGIC => Self::Plain,
            XFS_SUPER_MAGIC => Self::Shared,
            BTRFS_SUPER_MAGIC if !crate::capture::compresses(&directory)? => Self::Packed,
            _ => Self::Unknown,
        })
    }

    /// The space of a new file for the bytes that the log has of it, or zero if that is unknown.
    pub(crate) fn bytes(self, node: &Node, extents: Option<&Extents>) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Packed if node.size <= MAX_INLINE => node.size,
            Self::Plain | Self::Shared | Self::Packed => in_blocks(node, extents),
        }
    }
}
