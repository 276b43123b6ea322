//! What a tree takes of a disk, and what a disk has left. An estimate: a file system has structures of its own, and
//! other programs write to it as well.

use std::io;
use std::os::fd::AsFd;

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs,
};
use nix::sys::statvfs::fstatvfs;

use crate::contents::{Bytes, Contents, Extents};
use crate::record::Kind;
use crate::tree::{Node, Tree};

/// What a file takes at least, and what its bytes are counted in.
pub(crate) const BLOCK: u64 = 4096;
/// The largest file that btrfs has among its names.
const MAX_INLINE: u64 = 2048;

/// Bytes and files, needed or left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) bytes: u64,
    /// Files of all kinds.
    pub(crate) files: u64,
}

impl Space {
    /// What is left on the file system of an open directory, for the calling process.
    pub(crate) fn available(directory: impl AsFd) -> io::Result<Self> {
        let free = fstatvfs(&directory)?;
        let ext4 = fstatfs(&directory)?.filesystem_type() == EXT4_SUPER_MAGIC;
        let blocks = match ext4 && nix::unistd::geteuid().is_root() {
            // It keeps some blocks for root.
            true => free.blocks_free(),
            false => free.blocks_available(),
        };
        Ok(Self {
            // Zero of a tmpfs without a limit.
            bytes: match free.blocks() {
                0 => u64::MAX,
                _ => blocks.saturating_mul(free.fragment_size()),
            },
            // Zero where names take room as they come.
            files: match free.files() {
                0 => u64::MAX,
                _ => free.files_available(),
            },
        })
    }

    /// What files of a tree take that `makes` wants.
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

/// What a new file takes in blocks for the bytes that the log has of it.
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

/// How a file system takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// As many as are written.
    Plain,
    /// As many as are written, but a copy of a file shares its blocks.
    Shared,
    /// As shared, and small files have no blocks of their own.
    Packed,
    /// Fewer, perhaps: it may compress, or is not known.
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

    /// What a new file takes for the bytes that the log has of it; nothing where that is not known.
    pub(crate) fn bytes(self, node: &Node, extents: Option<&Extents>) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Packed if node.size <= MAX_INLINE => node.size,
            Self::Plain | Self::Shared | Self::Packed => in_blocks(node, extents),
        }
    }
}
