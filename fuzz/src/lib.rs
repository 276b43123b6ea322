//! Helpers of the fuzz targets.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};

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
        // SAFETY: the name is a C string, and the descriptor is new and owned by the file alone.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC);
            assert!(descriptor >= 0, "memfd_create");
            File::from_raw_fd(descriptor)
        };
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
