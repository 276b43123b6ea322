//! Segments as files: their names, their headers, and which of those in a folder make the log.
//!
//! A base is a segment that a compaction has written. From the moment it has its name, it replaces
//! all segments that begin at or before its last record. Those may be removed.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise};

use super::{Error, frame};
use crate::folder::Folder;

const HEADER_BYTES: usize = 52;
pub(super) const HEADER: u64 = HEADER_BYTES as u64;
const MAGIC: [u8; 8] = *b"lrreplg1";
/// The unit in which file systems write a file, or a multiple of it.
const BLOCK: u64 = 4096;

/// The identity of the log that a segment belongs to, drawn at random when the log begins.
pub type Id = [u8; 16];

/// The beginning and the identity of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    pub id: Id,
    /// The number of the first record.
    pub first: u64,
    /// If the log was compacted, the number of the record of the epoch up to which it was folded.
    /// Earlier records have other numbers than they originally had. Otherwise 0.
    pub folded: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: Id,
    /// The number of the first record.
    pub(super) first: u64,
    /// For a base, and for the first segment of a copy of one, the number of the record of the
    /// epoch up to which it was folded. Otherwise 0.
    pub(super) folded: u64,
    /// For a base, the number of its last record; otherwise 0.
    pub(super) last: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.id);
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.folded.to_le_bytes());
        bytes.extend(self.last.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Returns `None` if the bytes are not a header.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (said, check) = bytes.split_last_chunk::<4>()?;
        let (magic, said) = said.split_first_chunk::<8>()?;
        let (id, said) = said.split_first_chunk::<16>()?;
        let (first, said) = said.split_first_chunk::<8>()?;
        let (folded, last) = said.split_first_chunk::<8>()?;
        let whole = crc32c::crc32c(&bytes[..bytes.len() - 4]) == u32::from_le_bytes(*check);
        let first = u64::from_le_bytes(*first);
        let known = *magic == MAGIC && (1..u64::MAX / 2).contains(&first);
        (whole && known).then_some(Self {
            id: *id,
            first,
            folded: u64::from_le_bytes(*folded),
            last: u64::from_le_bytes(last.try_into().ok()?),
        })
    }
}

/// A segment, identified by its file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) place: Where,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Where {
    /// Written by a compaction. Ends with this record.
    Base { last: u64 },
    /// Written by a writer. Begins with this record.
    Written { first: u64 },
}

/// The segments of the log in order, and those that a base has replaced.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) live: Vec<Segment>,
    pub(super) replaced: Vec<Segment>,
}

/// # Errors
/// As [`Folder::open`], with the path.
pub(super) fn open_folder(path: &Path) -> Result<Folder, Error> {
    Folder::open(path).map_err(Error::io(path))
}

pub(super) fn list(folder: &Folder) -> Result<Listing, Error> {
    let names = folder.names().map_err(Error::io(folder.path()))?;
    let segment = |name: &OsStr| {
        let place = place(name)?;
        let name = name.to_str()?.to_owned();
        Some(Segment { name, place })
    };
    let mut all: Vec<_> = names.iter().filter_map(|name| segment(name)).collect();
    all.sort_by_key(|segment| segment.place);
    let base = all.iter().rev().find_map(|segment| match segment.place {
        Where::Base { last } => Some(last),
        Where::Written { .. } => None,
    });
    let (live, replaced) = all.into_iter().partition(|segment| match segment.place {
        Where::Base { last } => Some(last) == base,
        Where::Written { first } => base.is_none_or(|last| first > last),
    });
    Ok(Listing { live, replaced })
}

fn place(name: &OsStr) -> Option<Where> {
    let path = Path::new(name);
    let number = path.file_stem()?.to_str()?.parse().ok()?;
    match path.extension()?.to_str()? {
        "base" => Some(Where::Base { last: number }),
        "log" => Some(Where::Written { first: number }),
        _ => None,
    }
}

pub(super) fn written(first: u64) -> String {
    format!("{first:020}.log")
}

pub(super) fn base(last: u64) -> String {
    format!("{last:020}.base")
}

