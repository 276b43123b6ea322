//! Reads the files of a rotation while they are written. A file ends when the next one exists and all bytes are read.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::captures::{Input, OpenResult};
use super::files::{by_name, capture_names, uncompressed};

/// The interval between checks for more bytes or another file.
const LOOK: Duration = Duration::from_millis(200);

/// The existing and future captures of a directory, in the order of their names.
#[derive(Debug)]
pub(super) struct Rotation<'a> {
    directory: PathBuf,
    last: Option<OsString>,
    /// Set to stop waiting for new files.
    end: &'a AtomicBool,
    failed: bool,
}

/// A file that may grow until the next file exists.
#[derive(Debug)]
struct Tail<'a> {
    file: File,
    directory: PathBuf,
    name: OsString,
    end: &'a AtomicBool,
    is_complete: bool,
}

impl<'a> Rotation<'a> {
    pub(super) fn new(directory: &Path, end: &'a AtomicBool) -> Self {
        Self {
            directory: directory.to_owned(),
            last: None,
            end,
            failed: false,
        }
    }
}

/// The first capture after the one with this name, if it exists yet.
fn successor(directory: &Path, name: Option<&OsString>) -> io::Result<Option<OsString>> {
    let names = capture_names(directory).map_err(io::Error::other)?;
    // The compressed form of a capture is the same capture.
    let follows = |next: &OsString| {
        name.is_none_or(|name| by_name(uncompressed(next), uncompressed(name)).is_gt())
    };
    // Opening a pipe would block, even after a signal.
    let is_file = |name: &OsString| {
        let found = fs::metadata(directory.join(name));
        found.map_or_else(
            |error| error.kind() != ErrorKind::NotFound,
            |found| found.is_file(),
        )
    };
    Ok(names
        .into_iter()
        .find(|name| follows(name) && is_file(name)))
}

impl<'a> Iterator for Rotation<'a> {
    type Item = OpenResult<'a>;

    fn next(&mut self) -> Option<OpenResult<'a>> {
        while !self.failed {
            // Read before the check: a file created between the two may remain unread.
            let ends = self.end.load(Ordering::Relaxed);
            match successor(&self.directory, self.last.as_ref()) {
                Ok(Some(name)) => {
                    let path = self.directory.join(&name);
                    self.last = Some(name.clone());
                    let file = match File::open(&path) {
                        // The capture program has removed its oldest file.
                        Err(error) if error.kind() == ErrorKind::NotFound => continue,
                        file => file,
                    };
                    let (directory, end) = (self.directory.clone(), self.end);
                    let input = file.map(|file| -> Input<'a> {
                        Box::new(Tail {
                            file,
                            directory,
                            name,
                            end,
                            is_complete: false,
                        })
                    });
                    return Some((Some(path), input));
                }
                Ok(None) if ends => return None,
                Ok(None) => thread::sleep(LOOK),
                Err(error) => {
                    self.failed = true;
                    return Some((None, Err(error)));
                }
            }
        }
        None
    }
}

impl Read for Tail<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let came = self.file.read(into)?;
            if came > 0 || self.is_complete || into.is_empty() {
                return Ok(came);
            }
            // Bytes written between the last read and this check must still be read.
            self.is_complete = self.end.load(Ordering::Relaxed)
                || successor(&self.directory, Some(&self.name))?.is_some();
            if !self.is_complete {
                thread::sleep(LOOK);
            }
        }
    }
}
