//! Helpers of the fuzz targets.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory, for parsers that take a path. Each input replaces the content of the last one.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    path: PathBuf,
}

impl InputFile {
    /// # Panics
    /// Without memory for the file.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it makes a system call")]
    pub fn new() -> Self {
        let file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap());
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Self { file, path }
    }

    /// The path of a file with this content.
    ///
    /// # Panics
    /// If the content cannot be written.
    pub fn write(&mut self, content: &[u8]) -> &Path {
        self.file.set_len(0).unwrap();
        self.file.seek(SeekFrom::Start(0)).unwrap();
        self.file.write_all(content).unwrap();
        &self.path
    }
}
