//! Checks whether a folder named by a user is a log, or can become one.

use std::fs;
use std::io;
use std::path::Path;

use super::{Error, segment};

/// The files that writers of a log keep in its folder beside segments.
const WRITER_FILES: [&str; 7] = [
    "lock",
    "compact.lock",
    "compact.tmp",
    "compact.epoch",
    "room.tmp",
    "upstream",
    "upstream.tmp",
];
/// The directory in the root of an ext4 file system.
const LOST_AND_FOUND: &str = "lost+found";

/// Checks that a folder is a log. Its writer may not have written anything yet.
///
/// # Errors
/// [`Error::NoLog`] if there is no such folder, or it is empty; [`Error::NotALog`].
pub fn check(folder: &Path) -> Result<(), Error> {
    match FolderKind::of(folder)? {
        FolderKind::Log => Ok(()),
        FolderKind::Empty => Err(Error::NoLog(folder.to_owned())),
        FolderKind::Other => Err(Error::NotALog(folder.to_owned())),
    }
}

/// Checks that a folder is a log, or an empty folder that may become one.
///
/// # Errors
/// [`Error::NoLog`] if there is no such folder; [`Error::NotALog`].
pub fn check_followed(folder: &Path) -> Result<(), Error> {
    match check(folder) {
        Err(Error::NoLog(_)) if folder.is_dir() => Ok(()),
        checked => checked,
    }
}

/// Checks that a log can be started in a folder, or that the folder has one to continue.
///
/// # Errors
/// [`Error::Occupied`]
pub fn check_new(folder: &Path) -> Result<(), Error> {
    match check(folder) {
        Err(Error::NotALog(folder)) => Err(Error::Occupied(folder)),
        Err(Error::NoLog(_)) => Ok(()),
        checked => checked,
    }
}

/// The contents of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderKind {
    /// The folder has segments, or files that writers of a log leave beside them.
    Log,
    /// The folder is empty or does not exist.
    Empty,
    Other,
}

impl FolderKind {
    fn of(folder: &Path) -> Result<Self, Error> {
        let listed = segment::open_folder(folder).and_then(|folder| segment::list(&folder));
        match listed {
            Ok(listing) if !listing.live.is_empty() => return Ok(Self::Log),
            Ok(_) => {}
            Err(Error::Io { source, .. }) => match source.kind() {
                io::ErrorKind::NotFound => return Ok(Self::Empty),
                io::ErrorKind::NotADirectory => return Ok(Self::Other),
                _ => return Err(Error::io(folder)(source)),
            },
            Err(other) => return Err(other),
        }
        let mut kind = Self::Empty;
        for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
            let name = entry.map_err(Error::io(folder))?.file_name();
            if WRITER_FILES.iter().any(|own| name == *own) {
                kind = Self::Log;
            } else if name != LOST_AND_FOUND {
                return Ok(Self::Other);
            }
        }
        Ok(kind)
    }
}
