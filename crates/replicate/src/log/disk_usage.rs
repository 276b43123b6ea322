//! Reports how much disk space a log takes, how far back it goes, and up to which epoch it can be
//! folded. The caller that compacts makes the decisions.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::Error;
use super::folder::check;
use super::open::Open;
use super::reader::Reader;
use super::segment::{self, Segment, Where};
use super::writer::{Options, Writer};
use crate::folder::Folder;
use crate::record::Entry;

/// The name of a file beside a base. It contains the number of the base's last record and the epoch
/// that the base was folded up to, which no header contains.
const BASE_FILE: &str = "compact.epoch";
/// The largest size of that file, which contains two numbers, in bytes.
const MAX_FILE: u64 = 64;
/// How much space [`try_room`] probes for, in bytes.
const PROBE_BYTES: u64 = 4 << 20;

/// The disk usage of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    pub bytes: u64,
    /// The bytes of segments that were folded already.
    pub base: u64,
    /// The first epoch of the log, or `None` if it has none or it is unknown.
    pub first_epoch: Option<u64>,
}

impl DiskUsage {
    /// # Errors
    /// [`Error::Io`]
    pub fn of(folder: &Path) -> Result<Self, Error> {
        let folder = Arc::new(segment::open_folder(folder)?);
        let live = segment::list(&folder)?.live;
        let mut stored = Self {
            first_epoch: first_epoch(&folder, live.first())?,
            ..Self::default()
        };
        for segment in &live {
            let length = length_of(&folder, &segment.name)?;
            stored.bytes += length;
            if let Where::Base { .. } = segment.place {
                stored.base += length;
            }
        }
        Ok(stored)
    }
}

/// The last epoch that the log can be folded up to while this many bytes after it stay as they are.
/// `None` if there is no such epoch after the base.
///
/// # Errors
/// Those of reading segments.
pub fn foldable(folder: &Path, stays: u64) -> Result<Option<u64>, Error> {
    let folder = Arc::new(segment::open_folder(folder)?);
    let mut live = segment::list(&folder)?.live;
    // The last segment is still being written.
    let mut behind = match live.pop() {
        Some(last) => length_of(&folder, &last.name)?,
        None => return Ok(None),
    };
    while let Some(segment) = live.pop() {
        let found = match behind >= stays {
            true => last_epoch(&folder, &segment)?,
            false => None,
        };
        if found.is_some() {
            return Ok(found);
        }
        behind += length_of(&folder, &segment.name)?;
    }
    Ok(None)
}

/// Ends the last segment of a log that has no writer, so that all of it can be folded. Returns
/// false if the log has a writer.
///
/// # Errors
/// [`Error::Io`], also if there is no log; those of [`Writer::open`].
pub fn seal(folder: &Path) -> Result<bool, Error> {
    check(folder)?;
    if Reader::open(folder)?.id()?.is_none() {
        return Err(Error::NoLog(folder.to_owned()));
    }
    match Writer::open(folder, Options::default()) {
        Err(Error::Busy(_)) => Ok(false),
        opened => opened?.seal().map(|()| true),
    }
}

/// Tests whether a little more can be written to the log's disk.
///
/// # Errors
/// [`Error::Io`]
pub fn try_room(folder: &Path) -> Result<(), Error> {
    const NAME: &str = "room.tmp";
    let error = Error::io(folder);
    let folder = segment::open_folder(folder)?;
    let mut file = folder.replace(NAME).map_err(&error)?;
    let tried = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PROBE_BYTES) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; usize::try_from(PROBE_BYTES).unwrap_or_default()];
            file.write_all(&zeros).and_then(|()| file.sync_all())
        }
        tried => tried.map_err(io::Error::from),
    };
    segment::remove(&folder, NAME)?;
    tried.map_err(error)
}

/// The length of a file in bytes, or 0 if it is gone.
pub(super) fn length_of(folder: &Folder, name: &str) -> Result<u64, Error> {
    match folder.stat(name) {
        Ok(there) => Ok(there.st_size.cast_unsigned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(segment::in_folder(folder, name)(error)),
    }
}

/// Writes the epoch that a base was folded up to. `last` is the number of the base's last record.
pub(super) fn say(folder: &Folder, last: u64, epoch: u64) -> io::Result<()> {
    writeln!(folder.replace(BASE_FILE)?, "{last} {epoch}")
}

fn read_base(folder: &Folder) -> io::Result<String> {
    let mut said = String::new();
    let file = folder.file(BASE_FILE, OFlags::RDONLY)?;
    file.take(MAX_FILE).read_to_string(&mut said)?;
    Ok(said)
}

fn first_epoch(folder: &Arc<Folder>, first: Option<&Segment>) -> Result<Option<u64>, Error> {
    match first {
        Some(Segment {
            place: Where::Base { last },
            ..
        }) => {
            let said = read_base(folder).unwrap_or_default();
            let said = said.trim_end().split_once(' ');
            let epoch = said.filter(|(of, _)| of.parse() == Ok(*last));
            Ok(epoch.and_then(|(_, epoch)| epoch.parse().ok()))
        }
        // Epochs are numbered from 1, but a copy may begin with the base of its source.
        Some(written) => {
            let whole = |open: Open| open.header.first == 1 && open.header.folded == 0;
            match Open::new(folder, written) {
                Ok(open) => Ok(open.is_some_and(whole).then_some(1)),
                // The segment was folded since it was listed.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        }
        None => Ok(None),
    }
}

/// The last epoch in a segment that was not folded. A base also contains what followed the epoch in
/// its last segment.
fn last_epoch(folder: &Arc<Folder>, segment: &Segment) -> Result<Option<u64>, Error> {
    let Some(mut open) = Open::new(folder, segment)? else {
        return Ok(None);
    };
    let folded = open.header.folded;
    if folded != 0 && folded == open.header.last {
        return Ok(None);
    }
    let mut last = None;
    while let Some(located) = open.next()? {
        let record = located.record;
        if let Entry::Epoch { number } = record.entry
            && record.number > folded
        {
            last = Some(number);
        }
    }
    Ok(last)
}
