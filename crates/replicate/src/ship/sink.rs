//! The copy of a log. It has the source's records, their numbers and the source's log id.

use std::path::{Path, PathBuf};

use crate::log::{Beginning, Durability, Error, Options, Reader, Writer};
use crate::record::Record;

#[derive(Debug)]
pub struct Sink {
    folder: PathBuf,
    writer: Writer,
    /// The beginning of the copied log, or `None` while the copy is empty.
    beginning: Option<Beginning>,
    /// A reader of the copy, and the number of the record that it reads next.
    own: Option<(Reader, u64)>,
}

/// The state of a copy on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// The beginning of the copied log.
    pub beginning: Beginning,
    /// The number of the last record.
    pub number: u64,
    /// When the source wrote the last record, in nanoseconds since 1970. Another record with the
    /// same number belongs to another history.
    pub at_ns: u64,
    /// The last epoch, or zero before the first.
    pub epoch: u64,
    /// The term of the last record.
    pub term: u64,
}

impl Sink {
    /// Opens the copy, and creates the folder if there is none.
    ///
    /// # Errors
    /// Those of [`Writer::open`].
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::with_segments(folder, Options::default().segment)
    }

    /// As [`Self::open`], with segments of this many bytes.
    ///
    /// # Errors
    /// Those of [`Writer::open`].
    pub fn with_segments(folder: &Path, segment: u64) -> Result<Self, Error> {
        let options = Options {
            durability: Durability::OnRequest,
            segment,
        };
        let mut writer = Writer::open(folder, options)?;
        // A copy whose process was killed may have left data in memory only.
        writer.sync()?;
        let beginning = match writer.last() {
            Some(_) => Reader::open(folder)?.beginning()?,
            None => None,
        };
        Ok(Self {
            folder: folder.to_owned(),
            writer,
            beginning,
            own: None,
        })
    }

    /// The state of the copy. What was received since the last [`Self::sync`] may be lost again.
    /// `None` if the copy is empty.
    pub fn held(&self) -> Option<CopyState> {
        let (beginning, last) = (self.beginning?, self.writer.last()?);
        Some(CopyState {
            beginning,
            number: last.number,
            at_ns: last.at_ns,
            epoch: self.writer.epoch(),
            term: self.writer.term(),
        })
    }

    /// When the source wrote the record with this number. `None` if there is none, or if it may
    /// have been folded. If the numbers increase from call to call, nothing is read twice.
    ///
    /// # Errors
    /// Those of [`Writer::flush`] and [`Reader::read`].
    pub fn written_at(&mut self, number: u64) -> Result<Option<u64>, Error> {
        let Some(held) = self.held() else {
            return Ok(None);
        };
        let Beginning { first, folded, .. } = held.beginning;
        if number >= held.number || number < first || number <= folded {
            // An open segment remains readable after it is compacted away.
            self.own = None;
            return Ok((number == held.number).then_some(held.at_ns));
        }
        self.writer.flush()?;
        let (mut reader, mut next) = match self.own.take() {
            Some((reader, next)) if next <= number => (reader, next),
            _ => (
                Reader::open_after(&self.folder, number.saturating_sub(1))?,
                number,
            ),
        };
        while next <= number {
            let record = match reader.read() {
                Ok(Some(located)) => located.record,
                // The copy may be compacted while it is written.
                Ok(None) | Err(Error::Compacted { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            next = record.number + 1;
            if record.number == number {
                self.own = Some((reader, next));
                return Ok(Some(record.at_ns));
            }
        }
        Ok(None)
    }

    /// Makes this a copy of the log with this beginning. An existing copy of the same log continues
    /// if it has a record. Before that, the source may have been compacted and have another
    /// beginning.
    ///
    /// # Errors
    /// [`Error::Mixed`] if this is a copy of another log.
    pub fn begin(&mut self, beginning: &Beginning) -> Result<(), Error> {
        match self.held() {
            Some(held) if held.beginning.id == beginning.id => return Ok(()),
            Some(_) => return Err(Error::Mixed(self.folder.clone())),
            None => self.writer.adopt(beginning)?,
        }
        self.beginning = Some(*beginning);
        Ok(())
    }

    /// Appends a record. Returns false if the copy has it already.
    ///
    /// # Errors
    /// Those of [`Writer::receive`].
    pub fn receive(&mut self, record: &Record) -> Result<bool, Error> {
        self.writer.receive(record)
    }

    /// Returns when everything received survives a power failure.
    ///
    /// # Errors
    /// Those of [`Writer::sync`]. The call can be repeated when the disk has space again.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.writer.sync()
    }

    /// Removes all records after this one, for a copy that is ahead of a promoted tree.
    ///
    /// # Errors
    /// Those of [`Writer::rewind`].
    pub fn rewind(&mut self, number: u64) -> Result<(), Error> {
        self.own = None;
        self.writer.rewind(number)
    }

    /// Removes all records, for a copy that cannot continue.
    ///
    /// # Errors
    /// Those of [`Writer::clear`].
    pub fn clear(&mut self) -> Result<(), Error> {
        self.beginning = None;
        self.own = None;
        self.writer.clear()
    }
}
