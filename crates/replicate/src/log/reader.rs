//! Reads a log from some record on, and follows it while it is written and compacted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use super::Error;
use super::folder::check;
use super::frame::{self, Frame};
use super::open::{Open, has_epoch};
use super::segment::{self, Beginning, Id, Segment, Where};
use crate::folder::Folder;
use crate::record::{Change, Entry, Record};

/// Reads records in order. A clone continues from the same position.
#[derive(Clone, Debug)]
pub struct Reader {
    folder: Arc<Folder>,
    id: Option<Id>,
    open: Option<Open>,
    /// The number of the next record, or `None` before the first.
    next: Option<u64>,
    /// Nothing was read yet, and the next record may be anywhere in a segment.
    seeks: bool,
    /// No segment followed the open one when its end was first reached. A segment that the writer
    /// has started since is named by the number of the next record.
    alone: bool,
}

/// A record and its position, where it can be read again.
#[derive(Clone, Debug)]
pub struct LocatedRecord {
    pub record: Record,
    pub place: Place,
}

/// The position of a record. The segment can be read as long as this exists, even after a
/// compaction has removed it.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) path: Arc<Path>,
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) length: usize,
}

impl Place {
    /// # Errors
    /// [`Error::Damaged`] if the record has changed.
    pub fn read(&self) -> Result<Record, Error> {
        let mut bytes = vec![0; self.length];
        self.file
            .read_exact_at(&mut bytes, self.offset)
            .map_err(Error::io(&self.path))?;
        match frame::get(&bytes) {
            Frame::Whole { record, .. } => Ok(record),
            Frame::Short { .. } => Err(self.damaged("cut short")),
            Frame::Damaged { what, .. } => Err(self.damaged(what)),
        }
    }

