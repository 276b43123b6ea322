//! A log as it is shipped: its records in their order, from any of them on, while it is written.

use std::path::{Path, PathBuf};

use crate::log::{Beginning, Error, Reader};
use crate::record::Record;

#[derive(Debug)]
pub struct Source {
    folder: PathBuf,
    reader: Reader,
    /// The number of the last record that was read, or that reading begins behind; zero for all.
    number: u64,
    /// When that record was written; none before one was read.
    at_ns: Option<u64>,
    /// Where the log begins that the number is of.
    beginning: Option<Beginning>,
}

impl Source {
    /// With the record that follows this number; with the log's first one, whatever its number, for 0.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such folder; an empty one is a log that begins later.
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

    /// As [`Self::open`], for a copy that has the record under this number of a log that begins so.
    ///
    /// # Errors
    /// Also [`Error::Compacted`] if other records have these numbers by now.
    pub fn of(folder: &Path, after: u64, beginning: &Beginning) -> Result<Self, Error> {
        let source = Self::open(folder, after)?;
        source.check(Some(*beginning), source.beginning)?;
        Ok(source)
    }

    /// With the first record of the log's last segment: to learn how far the log is.
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

    /// Where the log begins: for a copy of all of it. None while nothing was written to it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn beginning(&mut self) -> Result<Option<Beginning>, Error> {
        if self.beginning.is_none() {
            self.beginning = self.reader.beginning()?;
        }
        Ok(self.beginning)
    }

    /// The next record; none if there is none yet: it can be asked for again later.
    ///
    /// # Errors
    /// Those of [`Reader::read`]; [`Error::Compacted`] also if the log begins behind where reading
    /// should, and [`Error::Replaced`] if it does not have the last record any more that was read.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        let read = match self.next() {
            // The writer was killed while it wrote, and its successor has cut off what this reader
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

    /// Returns when all that was read survives a loss of power.
    ///
    /// # Errors
    /// Those of [`Reader::persist`].
    pub fn persist(&mut self) -> Result<(), Error> {
        self.reader.persist()
    }

    /// A reader that goes on behind the last record that was read.
    fn again(&self) -> Result<(Reader, Option<Beginning>), Error> {
        let (before, number) = (self.beginning, self.number);
        let (mut reader, now) = behind(&self.folder, number.saturating_sub(1))?;
        self.check(before, now)?;
        // The last one but one of what was folded has another number by now; the last one has not.
        let folded = before != now && now.is_some_and(|now| number < now.folded);
        let Some(at_ns) = self.at_ns.filter(|_| !folded) else {
            return behind(&self.folder, number);
        };
        // A disk that has lost records may be gone on with, under the same numbers.
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

    /// What a log was folded to has its own numbers, up to the epoch that is the last of it.
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
    // Numbers in what was folded are another thing: they are counted from the base's beginning.
    if beginning.is_some_and(|beginning| number > beginning.folded) {
        reader = Reader::open_after(folder, number)?;
    }
    Ok((reader, beginning))
}
