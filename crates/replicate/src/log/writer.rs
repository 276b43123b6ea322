//! Appends to a log, and continues it after a crash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Mode;

use super::open::Open;
use super::recover::{Current, Recovery, Tail, replace, tidy};
use super::segment::{self, Beginning, HEADER, Header, Id, Segment, Where};
use super::{Error, frame, terms};
use crate::folder::Folder;
use crate::record::{Entry, Record, Term};

/// The limit of bytes of records that wait in memory.
const WAITING: usize = 256 << 10;

/// When records are made to survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// With each epoch, before `append` returns.
    #[default]
    Epoch,
    /// When [`Writer::sync`] is called.
    OnRequest,
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub durability: Durability,
    /// The size in bytes after which another segment is started.
    pub segment: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            segment: 64 << 20,
        }
    }
}

/// The only writer of a log.
#[derive(Debug)]
pub struct Writer {
    folder: Arc<Folder>,
    options: Options,
    id: Id,
    segment: Option<Current>,
    tail: Tail,
    /// The number of the last record that is in a segment. Later ones wait in memory.
    written: u64,
    waiting: Vec<u8>,
    /// Bytes of records appended since the log was opened.
    appended: u64,
    /// For a copy that begins with the records of a base, the `folded` value of its first segment's
    /// header.
    folded: u64,
    /// Whether the segment's directory entry survives a power failure.
    named: bool,
    /// A sync failed, so the contents of the disk are unknown.
    failed: bool,
    _lock: File,
}

/// A log's last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last {
    pub number: u64,
    /// When it was written at the source, in nanoseconds since 1970.
    pub at_ns: u64,
}

impl Writer {
    /// Opens a log for writing. Creates the folder if there is none, and cuts off incomplete
    /// records.
    ///
    /// # Errors
    /// [`Error::Busy`], or what a reader of the last segments would return.
    pub fn open(folder: &Path, options: Options) -> Result<Self, Error> {
        let folder = Folder::create(folder, Mode::RWXU).map_err(Error::io(folder))?;
        let folder = Arc::new(folder);
        let lock = segment::lock(&folder, "lock")?;
        let live = tidy(&folder)?;
        let mut writer = Self {
            folder,
            options,
            id: [0; 16],
            segment: None,
            tail: Tail::default(),
            written: 0,
            waiting: Vec::new(),
            appended: 0,
            folded: 0,
            named: true,
            failed: false,
            _lock: lock,
        };
        writer.recover(&live)?;
        Ok(writer)
    }

    /// Appends an entry with the next number. It reaches the disk with the next epoch, or when many
    /// bytes wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an epoch that cannot end here; [`Error::TooLarge`]; [`Error::Io`],
    /// after which the record waits to be written with the next one. After a failed sync, every
    /// further call fails.
    pub fn append(&mut self, at_ns: u64, entry: Entry) -> Result<u64, Error> {
        let number = self.tail.number + 1;
        self.push(&Record {
            number,
            at_ns,
            entry,
        })?;
        Ok(number)
    }

    /// Appends a record of another log under its number there. Returns false if this log has it
    /// already.
    ///
    /// # Errors
    /// [`Error::Gap`], and those of [`Self::append`].
    pub fn receive(&mut self, record: &Record) -> Result<bool, Error> {
        if record.number <= self.tail.number {
            return Ok(false);
        }
        if record.number != self.tail.number + 1 {
            return Err(Error::Gap {
                expected: self.tail.number + 1,
                found: record.number,
            });
        }
        self.push(record)?;
        Ok(true)
    }

