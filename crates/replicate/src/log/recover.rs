//! Finds the end of a log after a crash, reads the state there, and cuts off an incomplete record.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::Error;
use super::frame::{self, Frame};
use super::open::{Open, has_epoch};
use super::segment::{self, Id, Segment, Where};
use super::writer::Last;
use crate::folder::Folder;
use crate::record::{self, Entry, Record, Term};
use crate::tree::{Doubts, Invalid};

/// The state needed to append to a log.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) doubts: Doubts,
    /// Files that the next epoch has in an earlier state.
    pub(super) stale: BTreeSet<record::File>,
    pub(super) last: Option<Last>,
    /// The number of the last promotion. Zero if that is in an earlier segment, or there was none.
    pub(super) term: u64,
    /// The number of its record.
    pub(super) first_of_term: Option<u64>,
    /// The record of the last epoch.
    pub(super) epoch_record: Last,
}

#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) id: Id,
    pub(super) tail: Tail,
    /// The offset at which the last segment's records end.
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) struct Current {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// The offset at which waiting records will be written.
    pub(super) end: u64,
}

impl Tail {
    pub(super) fn check(&self, entry: &Entry) -> Result<(), Invalid> {
        let number = match *entry {
            Entry::Epoch { number } => number,
            Entry::Term(ref term) => return self.check_term(term),
            _ => return Ok(()),
        };
        if number <= self.epoch {
            let last = self.epoch;
            return Err(Invalid::Epoch { number, last });
        }
        match self.doubts.first_except(&self.stale) {
            Some(file) => Err(Invalid::Doubt { file }),
            None => Ok(()),
        }
    }

    /// Checks that a promotion follows an epoch, or is the beginning of a base.
    fn check_term(&self, term: &Term) -> Result<(), Invalid> {
        let last = self.last.map_or(0, |last| last.number);
        let follows = last == self.epoch_record.number || self.first_of_term == Some(last);
        let begins = self.last.is_none();
        let (number, epoch) = (term.number, self.epoch);
        if number > self.term.max(Term::FIRST) && (begins || (follows && term.epoch == epoch)) {
            return Ok(());
        }
        Err(Invalid::Term {
            number,
            last: self.term.max(Term::FIRST),
            epoch,
        })
    }

    pub(super) fn follow(&mut self, record: &Record) {
        self.number = record.number;
        self.last = Some(Last {
            number: record.number,
            at_ns: record.at_ns,
        });
        match &record.entry {
            Entry::Start { .. } => {
                self.doubts = Doubts::default();
                self.stale.clear();
            }
            Entry::Epoch { number } => {
                self.epoch = *number;
                self.epoch_record = Last {
                    number: record.number,
                    at_ns: record.at_ns,
                };
                self.doubts = Doubts::default();
                self.stale.clear();
            }
            Entry::Change(change) => self.doubts.follow(change),
            Entry::Stale { file } => {
                self.stale.insert(*file);
            }
            Entry::Term(term) => {
                self.term = term.number;
                self.first_of_term = Some(record.number);
            }
            Entry::Source(_) | Entry::Patterns(_) | Entry::Barrier | Entry::Renumber { .. } => {}
        }
    }
}

impl Recovery {
    /// Reads the last segments of a log, from one that contains an epoch. No doubt from before the
    /// epoch remains, and the next epoch must have a higher number. A start ends doubts as well,
    /// but the epoch numbers continue after it.
    pub(super) fn of(folder: &Arc<Folder>, live: &[Segment]) -> Result<Self, Error> {
        let mut from = live.len().saturating_sub(1);
        while from > 0 && !has_epoch(folder, &live[from])? {
            from -= 1;
        }
        Self::read(folder, &live[from..])
    }

