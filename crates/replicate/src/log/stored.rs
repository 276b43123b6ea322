//! What a log takes of its disk, how far back it goes, and up to which epoch it can be folded. Decides
//! nothing: who compacts does.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Error;
use super::open::Open;
use super::reader::Reader;
use super::segment::{self, Segment, Where};
use super::writer::{Options, Writer};
use crate::record::Entry;

/// Beside a base: the number of its last record, and the epoch that it was folded up to, which no header says.
const FOLDED: &str = "compact.epoch";
/// What [`try_room`] looks for, in bytes.
const ROOM: u64 = 4 << 20;

/// What a log takes of its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub bytes: u64,
    /// Those of them that were folded already.
    pub base: u64,
    /// The first epoch, where there is one; none if that is not known.
    pub first_epoch: Option<u64>,
}

impl Stored {
    /// # Errors
    /// [`Error::Io`]
    pub fn of(folder: &Path) -> Result<Self, Error> {
        let live = segment::list(folder)?.live;
        let mut stored = Self {
            first_epoch: first_epoch(folder, live.first())?,
            ..Self::default()
        };
        for segment in &live {
            let length = length_of(&segment.path)?;
            stored.bytes += length;
            if let Where::Base { .. } = segment.place {
                stored.base += length;
            }
        }
        Ok(stored)
    }
}

/// The last epoch that the log can be folded up to where so many bytes stay behind it as they are; none if there is
/// none behind what was folded already.
///
/// # Errors
/// Those of reading segments.
pub fn foldable(folder: &Path, stays: u64) -> Result<Option<u64>, Error> {
    let mut live = segment::list(folder)?.live;
    // The last one is still written.
    let mut behind = match live.pop() {
        Some(last) => length_of(&last.path)?,
        None => return Ok(None),
    };
    while let Some(segment) = live.pop() {
        let found = match behind >= stays {
            true => last_epoch(&segment)?,
            false => None,
        };
        if found.is_some() {
            return Ok(found);
        }
        behind += length_of(&segment.path)?;
    }
    Ok(None)
}

/// Ends the last segment of a log that nobody writes, so that all of it can be folded. False: somebody writes it.
///
/// # Errors
/// [`Error::Io`], also if there is no log; those of [`Writer::open`].
pub fn seal(folder: &Path) -> Result<bool, Error> {
    if Reader::open(folder)?.id()?.is_none() {
        let none = io::Error::new(io::ErrorKind::NotFound, "there is no log");
        return Err(Error::io(folder)(none));
    }
    match Writer::open(folder, Options::default()) {
        Err(Error::Busy(_)) => Ok(false),
        opened => opened?.seal().map(|()| true),
    }
}

/// Tries whether a little more can be written to the disk of a log.
///
/// # Errors
/// [`Error::Io`]
pub fn try_room(folder: &Path) -> Result<(), Error> {
    let path = folder.join("room.tmp");
    let error = Error::io(folder);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = file.open(&path).map_err(&error)?;
    let tried = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, ROOM) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; usize::try_from(ROOM).unwrap_or_default()];
            file.write_all(&zeros).and_then(|()| file.sync_all())
        }
        tried => tried.map_err(io::Error::from),
    };
    segment::remove(&path)?;
    tried.map_err(error)
}

/// Of a file that may be gone by now: then none.
pub(super) fn length_of(path: &Path) -> Result<u64, Error> {
    match fs::metadata(path) {
        Ok(there) => Ok(there.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::io(path)(error)),
    }
}

/// Says which epoch a base was folded up to that ends with this record.
pub(super) fn say(folder: &Path, last: u64, epoch: u64) -> io::Result<()> {
    fs::write(folder.join(FOLDED), format!("{last} {epoch}\n"))
}

fn first_epoch(folder: &Path, first: Option<&Segment>) -> Result<Option<u64>, Error> {
    match first {
        Some(Segment {
            place: Where::Base { last },
            ..
        }) => {
            let said = fs::read_to_string(folder.join(FOLDED)).unwrap_or_default();
            let said = said.trim_end().split_once(' ');
            let epoch = said.filter(|(of, _)| of.parse() == Ok(*last));
            Ok(epoch.and_then(|(_, epoch)| epoch.parse().ok()))
        }
        // A log's epochs are counted from one on; a copy may begin with what its source was folded to.
        Some(written) => {
            let whole = |open: Open| open.header.first == 1 && open.header.folded == 0;
            match Open::new(written) {
                Ok(open) => Ok(open.is_some_and(whole).then_some(1)),
                // Folded since it was listed.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        }
        None => Ok(None),
    }
}

/// That was not folded; a base has what followed in its last segment, too.
fn last_epoch(segment: &Segment) -> Result<Option<u64>, Error> {
    let Some(mut open) = Open::new(segment)? else {
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
