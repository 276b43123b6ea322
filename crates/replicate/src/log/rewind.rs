//! Takes a log back to an earlier record.

use super::Error;
use super::open::Open;
use super::recover::replace;
use super::segment::{self, Segment, Where};
use super::writer::Writer;

impl Writer {
    /// Removes all records behind this one, the last ones first: what a crash leaves of them is a log. Readers that are
    /// further learn that the log was replaced.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the record is in what was folded; [`Error::Busy`] while the log is being compacted.
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