/// Creates a file that only its owner can read, or truncates it.
pub(super) fn create(folder: &Folder, name: &str, header: &Header) -> Result<File, Error> {
    let error = in_folder(folder, name);
    let file = folder.file(name, OFlags::RDWR | OFlags::CREATE);
    let mut file = file.map_err(&error)?;
    file.set_len(0).map_err(&error)?;
    file.write_all(&header.encode()).map_err(&error)?;
    Ok(file)
}

/// Returns `None` for a file whose header is incomplete after a crash.
pub(super) fn header(path: &Path, file: &File) -> Result<Option<Header>, Error> {
    let error = Error::io(path);
    let mut bytes = [0; HEADER_BYTES];
    let size = file.metadata().map_err(&error)?.len();
    if size < HEADER {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, 0).map_err(&error)?;
    if let Some(header) = Header::decode(&bytes) {
        return Ok(Some(header));
    }
    if is_unfinished(path, file, 0, Some(bytes.len()))? {
        return Ok(None);
    }
    Err(Error::damaged(path, 0, "no header of a segment"))
}

pub(super) fn sync_folder(folder: &Folder) -> Result<(), Error> {
    folder.sync().map_err(Error::io(folder.path()))
}

/// Drops the cached pages of a segment, so that further reads return what the disk has. After a
/// failed sync, the page cache may have data that will never be written.
/// written.
pub(super) fn settle(folder: &Folder, name: &str) -> Result<(), Error> {
    let error = in_folder(folder, name);
    let file = folder.file(name, OFlags::RDONLY).map_err(&error)?;
    file.sync_all().map_err(&error)?;
    // A file system that does not support this has no such cache either.
    let _kept = fadvise(&file, 0, None, Advice::DontNeed);
    Ok(())
}

/// Whether damage at an offset is what a power failure leaves of unsynced writes. A file system may
/// have written one block and not the block before it.
pub(super) fn is_unfinished(
    path: &Path,
    file: &File,
    offset: u64,
    end: Option<usize>,
) -> Result<bool, Error> {
    let error = Error::io(path);
    let size = file.metadata().map_err(&error)?.len();
    if frame::is_torn(offset, end, zeros(path, file, size)?, size) {
        return Ok(true);
    }
    let mut block = offset - offset % BLOCK;
    while block < frame::end_of(offset, end).min(size) {
        let to = (block + BLOCK).min(size);
        let mut bytes = vec![0; usize::try_from(to - block).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, block).map_err(&error)?;
        let last = bytes.iter().rposition(|byte| *byte != 0);
        let zeros = last.map_or(block, |last| block + last as u64 + 1);
        if frame::is_torn(offset, end, zeros, to) {
            return Ok(true);
        }
        block = to;
    }
    Ok(false)
}

/// The offset at which the zeros at the end of the file begin.
fn zeros(path: &Path, file: &File, size: u64) -> Result<u64, Error> {
    const STEP: u64 = 64 << 10;
    let error = Error::io(path);
    let mut end = size;
    let mut bytes = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(STEP);
        bytes.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
        file.read_exact_at(&mut bytes, start).map_err(&error)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Removes a segment that is not needed. A missing file is not an error.
pub(super) fn remove(folder: &Folder, name: &str) -> Result<(), Error> {
    folder.remove(name).map_err(in_folder(folder, name))
}

/// Locks the log for changes until the file is dropped.
pub(super) fn lock(folder: &Folder, name: &str) -> Result<File, Error> {
    folder.lock(name).map_err(|error| match error {
        TryLockError::WouldBlock => Error::Busy(folder.path().to_owned()),
        TryLockError::Error(source) => in_folder(folder, name)(source),
    })
}

/// Whether a file with this name exists.
pub(super) fn is_there(folder: &Folder, name: &str) -> Result<bool, Error> {
    match folder.stat(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(in_folder(folder, name)(error)),
    }
}

/// Maps an error of a file in the folder.
pub(super) fn in_folder(folder: &Folder, name: &str) -> impl Fn(io::Error) -> Error {
    let path = folder.path().join(name);
    move |source| Error::Io {
        path: path.clone(),
        source,
    }
}
