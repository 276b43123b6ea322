//! The copy of a log: its records are the source's, under their numbers, and so is its id.

use std::path::{Path, PathBuf};

use crate::log::{Beginning, Durability, Error, Options, Reader, Writer};
use crate::record::Record;

#[derive(Debug)]
pub struct Sink {
    folder: PathBuf,
    writer: Writer,
    /// Of the log that this is a copy of; none while it is empty.
    beginning: Option<Beginning>,
    /// Reads what is here, and the number that is next there.
    own: Option<(Reader, u64)>,
}

/// What a copy has on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// Of the log that it is a copy of.
    pub beginning: Beginning,
    /// The last record's number.
    pub number: u64,
    /// When the source wrote the last record, in nanoseconds since 1970: another record under the same
    /// number is another history.
    pub at_ns: u64,
    /// The last epoch; zero before the first.
    pub epoch: u64,
    /// The term of the last record.
    pub term: u64,
}

impl Sink {
    /// Makes the folder if there is none.
    ///
    /// # Errors
    /// Those of [`Writer::open`].
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::with_segments(folder, Options::default().segment)
    }

    /// As [`Self::open`], with segments of so many bytes.
    ///
    /// # Errors
    /// Those of [`Writer::open`].
    pub fn with_segments(folder: &Path, segment: u64) -> Result<Self, Error> {
        let options = Options {
            durability: Durability::OnRequest,
            segment,
        };
        let mut writer = Writer::open(folder, options)?;
        // What a copy that was killed has left may be in memory only.
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

    /// What is there; of what was received since the last [`Self::sync`], it may be lost again. None if
    /// there is nothing.
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

    /// When the source wrote the record that is here under this number; none if there is none, or if it may have been
    /// folded. Numbers that are asked for in their order are found without reading anything twice.
    ///
    /// # Errors
    /// Those of [`Writer::flush`] and [`Reader::read`].
    pub fn written_at(&mut self, number: u64) -> Result<Option<u64>, Error> {
        let Some(held) = self.held() else {
            return Ok(None);
        };
        let Beginning { first, folded, .. } = held.beginning;
        if number >= held.number || number < first || number <= folded {
            // A segment that is read stays when it is compacted away.
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
                // A copy is compacted while it is written.
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

    /// Makes it a copy of the log that begins so. A copy of that very log goes on if it has a record: until then the
    /// source may have been compacted, and begin with another.
    ///
    /// # Errors
    /// [`Error::Mixed`] if it is a copy of another log.
    pub fn begin(&mut self, beginning: &Beginning) -> Result<(), Error> {
        match self.held() {
            Some(held) if held.beginning.id == beginning.id => return Ok(()),
            Some(_) => return Err(Error::Mixed(self.folder.clone())),
            None => self.writer.adopt(beginning)?,
        }
        self.beginning = Some(*beginning);
        Ok(())
    }

    /// False for a record that is here already.
    ///
    /// # Errors
    /// Those of [`Writer::receive`].
    pub fn receive(&mut self, record: &Record) -> Result<bool, Error> {
        self.writer.receive(record)
    }

    /// Returns when all that was received survives a loss of power.
    ///
    /// # Errors
    /// Those of [`Writer::sync`]. It can be tried again when the disk has room.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.writer.sync()
    }

    /// Removes all records behind this one: for a copy that has more than another tree that was promoted.
    ///
    /// # Errors
    /// Those of [`Writer::rewind`].
    pub fn rewind(&mut self, number: u64) -> Result<(), Error> {
        self.own = None;
        self.writer.rewind(number)
    }

    /// Removes all records: for a copy that cannot go on.
    ///
    /// # Errors
    /// Those of [`Writer::clear`].
    pub fn clear(&mut self) -> Result<(), Error> {
        self.beginning = None;
        self.own = None;
        self.writer.clear()
    }
}
