//! A file on a disk that may be full. Each chunk is stored completely or not at all, and space for the end of the file
//! is always reserved.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use super::format::Chunk;
use crate::sink::{Error, STANDARD_OUTPUT};

/// The destination of chunks.
pub(super) struct Store {
    path: PathBuf,
    output: Output,
    /// Bytes of the complete chunks.
    length: u64,
}

enum Output {
    /// A file under a temporary name until it is complete.
    File {
        file: File,
        now: PathBuf,
    },
    Stream(File),
}

impl Store {
    /// Creates a file that gets its final name when it is complete.
    pub(super) fn file(path: PathBuf) -> Result<Self, Error> {
        let mut now = OsString::from(&path);
        now.push(".tmp");
        let now = PathBuf::from(now);
        let file = create_alone(&now).map_err(Error::io(&path))?;
        let Some(file) = file else {
            return Err(Error::InUse {
                path: path.display().to_string(),
            });
        };
        Ok(Self {
            path,
            output: Output::File { file, now },
            length: 0,
        })
    }

    /// Opens standard output, a pipe or a device.
    pub(super) fn stream(path: &Path) -> Result<Self, Error> {
        let opened = if path == Path::new(STANDARD_OUTPUT) {
            // A chunk is written in one call. `Stdout` would split it at the last newline.
            io::stdout().as_fd().try_clone_to_owned().map(File::from)
        } else {
            OpenOptions::new().write(true).open(path)
        };
        Ok(Self {
            path: path.to_owned(),
            output: Output::Stream(opened.map_err(Error::io(path))?),
            length: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Appends a chunk and reserves space for the end after it. After an error the file is unchanged.
    pub(super) fn commit(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let bytes = &chunk.bytes;
        match &mut self.output {
            Output::Stream(stream) => stream.write_all(bytes),
            Output::File { file, .. } => reserve(file, self.length, bytes.len() + chunk.tail)
                // A partially written chunk does not count: the end overwrites it and truncates the file.
                .and_then(|()| file.write_all_at(bytes, self.length)),
        }
        .map_err(Error::io(&self.path))?;
        self.length += u64::try_from(bytes.len()).unwrap_or(0);
        Ok(())
    }

    /// Writes the end, releases the reserved space, and gives the file its final name.
    pub(super) fn complete(&mut self, tail: &[u8]) -> Result<(), Error> {
        let Output::File { file, now } = &mut self.output else {
            let tail = Chunk {
                bytes: tail.to_vec(),
                ..Chunk::default()
            };
            return self.commit(&tail);
        };
        let end = self.length + u64::try_from(tail.len()).unwrap_or(0);
        file.write_all_at(tail, self.length)
            .and_then(|()| file.set_len(end))
            .and_then(|()| fs::rename(now, &self.path))
            .map_err(Error::io(&self.path))?;
        self.length = end;
        Ok(())
    }

    /// Removes an empty file.
    pub(super) fn discard(&mut self) {
        if let Output::File { now, .. } = &self.output {
            let _ = fs::remove_file(now);
        }
    }
}

/// Creates a file or empties one left by another run, and locks it until it is closed. Returns `None` if a process has
/// it open in the same way.
fn create_alone(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    // Truncate only after taking the lock, because the file may belong to another run.
    options.write(true).create(true).truncate(false);
    loop {
        let file = options.open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if has_no_locks(&error) => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        // Between the two calls, another run may have renamed the file.
        let named = fs::metadata(path)
            .ok()
            .map(|named| (named.dev(), named.ino()));
        let own = file.metadata()?;
        if named == Some((own.dev(), own.ino())) {
            file.set_len(0)?;
            return Ok(Some(file));
        }
    }
}

/// Whether a file system has no locks, such as NFS without a lock manager.
fn has_no_locks(error: &io::Error) -> bool {
    let no_locks = Errno::ENOLCK as i32;
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(no_locks)
}

/// Reserves disk blocks from this offset on, if the file system supports it.
fn reserve(file: &File, from: u64, length: usize) -> io::Result<()> {
    let (Ok(from), Ok(length)) = (i64::try_from(from), i64::try_from(length)) else {
        return Ok(());
    };
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, length) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.path)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
