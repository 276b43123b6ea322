//! Cuts the log into messages: small records together, as many as there are at the moment; large ones in
//! parts. What was cut is kept until the stream has it.

use std::path::{Path, PathBuf};

use super::Error;
use super::message::{self, BESIDES, Content, Message, Place};
use crate::codec;
use crate::log::{self, Beginning};
use crate::record::Record;
use crate::ship::{Key, Source};

/// Records are put together up to this many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// The largest content of a message, in bytes: half of what a server takes unless told otherwise.
const MAX_CONTENT: usize = (512 << 10) - BESIDES;

/// What headers take of that.
const HEADERS: usize = 768;
/// The least that a server has to take, in bytes: most of it would be headers.
pub(super) const MIN_PAYLOAD: usize = 8 << 10;

/// A message to be published.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) body: Vec<u8>,
}

impl Packet {
    /// What a server knows a message by that is sent again. One that was cut from the same place to another is another
    /// message: to take one for the other would leave a hole in the stream.
    pub(super) fn id(&self, run: &str) -> String {
        let Self { from, to, .. } = self;
        format!(
            "{run}-{}.{}-{}.{}",
            from.whole, from.part, to.whole, to.part
        )
    }
}

/// Follows a log from a place on.
#[derive(Debug)]
pub(super) struct Packets {
    folder: PathBuf,
    source: Source,
    beginning: Beginning,
    key: Option<Key>,
    /// Nothing is cut before it is on the disk.
    synced: bool,
    /// Up to where it has been cut.
    place: Place,
    /// A record that did not fit, or fits only in parts: its number and bytes.
    held: Option<(u64, Vec<u8>)>,
}

/// Where the log in a folder begins; none while it is empty.
pub(super) fn beginning(folder: &Path) -> Result<Option<Beginning>, log::Error> {
    Source::open(folder, 0)?.beginning()
}

/// Whether a server takes a message that was cut before.
pub(super) fn fits(body: &[u8], max_payload: usize) -> bool {
    body.len() <= max_payload.saturating_sub(HEADERS)
}

impl Packets {
    /// # Errors
    /// [`log::Error::Compacted`] if the records that follow have other numbers by now than those that
    /// the stream began with.
    pub(super) fn open(
        folder: &Path,
        beginning: Beginning,
        place: Place,
        key: Option<Key>,
        synced: bool,
    ) -> Result<Self, log::Error> {
        let after = match place {
            Place { whole, part: 0 } if whole + 1 == beginning.first => 0,
            Place { whole, .. } => whole,
        };
        Ok(Self {
            folder: folder.to_owned(),
            source: Source::of(folder, after, &beginning)?,
            beginning,
            key,
            synced,
            place,
            held: None,
        })
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The next message's, with at most so many bytes; none if the log has no more at the moment.
    pub(super) fn next(&mut self, max_payload: usize) -> Result<Option<Packet>, log::Error> {
        let largest = MAX_CONTENT.min(max_payload.saturating_sub(BESIDES));
        let together = BATCH_BYTES.min(largest);
        let first = self.place.whole + 1;
        let mut records = Vec::new();
        let mut last = None;
        while let Some((number, bytes)) = self.take()? {
            let alone = records.is_empty();
            if alone && (bytes.len() + 4 > largest || self.place.part > 0) {
                self.persist()?;
                return Ok(Some(self.part(number, bytes, largest)));
            }
            if !alone && records.len() + bytes.len() + 4 > together {
                self.held = Some((number, bytes));
                break;
            }
            message::put(&bytes, &mut records);
            last = Some(number);
        }
        let Some(last) = last else {
            return Ok(None);
        };
        self.persist()?;
        let from = self.place;
        self.place = Place::behind(last);
        let key = self.key.as_ref();
        Ok(Some(Packet {
            from,
            to: self.place,
            body: message::of_records(&self.beginning, first, last, &records, key),
        }))
    }

    fn persist(&mut self) -> Result<(), log::Error> {
        match self.synced {
            true => self.source.persist(),
            false => Ok(()),
        }
    }

    fn part(&mut self, number: u64, bytes: Vec<u8>, largest: usize) -> Packet {
        let from = self.place;
        let end = (from.part + largest).min(bytes.len());
        let key = self.key.as_ref();
        let body = message::of_part(&self.beginning, number, &bytes, from.part..end, key);
        if end == bytes.len() {
            self.place = Place::behind(number);
        } else {
            self.place.part = end;
            self.held = Some((number, bytes));
        }
        Packet {
            from,
            to: self.place,
            body,
        }
    }

    fn take(&mut self) -> Result<Option<(u64, Vec<u8>)>, log::Error> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        Ok(self
            .source
            .read()?
            .map(|record| (record.number, encoded(&record))))
    }

    /// Whether the log has what a message says. Where what it begins with was folded since, the last record has to do.
    ///
    /// # Errors
    /// [`Error::Diverged`] with the number of the first record that is another there, or missing.
    pub(super) fn has(&self, message: &Message, stream: &str) -> Result<(), Error> {
        let other = match self.other(message) {
            Err(log::Error::Compacted { .. }) => match self.other_last(message) {
                // What was folded cannot be compared any more.
                Err(log::Error::Compacted { .. }) => None,
                other => other?,
            },
            other => other?,
        };
        other.map_or(Ok(()), |number| {
            Err(Error::Diverged {
                stream: stream.to_owned(),
                number,
            })
        })
    }

    /// The first of a message's records that is another in the log, or missing there.
    fn other(&self, message: &Message) -> Result<Option<u64>, log::Error> {
        let mut source = self.behind(message.from.whole)?;
        match &message.content {
            Content::Records(records) => {
                for record in records {
                    if source.read()?.as_ref() != Some(record) {
                        return Ok(Some(record.number));
                    }
                }
                Ok(None)
            }
            Content::Part { total, bytes } => {
                let found = source.read()?.map(|record| encoded(&record));
                let found = found.unwrap_or_default();
                let (from, to) = (message.from.part, message.from.part + bytes.len());
                let same = found.len() == *total && found.get(from..to) == Some(bytes.as_slice());
                Ok((!same).then_some(message.from.whole + 1))
            }
        }
    }

    /// The last of them, if the log has one of another time under its number, or none.
    fn other_last(&self, message: &Message) -> Result<Option<u64>, log::Error> {
        let Some((number, at_ns)) = message.last() else {
            return Ok(None);
        };
        let found = self.behind(number.saturating_sub(1))?.read()?;
        let same = found.is_some_and(|record| record.at_ns == at_ns);
        Ok((!same).then_some(number))
    }

    /// The log's records behind this one.
    fn behind(&self, whole: u64) -> Result<Source, log::Error> {
        let place = Place::behind(whole);
        let opened = Self::open(&self.folder, self.beginning, place, None, false)?;
        Ok(opened.source)
    }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(record, &mut bytes);
    bytes
}
