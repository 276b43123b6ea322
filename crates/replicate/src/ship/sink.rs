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
}

/// What a copy has on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Of the log that it is a copy of.
    pub beginning: Beginning,
    /// The last record's number.
    pub number: u64,
    /// When the source wrote the last record, in nanoseconds since 1970: another record under the same
    /// number is another history.
    pub at_ns: u64,
    /// The last epoch; zero before the first.
    pub epoch: u64,
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
        })
    }

    /// What is there; of what was received since the last [`Self::sync`], it may be lost again. None if
    /// there is nothing.
    pub fn held(&self) -> Option<Held> {
        let (beginning, last) = (self.beginning?, self.writer.last()?);
        Some(Held {
            beginning,
            number: last.number,
            at_ns: last.at_ns,
            epoch: self.writer.epoch(),
        })
    }

    /// Makes it a copy of the log that begins so. A copy of that very log goes on.
    ///
    /// # Errors
    /// [`Error::Mixed`] if it is a copy of another log.
    pub fn begin(&mut self, beginning: &Beginning) -> Result<(), Error> {
        match self.beginning {
            Some(copied) if copied.id == beginning.id => return Ok(()),
            Some(_) if self.writer.last().is_some() => {
                return Err(Error::Mixed(self.folder.clone()));
            }
            _ => self.writer.adopt(beginning)?,
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

    /// Removes all records: for a copy that cannot go on.
    ///
    /// # Errors
    /// Those of [`Writer::clear`].
    pub fn clear(&mut self) -> Result<(), Error> {
        self.beginning = None;
        self.writer.clear()
    }
}