    fn read(folder: &Arc<Folder>, segments: &[Segment]) -> Result<Self, Error> {
        let mut recovered: Option<Self> = None;
        for (index, segment) in segments.iter().enumerate() {
            let unfinished = || {
                let path = folder.path().join(&segment.name);
                Error::damaged(&path, 0, "no header of a segment")
            };
            let mut open = Open::new(folder, segment)?.ok_or_else(unfinished)?;
            let header = open.header;
            let mut at = recovered.unwrap_or_else(|| Self {
                id: header.id,
                tail: Tail {
                    number: header.first - 1,
                    ..Tail::default()
                },
                end: 0,
            });
            if header.id != at.id {
                return Err(Error::Mixed(folder.path().to_owned()));
            }
            if header.first != at.tail.number + 1 {
                let (folder, number) = (folder.path().to_owned(), at.tail.number + 1);
                return Err(Error::Missing { folder, number });
            }
            while let Some(located) = open.next()? {
                open.follows(&located, at.tail.number + 1)?;
                at.tail.follow(&located.record);
            }
            if index + 1 < segments.len() || header.last != 0 {
                open.finished(at.tail.number + 1)?;
            }
            at.end = open.offset();
            recovered = Some(at);
        }
        recovered.ok_or_else(|| Error::Missing {
            folder: folder.path().to_owned(),
            number: 1,
        })
    }
}

impl Current {
    pub(super) fn cut(folder: &Folder, name: &str, end: u64) -> Result<Self, Error> {
        let path = folder.path().join(name);
        let error = Error::io(&path);
        let mut file = folder.file(name, OFlags::RDWR).map_err(&error)?;
        let size = file.metadata().map_err(&error)?.len();
        if end < size {
            let (cut, shown) = (size - end, path.display());
            tracing::warn!("{shown}: {cut} bytes that were not written to their end are cut off");
            // Readers may have seen complete records that the disk has lost since. They must not
            // take records written in their place for the continuation, so those go into another
            // file.
            let another = match is_begun(&file, end, size).map_err(&error)? {
                true => None,
                false => replace(folder, name, &file, end)?,
            };
            match another {
                Some(another) => file = another,
                None => {
                    file.set_len(end).map_err(&error)?;
                    file.sync_all().map_err(&error)?;
                }
            }
        }
        Ok(Self {
            name: name.to_owned(),
            path: path.clone(),
            file,
            end,
        })
    }
}

/// Whether everything after an offset is the beginning of one frame, which no reader has seen as
/// complete. A writer that was killed leaves such a beginning.
fn is_begun(file: &File, end: u64, size: u64) -> io::Result<bool> {
    let left = usize::try_from(size - end).unwrap_or(usize::MAX);
    if left > frame::MAX_FRAME {
        return Ok(false);
    }
    let mut bytes = vec![0; left];
    file.read_exact_at(&mut bytes, end)?;
    Ok(matches!(frame::get(&bytes), Frame::Short { .. }))
}

/// Replaces a segment with a copy of its bytes up to this offset. `None` if the disk has no space
/// for the copy.
pub(super) fn replace(
    folder: &Folder,
    name: &str,
    file: &File,
    end: u64,
) -> Result<Option<File>, Error> {
    let beside = format!("{name}.tmp");
    let error = segment::in_folder(folder, &beside);
    let copied = copy(file, end, (folder, &beside)).and_then(|another| {
        folder.rename(&beside, name)?;
        Ok(another)
    });
    match copied.map_err(&error) {
        Ok(another) => {
            segment::sync_folder(folder)?;
            Ok(Some(another))
        }
        Err(failed) => {
            segment::remove(folder, &beside)?;
            match failed.is_full() {
                true => Ok(None),
                false => Err(failed),
            }
        }
    }
}

/// Copies the bytes. The copy is on the disk when this returns.
fn copy(from: &File, end: u64, (folder, name): (&Folder, &str)) -> io::Result<File> {
    let mut copy = folder.replace(name)?;
    io::copy(&mut from.take(end), &mut copy)?;
    copy.sync_all()?;
    Ok(copy)
}

/// Removes segments that a compaction has replaced, and a last segment without records.
pub(super) fn tidy(folder: &Arc<Folder>) -> Result<Vec<Segment>, Error> {
    let mut listing = segment::list(folder)?;
    for segment in &listing.replaced {
        segment::remove(folder, &segment.name)?;
    }
    if let Some(last) = listing.live.last() {
        segment::settle(folder, &last.name)?;
    }
    if let Some(last) = listing.live.last()
        && let Where::Written { .. } = last.place
        && Open::new(folder, last)?.is_none()
    {
        segment::remove(folder, &last.name)?;
        listing.live.pop();
    }
    Ok(listing.live)
}
