//! Reads a log from one record on, and follows it while it is written and compacted.

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

/// Reads records in their order. A clone reads on from the same place.
#[derive(Clone, Debug)]
pub struct Reader {
    folder: Arc<Folder>,
    id: Option<Id>,
    open: Option<Open>,
    /// The number of the record that is due; none before the first.
    next: Option<u64>,
    /// Nothing was read yet, and what is due may be anywhere in a segment.
    seeks: bool,
    /// No segment followed the open one when its end was reached first: one that the writer begins since has the name
    /// of what is due.
    alone: bool,
}

/// A record, and where it can be read again.
#[derive(Clone, Debug)]
pub struct LocatedRecord {
    pub record: Record,
    pub place: Place,
}

/// Where a record is. The segment can be read for as long as this lives, even if it was compacted away.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) path: Arc<Path>,
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) length: usize,
}

impl Place {
    /// # Errors
    /// [`Error::Damaged`] if it is not any more what it was.
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

    /// The bytes that the record says a file has.
    pub(crate) fn data(&self) -> Result<Vec<u8>, Error> {
        match self.read()?.entry {
            Entry::Change(Change::Data { bytes, .. }) => Ok(bytes),
            _ => Err(self.damaged("the record is another than it was")),
        }
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> Error {
        Error::damaged(&self.path, self.offset, what)
    }

    /// Tells records apart: no two segments that are open have the same file.
    pub(crate) fn id(&self) -> (usize, u64) {
        (Arc::as_ptr(&self.file).addr(), self.offset)
    }

    pub(super) fn segment(&self) -> &Path {
        &self.path
    }
}

impl Reader {
    /// From the log's beginning, which is the start of a tree.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such folder. An empty one is a log that nothing was written to yet.
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

    /// As [`Self::open`], of a folder that a user has named.
    ///
    /// # Errors
    /// [`Error::NoLog`] or [`Error::NotALog`] where it is none.
    pub fn open_log(folder: &Path) -> Result<Self, Error> {
        check(folder)?;
        Self::open(folder)
    }

    /// From the log's last segment that has an epoch, for who wants to know only how far the log is.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_late(folder: &Path) -> Result<Self, Error> {
        let folder = Arc::new(segment::open_folder(folder)?);
        let live = segment::list(&folder)?.live;
        let mut next = None;
        // The first of all is entered as such, for it may be a copy's of a base.
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

    /// From the record that follows this number. Only the segment that has it is read, and those behind.
    ///
    /// # Errors
    /// As [`Self::open`]. [`Self::read`] says [`Error::Compacted`] if the record is in what was folded.
    pub fn open_after(folder: &Path, number: u64) -> Result<Self, Error> {
        let next = Some(number.saturating_add(1));
        let all = Self::open(folder)?;
        Ok(Self {
            next,
            seeks: true,
            ..all
        })
    }

    /// The next record; none if there is none yet: it can be asked for again later.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Missing`], or [`Error::Compacted`] if the log was compacted further
    /// than it has been read; [`Error::Replaced`] if its disk has lost what was read.
    pub fn read(&mut self) -> Result<Option<LocatedRecord>, Error> {
        loop {
            let Some(open) = &mut self.open else {
                if self.advance()? {
                    continue;
                }
                return Ok(None);
            };
            let Some(located) = open.next()? else {
                // Looked for only now, and read once more then: the end is seen before the successor is.
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
                // What is due follows, at the beginning of a segment if it is not in this one.
                self.seeks &= self.next != Some(number + 1);
                continue;
            }
            return self.take(located).map(Some);
        }
    }

    /// Returns when all that was read survives a loss of power: readers see records before they are on the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn persist(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        // The writer itself has seen to those before it.
        open.file.sync_data().map_err(Error::io(&open.path))?;
        if !open.named {
            segment::sync_folder(&self.folder)?;
            open.named = true;
        }
        Ok(())
    }

    /// Which log this is; none while nothing was written to it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn id(&mut self) -> Result<Option<Id>, Error> {
        if self.id.is_none() {
            self.advance()?;
        }
        Ok(self.id)
    }

    /// Where the log begins; none while nothing was written to it. Ask before anything is read.
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
        // Nobody cuts off what is whole but who found after a sync that failed that the disk does not have it.
        if open.offset() > size {
            return Err(Error::Replaced(self.folder.path().to_owned()));
        }
        if open.header.last != 0 && self.next == Some(open.header.last + 1) {
            return Ok(true);
        }
        let at = self.next.unwrap_or(open.header.first);
        if self.alone && open.offset() == size {
            // Most often it is asked for in vain, and often: a folder of many segments is not listed for that.
            let begun = segment::is_there(&self.folder, &segment::written(at))?;
            // What compaction replaces goes in its order: this segment would be gone before the one that follows.
            if open.is_there()? {
                return Ok(begun);
            }
        }
        // Before the listing: what compaction replaces has a successor before it goes.
        let there = open.is_there()?;
        let listing = segment::list(&self.folder)?;
        // Else what is gone was not compacted, and what begins there now is of another history.
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
                // A crash may leave the last segment without a header, and a writer makes one in two steps.
                Ok(None) if Some(segment) == listing.live.last() => return Ok(false),
                Ok(None) => {
                    let path = self.folder.path().join(&segment.name);
                    return Err(Error::damaged(&path, 0, "no header of a segment"));
                }
                Ok(Some(open)) => return self.enter(open),
                // Compacted since it was listed.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn choose<'a>(&self, live: &'a [Segment]) -> Option<&'a Segment> {
        let Some(next) = self.next else {
            return live.first();
        };
        // The last one that fits, for who seeks: those that begin later begin behind what is due.
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
