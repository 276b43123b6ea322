//! Where in the kernel it was seen what happens.

use super::Capture;

/// As `enum hook` of the programs, by their bits; what only asks for an epoch has no name.
const NAMES: [&str; 14] = [
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
    "",
    "security_inode",
    "vfs_xattr",
];
const WRITE: &str = NAMES[0];
const TIME: &str = NAMES[7];

impl Capture {
    /// Where the kernel showed what has happened since the last call.
    pub(crate) fn take_hooks(&mut self) -> Vec<&'static str> {
        let seen = std::mem::take(&mut self.hooks);
        let functions = self.programs.functions();
        let names = NAMES.into_iter().enumerate();
        names
            .filter(|(bit, name)| seen >> bit & 1 == 1 && !name.is_empty())
            .map(|(_, name)| match name {
                WRITE => functions.write.unwrap_or(WRITE),
                TIME if functions.changes() => "current_time",
                name => name,
            })
            .collect()
    }

    /// What kind of file system the tree is on.
    pub(crate) fn file_system(&self) -> &'static str {
        self.deriver.source.format().name()
    }

    /// Whether what a write has put there is copied where it is put.
    pub(crate) fn copies(&self) -> bool {
        self.deriver.source.format().exact() || self.programs.functions().write.is_some()
    }
}