    /// The bytes of a file in the record.
    pub(crate) fn data(&self) -> Result<Vec<u8>, Error> {
        match self.read()?.entry {
            Entry::Change(Change::Data { bytes, .. }) => Ok(bytes),
            _ => Err(self.damaged("the record is another than it was")),
        }
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> Error {
        Error::damaged(&self.path, self.offset, what)
    }

    /// Identifies a record: no two open segments have the same file.
    pub(crate) fn id(&self) -> (usize, u64) {
        (Arc::as_ptr(&self.file).addr(), self.offset)
    }

    pub(super) fn segment(&self) -> &Path {
        &self.path
    }
}

impl Reader {
    /// Reads from the start of the log, which is the start of a tree.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such folder. An empty folder is a log without records.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Self {
            folder: Arc::new(segment::open_folder(folder)?),
            id: None,
            open: None,
            next: None,
            seeks: false,
            alone: false,
        })
    }

    /// As [`Self::open`], for a folder named by a user.
    ///
    /// # Errors
    /// [`Error::NoLog`] or [`Error::NotALog`] if it is not a log.
    pub fn open_log(folder: &Path) -> Result<Self, Error> {
        check(folder)?;
        Self::open(folder)
    }

    /// Reads from the last segment that contains an epoch, to find only the head of the log.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_late(folder: &Path) -> Result<Self, Error> {
        let folder = Arc::new(segment::open_folder(folder)?);
        let live = segment::list(&folder)?.live;
        let mut next = None;
        // The first segment is opened as the start of the log, because it may be a copy of a base.
        for segment in live.iter().skip(1).rev() {
            if let Where::Written { first } = segment.place
                && has_epoch(&folder, segment)?
            {
                next = Some(first);
                break;
            }
        }
        Ok(Self {
            folder,
            id: None,
            open: None,
            next,
            seeks: false,
            alone: false,
        })
    }

    /// Reads from the record that follows this number. Earlier segments are not read.
    ///
    /// # Errors
    /// As [`Self::open`]. [`Self::read`] returns [`Error::Compacted`] if the record has been
    /// folded.
    pub fn open_after(folder: &Path, number: u64) -> Result<Self, Error> {
        let next = Some(number.saturating_add(1));
        let all = Self::open(folder)?;
        Ok(Self {
            next,
            seeks: true,
            ..all
        })
    }

    /// The next record. `None` if it has not been written yet; it may be asked for again later.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Missing`], or [`Error::Compacted`] if the log was compacted
    /// beyond this position. [`Error::Replaced`] if the disk has lost records that were read.
    pub fn read(&mut self) -> Result<Option<LocatedRecord>, Error> {
        loop {
            let Some(open) = &mut self.open else {
                if self.advance()? {
                    continue;
                }
                return Ok(None);
            };
            let Some(located) = open.next()? else {
                // The end is seen before the successor exists, so the successor is looked for only
                // now, and the segment is read once more.
                if !self.has_successor()? {
                    return Ok(None);
                }
                let Some(open) = &mut self.open else {
                    continue;
                };
                if let Some(located) = open.next()? {
                    return self.take(located).map(Some);
                }
                open.finished(self.next.unwrap_or_default())?;
                let empty = open.header.folded == 0 && self.next == Some(open.header.first);
                self.open = None;
                if empty {
                    return Err(self.missing());
                }
                continue;
            };
            let folded = open.header.folded != 0;
            let skips = folded || self.seeks;
            let number = located.record.number;
            if skips && self.next.is_some_and(|next| number < next) {
                // The next record is in this segment, or else at the beginning of another one.
                self.seeks &= self.next != Some(number + 1);
                continue;
            }
            return self.take(located).map(Some);
        }
    }

    /// Returns when everything read so far survives a power failure. Readers see records before
    /// they are on the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn persist(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        // The writer has synced all earlier segments.
        open.file.sync_data().map_err(Error::io(&open.path))?;
        if !open.named {
            segment::sync_folder(&self.folder)?;
            open.named = true;
        }
        Ok(())
    }

    /// The identity of the log. `None` if nothing has been written to it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn id(&mut self) -> Result<Option<Id>, Error> {
        if self.id.is_none() {
            self.advance()?;
        }
        Ok(self.id)
    }

    /// The beginning of the log. `None` if nothing has been written to it. Call this before any
    /// read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn beginning(&mut self) -> Result<Option<Beginning>, Error> {
        if self.open.is_none() {
            self.advance()?;
        }
        Ok(self.open.as_ref().map(|open| Beginning {
            id: open.header.id,
            first: open.header.first,
            folded: open.header.folded,
        }))
    }

    fn take(&mut self, located: LocatedRecord) -> Result<LocatedRecord, Error> {
        let number = located.record.number;
        if let (Some(open), Some(next)) = (&self.open, self.next) {
            open.follows(&located, next)?;
        }
        self.next = Some(number + 1);
        self.seeks = false;
        Ok(located)
    }

    fn has_successor(&mut self) -> Result<bool, Error> {
        let Some(open) = &self.open else {
            return Ok(false);
        };
        let size = open.size()?;
        // Complete records are cut off only by a writer that found, after a failed sync, that the
        // disk does not have them.
        if open.offset() > size {
            return Err(Error::Replaced(self.folder.path().to_owned()));
        }
        if open.header.last != 0 && self.next == Some(open.header.last + 1) {
            return Ok(true);
        }
        let at = self.next.unwrap_or(open.header.first);
        if self.alone && open.offset() == size {
            // This is asked often, and usually there is no successor, so a folder with many
            // segments is not listed for it.
            let begun = segment::is_there(&self.folder, &segment::written(at))?;
            // Compaction removes segments in order, so this segment would be gone before the one
            // that follows.
            if open.is_there()? {
                return Ok(begun);
            }
        }
        // Before the listing, because a segment that compaction removes has its successor first.
        let there = open.is_there()?;
        let listing = segment::list(&self.folder)?;
        // Otherwise the segment was not compacted, and what begins there belongs to another
        // history.
        let folded = listing.live.iter().any(|segment| match segment.place {
            Where::Base { last } => last + 1 >= at,
            Where::Written { .. } => false,
        });
        let successor = listing.live.iter().any(|segment| match segment.place {
            Where::Written { .. } if !there && !folded && !self.seeks => false,
            Where::Written { first } => first > open.header.first && (first >= at || self.seeks),
            Where::Base { last } => last >= at,
        });
        if successor || there {
            self.alone = !successor && !self.seeks && at > open.header.first;
            return Ok(successor);
        }
        Err(Error::Replaced(self.folder.path().to_owned()))
    }

    /// Opens the segment that has the next record.
    fn advance(&mut self) -> Result<bool, Error> {
        loop {
            let listing = segment::list(&self.folder)?;
            let Some(segment) = self.choose(&listing.live) else {
                return self.none_left(&listing.live);
            };
            match Open::new(&self.folder, segment) {
                // A crash may leave the last segment without a header, and a writer creates one in
                // two steps.
                Ok(None) if Some(segment) == listing.live.last() => return Ok(false),
                Ok(None) => {
                    let path = self.folder.path().join(&segment.name);
                    return Err(Error::damaged(&path, 0, "no header of a segment"));
                }
                Ok(Some(open)) => return self.enter(open),
                // The segment was compacted since it was listed.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn choose<'a>(&self, live: &'a [Segment]) -> Option<&'a Segment> {
        let Some(next) = self.next else {
            return live.first();
        };
        // When seeking, use the last segment that fits. Later ones begin after the next record.
        live.iter().rev().find(|segment| match segment.place {
            Where::Base { last } => last >= next,
            Where::Written { first } => first == next || (self.seeks && first < next),
        })
    }

    fn none_left(&self, live: &[Segment]) -> Result<bool, Error> {
        let later = live.iter().any(|segment| match segment.place {
            Where::Written { first } => self.next.is_some_and(|next| first > next),
            Where::Base { .. } => false,
        });
        match self.next {
            Some(_) if later => Err(self.missing()),
            _ => Ok(false),
        }
    }

    fn missing(&self) -> Error {
        Error::Missing {
            folder: self.folder.path().to_owned(),
            number: self.next.unwrap_or(1),
        }
    }

    fn enter(&mut self, open: Open) -> Result<bool, Error> {
        if self.id.is_some_and(|id| id != open.header.id) {
            return Err(Error::Mixed(self.folder.path().to_owned()));
        }
        if let Some(number) = self.next.filter(|next| *next <= open.header.folded) {
            return Err(Error::Compacted {
                folder: self.folder.path().to_owned(),
                number,
            });
        }
        if self.next.is_none() {
            if open.header.folded == 0 && open.header.first != 1 {
                return Err(self.missing());
            }
            self.next = Some(open.header.first);
        }
        self.id = Some(open.header.id);
        self.alone = false;
        self.open = Some(open);
        Ok(true)
    }
}
