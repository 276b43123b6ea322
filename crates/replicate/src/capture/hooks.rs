//! Where in the kernel it was seen what happens.

use super::Capture;

/// As `enum hook` of the programs, by their bits; what only asks for an epoch has no name.
const NAMES: [&str; 11] = [
    "ext4_write_end",
    "ext4_truncate",
    "ext4_fallocate",
    "ext4_inode",
    "writeback_dirty_folio",
    "iomap_dio",
    "mmap",
    "inode_set_ctime",
    "xfs_file_buffered_write",
    "io_uring_complete",
    "sys_exit",
];

impl Capture {
    /// Where the kernel showed what has happened since the last call.
    pub(crate) fn take_hooks(&mut self) -> Vec<&'static str> {
        let seen = std::mem::take(&mut self.hooks);
        let names = NAMES.into_iter().enumerate();
        names
            .filter(|(bit, _)| seen >> bit & 1 == 1)
            .map(|(_, name)| name)
            .collect()
    }

    /// What kind of file system the tree is on.
    pub(crate) fn file_system(&self) -> &'static str {
        self.deriver.source.format().name()
    }

    /// Whether that tells of each change what it is.
    pub(crate) fn exact(&self) -> bool {
        self.deriver.source.format().exact()
    }
}