    /// Makes the appended records visible to readers.
    ///
    /// # Errors
    /// [`Error::Io`]. The call can be repeated, for instance when the disk has space again.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.failed {
            return Err(self.failure());
        }
        let mut current = match self.segment.take() {
            Some(current) => current,
            None => self.begin()?,
        };
        let written = current.file.write_all_at(&self.waiting, current.end);
        let written = written.map_err(Error::io(&current.path));
        if written.is_ok() {
            current.end += self.waiting.len() as u64;
        }
        let full = current.end >= self.options.segment;
        self.segment = Some(current);
        written?;
        self.waiting.clear();
        self.written = self.tail.number;
        if full {
            self.sync_segment()?;
            self.segment = None;
        }
        Ok(())
    }

    /// Returns when the appended records survive a power failure.
    ///
    /// # Errors
    /// [`Error::Io`], permanently if the disk failed.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.sync_segment()
    }

    fn sync_segment(&mut self) -> Result<(), Error> {
        if self.failed {
            return Err(self.failure());
        }
        if let Some(current) = &self.segment {
            let synced = current.file.sync_data();
            self.failed = synced.is_err();
            synced.map_err(Error::io(&current.path))?;
        }
        if !self.named {
            segment::sync_folder(&self.folder)?;
            self.named = true;
        }
        Ok(())
    }

    /// Ends the segment, so that it can be compacted.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn seal(&mut self) -> Result<(), Error> {
        self.sync()?;
        let ended = match &self.segment {
            Some(current) => current.end > HEADER,
            // A full segment is still the last one of the log until another begins.
            None => self.tail.last.is_some(),
        };
        if ended {
            self.segment = Some(self.begin()?);
        }
        Ok(())
    }

    /// Makes an empty log the copy of another, with the same id and record numbers.
    ///
    /// # Errors
    /// [`Error::Mixed`] if the log has records.
    pub fn adopt(&mut self, beginning: &Beginning) -> Result<(), Error> {
        if self.tail.last.is_some() {
            return Err(Error::Mixed(self.folder.path().to_owned()));
        }
        // The segment was started and has no record.
        if let Some(current) = self.segment.take() {
            segment::remove(&self.folder, &current.name)?;
        }
        self.id = beginning.id;
        self.folded = beginning.folded;
        self.written = beginning.first.saturating_sub(1);
        self.tail.number = self.written;
        Ok(())
    }

    /// Removes all records, the last ones first, so that a crash leaves a valid log.
    ///
    /// # Errors
    /// [`Error::Busy`] while the log is being compacted; [`Error::Io`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let _lock = segment::lock(&self.folder, "compact.lock")?;
        self.waiting.clear();
        self.segment = None;
        self.folded = 0;
        self.tail = Tail::default();
        self.written = 0;
        let listing = segment::list(&self.folder)?;
        for segment in listing.replaced.iter().chain(listing.live.iter().rev()) {
            segment::remove(&self.folder, &segment.name)?;
        }
        self.named = true;
        segment::sync_folder(&self.folder)?;
        self.recover(&[])
    }

    /// The last record, or `None` for an empty log.
    pub fn last(&self) -> Option<Last> {
        self.tail.last
    }

    /// The number of the last record, or zero for an empty log.
    pub fn number(&self) -> u64 {
        self.tail.number
    }

    /// The number of the last epoch, or zero before the first.
    pub fn epoch(&self) -> u64 {
        self.tail.epoch
    }

    /// Bytes of records appended since the log was opened.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Whether something is in doubt, so that no epoch can end now.
    pub fn doubtful(&self) -> bool {
        self.tail.doubts.first().is_some()
    }

    /// The record of the last epoch, or zeros before the first.
    pub fn epoch_record(&self) -> Last {
        self.tail.epoch_record
    }

    /// The term of the last record.
    pub fn term(&self) -> u64 {
        self.tail.term.max(Term::FIRST)
    }

    pub(super) fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder)
    }

    /// Closes the segment before segments are changed.
    pub(super) fn close(&mut self) {
        self.waiting.clear();
        self.segment = None;
    }

    /// Continues after segments were changed. `live` are the remaining ones.
    pub(super) fn reopen(&mut self, live: &[Segment]) -> Result<(), Error> {
        self.tail = Tail::default();
        self.folded = 0;
        self.recover(live)
    }

    pub fn id(&self) -> Id {
        self.id
    }

    fn push(&mut self, record: &Record) -> Result<(), Error> {
        self.tail.check(&record.entry).map_err(|invalid| {
            let folder = self.folder.path().to_owned();
            Error::Invalid { folder, invalid }
        })?;
        if let Entry::Term(_) = record.entry {
            // A promotion begins a segment, where readers look for it.
            self.seal()?;
        }
        let before = self.waiting.len();
        frame::put(record, &mut self.waiting).map_err(Error::TooLarge)?;
        self.appended += (self.waiting.len() - before) as u64;
        self.tail.follow(record);
        let epoch = matches!(record.entry, Entry::Epoch { .. });
        if epoch && self.options.durability == Durability::Epoch {
            self.sync()
        } else if epoch || self.waiting.len() >= WAITING {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn begin(&mut self) -> Result<Current, Error> {
        let name = segment::written(self.written + 1);
        let header = Header {
            id: self.id,
            first: self.written + 1,
            folded: self.folded,
            last: 0,
        };
        self.named = false;
        let file = segment::create(&self.folder, &name, &header)?;
        self.folded = 0;
        if self.options.durability == Durability::Epoch {
            segment::sync_folder(&self.folder)?;
            self.named = true;
        }
        Ok(Current {
            path: self.folder.path().join(&name),
            name,
            file,
            end: HEADER,
        })
    }

    fn recover(&mut self, live: &[Segment]) -> Result<(), Error> {
        let Some(last) = live.last() else {
            let random = rustix::rand::GetRandomFlags::empty();
            return rustix::rand::getrandom(&mut self.id, random)
                .map(drop)
                .map_err(|error| Error::io(self.folder.path())(error.into()));
        };
        let recovered = Recovery::of(&self.folder, live)?;
        self.id = recovered.id;
        self.written = recovered.tail.number;
        self.tail = recovered.tail;
        let known = terms::of(&self.folder, live)?;
        let term = known.last().map_or(0, |last| last.term.number);
        self.tail.term = self.tail.term.max(term);
        if let Where::Written { .. } = last.place {
            self.segment = Some(Current::cut(&self.folder, &last.name, recovered.end)?);
        }
        Ok(())
    }

    fn failure(&self) -> Error {
        let text = "a sync of the log failed: what the disk has is not known";
        Error::io(self.folder.path())(io::Error::other(text))
    }

    /// Removes all records after this one, the last ones first, so that a crash leaves a valid log.
    /// Readers beyond this record get an error that the log was replaced.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the record is in the folded part; [`Error::Busy`] while the log is
    /// being compacted.
    pub fn rewind(&mut self, number: u64) -> Result<(), Error> {
        self.sync()?;
        if number >= self.number() {
            return Ok(());
        }
        let folder = self.folder();
        let _lock = segment::lock(&folder, "compact.lock")?;
        let compacted = || Error::Compacted {
            folder: folder.path().to_owned(),
            number: number + 1,
        };
        let mut live = segment::list(&folder)?.live;
        let begins = |segment: &Segment| match segment.place {
            Where::Base { last } => last > number,
            Where::Written { first } => first > number,
        };
        let stays = live.iter().take_while(|segment| !begins(segment)).count();
        let Some(last) = stays.checked_sub(1).and_then(|at| live.get(at)).cloned() else {
            return Err(compacted());
        };
        let Some(mut open) = Open::new(&folder, &last)? else {
            return Err(compacted());
        };
        if number < open.header.folded {
            return Err(compacted());
        }
        let mut reached = open.header.first - 1;
        while reached < number {
            match open.next()? {
                Some(located) => reached = located.record.number,
                None => return Err(compacted()),
            }
        }
        self.close();
        for segment in live.drain(stays..).rev() {
            segment::remove(&folder, &segment.name)?;
        }
        segment::sync_folder(&folder)?;
        let (end, size) = (open.offset(), open.size()?);
        if end < size && replace(&folder, &last.name, &open.file, end)?.is_none() {
            let path = folder.path().join(&last.name);
            let file = folder.file(&last.name, rustix::fs::OFlags::RDWR);
            let file = file.map_err(Error::io(&path))?;
            file.set_len(end).map_err(Error::io(&path))?;
            file.sync_all().map_err(Error::io(&path))?;
        }
        self.reopen(&live)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A caller that needs to know whether the records were written has called `sync`.
        let _ = self.flush();
    }
}
