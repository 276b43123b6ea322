//! Reads the complete frames of one segment in order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{OFlags, fstat};

use super::frame::{self, Frame};
use super::reader::{LocatedRecord, Place};
use super::segment::{self, HEADER, Header, Segment, Where};
use super::{Error, MAX_RECORD};
use crate::folder::Folder;
use crate::record::Entry;

/// How much is read at once, in bytes.
const STEP: usize = 256 << 10;

/// Whether a segment contains the end of an epoch.
pub(super) fn has_epoch(folder: &Arc<Folder>, segment: &Segment) -> Result<bool, Error> {
    let Some(mut open) = Open::new(folder, segment)? else {
        return Ok(false);
    };
    while let Some(located) = open.next()? {
        if matches!(located.record.entry, Entry::Epoch { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A segment being read.
#[derive(Clone, Debug)]
pub(super) struct Open {
    folder: Arc<Folder>,
    name: Arc<str>,
    pub(super) path: Arc<Path>,
    pub(super) file: Arc<File>,
    pub(super) header: Header,
    /// The bytes read from `start` on. The next frame begins at `used`.
    buffer: Vec<u8>,
    start: u64,
    used: usize,
    /// Whether the segment's directory entry is known to survive a power failure.
    pub(super) named: bool,
}

impl Open {
    /// Returns `None` for a segment whose header is incomplete.
    pub(super) fn new(folder: &Arc<Folder>, segment: &Segment) -> Result<Option<Self>, Error> {
        let path = &folder.path().join(&segment.name);
        let file = folder.file(&segment.name, OFlags::RDONLY);
        let file = file.map_err(Error::io(path))?;
        let Some(header) = segment::header(path, &file)? else {
            return Ok(None);
        };
        let named = match segment.place {
            Where::Base { last } => header.last == last && header.folded != 0,
            Where::Written { first } => header.first == first && header.last == 0,
        };
        if !named {
            return Err(Error::damaged(path, 0, "the segment has another's name"));
        }
        Ok(Some(Self {
            folder: Arc::clone(folder),
            name: segment.name.as_str().into(),
            path: path.as_path().into(),
            named: false,
            file: Arc::new(file),
            header,
            buffer: Vec::new(),
            start: HEADER,
            used: 0,
        }))
    }

    /// Whether the segment still has its name. A removed segment can be read, but gets no more
    /// records.
    pub(super) fn is_there(&self) -> Result<bool, Error> {
        let error = Error::io(&self.path);
        let own = fstat(&self.file).map_err(|errno| error(errno.into()))?;
        match self.folder.stat(&*self.name) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(error(source)),
        }
    }

    /// The offset of the next record.
    pub(super) fn offset(&self) -> u64 {
        self.start + self.used as u64
    }

    pub(super) fn size(&self) -> Result<u64, Error> {
        let error = Error::io(&self.path);
        Ok(self.file.metadata().map_err(error)?.len())
    }

    /// The next record, or `None` at the end or at an incomplete record.
    pub(super) fn next(&mut self) -> Result<Option<LocatedRecord>, Error> {
        loop {
            let damage = match frame::get(&self.buffer[self.used..]) {
                Frame::Whole { record, length } => {
                    let place = Place {
                        path: Arc::clone(&self.path),
                        file: Arc::clone(&self.file),
                        offset: self.offset(),
                        length,
                    };
                    self.used += length;
                    return Ok(Some(LocatedRecord { record, place }));
                }
                Frame::Short { needed } if self.fill(needed)? => continue,
                Frame::Short { .. } => return Ok(self.unread()),
                Frame::Damaged { what, end } => (what, end),
            };
            let (what, end) = damage;
            if segment::is_unfinished(&self.path, &self.file, self.offset(), end)? {
                return Ok(self.unread());
            }
            return Err(Error::damaged(&self.path, self.offset(), what));
        }
    }

    /// Discards the buffered bytes of an incomplete record, because another writer may cut it off
    /// and write something else there.
    fn unread(&mut self) -> Option<LocatedRecord> {
        self.buffer.truncate(self.used);
        None
    }

    /// # Errors
    /// [`Error::Damaged`] unless everything that the segment must contain has been read, and `due`
    /// is the number after it.
    pub(super) fn finished(&self, due: u64) -> Result<(), Error> {
        let last = self.header.last == 0 || self.header.last + 1 == due;
        if last && self.offset() == self.size()? {
            return Ok(());
        }
        Err(Error::damaged(&self.path, self.offset(), "cut short"))
    }

    /// # Errors
    /// [`Error::Damaged`] if the record does not have the number `due`.
    pub(super) fn follows(&self, located: &LocatedRecord, due: u64) -> Result<(), Error> {
        let number = located.record.number;
        if number == due {
            return Ok(());
        }
        let what = format!("it has record {number} where {due} is due");
        Err(Error::damaged(&self.path, located.place.offset, what))
    }

    /// Reads more bytes into the buffer. Returns whether there were any.
    fn fill(&mut self, needed: usize) -> Result<bool, Error> {
        debug_assert!(needed <= MAX_RECORD + STEP);
        self.buffer.drain(..self.used);
        self.start += self.used as u64;
        self.used = 0;
        let had = self.buffer.len();
        let at = self.start + had as u64;
        let left = usize::try_from(self.size()?.saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = needed.saturating_sub(had).max(STEP).min(left);
        self.buffer.resize(had + wanted, 0);
        let mut read = 0;
        while read < wanted {
            let rest = &mut self.buffer[had + read..];
            match self.file.read_at(rest, at + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(&self.path)(error)),
            }
        }
        self.buffer.truncate(had + read);
        Ok(self.buffer.len() >= needed)
    }
}
