//! Reads a log for shipping: its records in order, from any record on, while it is written.

use std::path::{Path, PathBuf};

use crate::log::{Beginning, Error, Reader};
use crate::record::Record;

#[derive(Debug)]
pub struct Source {
    folder: PathBuf,
    reader: Reader,
    /// The number of the last record that was read, or after which reading begins. Zero for all
    /// records.
    number: u64,
    /// When that record was written, or `None` before one was read.
    at_ns: Option<u64>,
    /// The beginning of the log in which the number is valid.
    beginning: Option<Beginning>,
}

impl Source {
    /// Starts after the record with this number. 0 stands for the log's first record, whatever its
    /// number.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such folder. An empty folder is a log that begins later.
    pub fn open(folder: &Path, after: u64) -> Result<Self, Error> {
        let (reader, beginning) = behind(folder, after)?;
        Ok(Self {
            folder: folder.to_owned(),
            reader,
            number: after,
            at_ns: None,
            beginning,
        })
    }

    /// As [`Self::open`], for a copy that has the record with this number of a log with this
    /// beginning.
    ///
    /// # Errors
    /// Also [`Error::Compacted`] if other records have these numbers by now.
    pub fn of(folder: &Path, after: u64, beginning: &Beginning) -> Result<Self, Error> {
        let source = Self::open(folder, after)?;
        source.check(Some(*beginning), source.beginning)?;
        Ok(source)
    }

    /// Starts with the first record of the log's last segment, to find the head of the log.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn late(folder: &Path) -> Result<Self, Error> {
        Ok(Self {
            folder: folder.to_owned(),
            reader: Reader::open_late(folder)?,
            number: 0,
            at_ns: None,
            beginning: None,
        })
    }

    /// The beginning of the log, for a complete copy. `None` if nothing has been written to it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn beginning(&mut self) -> Result<Option<Beginning>, Error> {
        if self.beginning.is_none() {
            self.beginning = self.reader.beginning()?;
        }
        Ok(self.beginning)
    }

    /// The next record. `None` if it has not been written yet; it may be asked for again later.
    ///
    /// # Errors
    /// Those of [`Reader::read`]. [`Error::Compacted`] also if the log begins after the starting
    /// point. [`Error::Replaced`] if the log no longer has the last record that was read.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        let read = match self.next() {
            // The writer was killed during a write, and its successor has cut off what this reader
            // had begun to read.
            Err(Error::Damaged { .. }) => {
                (self.reader, self.beginning) = self.again()?;
                self.next()
            }
            read => read,
        }?;
        if let Some(record) = &read {
            self.number = record.number;
            self.at_ns = Some(record.at_ns);
        }
        Ok(read)
    }

    /// Returns when everything read so far survives a power failure.
    ///
    /// # Errors
    /// Those of [`Reader::persist`].
    pub fn persist(&mut self) -> Result<(), Error> {
        self.reader.persist()
    }

    /// A new reader that continues after the last record that was read.
    fn again(&self) -> Result<(Reader, Option<Beginning>), Error> {
        let (before, number) = (self.beginning, self.number);
        let (mut reader, now) = behind(&self.folder, number.saturating_sub(1))?;
        self.check(before, now)?;
        // The folded records have other numbers now, except the last of them.
        let folded = before != now && now.is_some_and(|now| number < now.folded);
        let Some(at_ns) = self.at_ns.filter(|_| !folded) else {
            return behind(&self.folder, number);
        };
        // A disk that lost records may have been written again with the same numbers.
        while let Some(located) = reader.read()? {
            let record = located.record;
            if record.number == number && record.at_ns == at_ns {
                return Ok((reader, now));
            }
            if record.number >= number {
                break;
            }
        }
        Err(Error::Replaced(self.folder.clone()))
    }

    /// Checks a number in the folded part. The records of a base have their own numbers, up to its
    /// last epoch.
    fn check(&self, before: Option<Beginning>, now: Option<Beginning>) -> Result<(), Error> {
        let (Some(before), Some(now)) = (before, now) else {
            return Ok(());
        };
        let number = self.number + 1;
        if number >= now.folded || before == now {
            return Ok(());
        }
        let folder = self.folder.clone();
        Err(Error::Compacted { folder, number })
    }

    fn next(&mut self) -> Result<Option<Record>, Error> {
        while let Some(located) = self.reader.read()? {
            let found = located.record.number;
            if self.number == 0 || found == self.number + 1 {
                return Ok(Some(located.record));
            }
            if found > self.number {
                let (folder, number) = (self.folder.clone(), self.number + 1);
                return Err(Error::Compacted { folder, number });
            }
        }
        Ok(None)
    }
}

fn behind(folder: &Path, number: u64) -> Result<(Reader, Option<Beginning>), Error> {
    let mut reader = Reader::open(folder)?;
    let beginning = reader.beginning()?;
    // Numbers in the folded part are counted from the beginning of the base, so they mean something
    // else.
    if beginning.is_some_and(|beginning| number > beginning.folded) {
        reader = Reader::open_after(folder, number)?;
    }
    Ok((reader, beginning))
}
