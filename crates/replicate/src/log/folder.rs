//! Whether a folder that somebody has named is a log, or can become one.

use std::fs;
use std::io;
use std::path::Path;

use super::{Error, segment};

/// What writers of a log have in its folder beside segments.
const WRITER_FILES: [&str; 7] = [
    "lock",
    "compact.lock",
    "compact.tmp",
    "compact.epoch",
    "room.tmp",
    "upstream",
    "upstream.tmp",
];
/// What the root of an ext4 has.
const LOST_AND_FOUND: &str = "lost+found";

/// Whether a folder is a log, of which a writer may have written nothing yet.
///
/// # Errors
/// [`Error::NoLog`] where there is no such folder, or an empty one; [`Error::NotALog`].
pub fn check(folder: &Path) -> Result<(), Error> {
    match FolderKind::of(folder)? {
        FolderKind::Log => Ok(()),
        FolderKind::Empty => Err(Error::NoLog(folder.to_owned())),
        FolderKind::Other => Err(Error::NotALog(folder.to_owned())),
    }
}

/// Whether a folder is a log, or an empty folder that may become one.
///
/// # Errors
/// [`Error::NoLog`] where there is no such folder; [`Error::NotALog`].
pub fn check_followed(folder: &Path) -> Result<(), Error> {
    match check(folder) {
        Err(Error::NoLog(_)) if folder.is_dir() => Ok(()),
        checked => checked,
    }
}

/// Whether a log can be begun in a folder, or is there to be continued.
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

/// What a folder has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderKind {
    /// Segments, or what writers of a log leave beside them.
    Log,
    /// It is empty, or not there.
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
