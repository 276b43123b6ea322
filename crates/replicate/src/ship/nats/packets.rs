//! Cuts the log into messages. Small records that are available together share one message, and
//! large ones are split into parts. Messages are kept until the stream has them.

use std::path::{Path, PathBuf};

use super::Error;
use super::message::{self, BESIDES, Content, Message, Place};
use crate::codec;
use crate::log::{self, Beginning};
use crate::record::Record;
use crate::ship::{Key, Source};

/// The limit in bytes for records that share a message.
const BATCH_BYTES: usize = 256 << 10;
/// The largest content of a message, in bytes: half of the default limit of a server.
const MAX_CONTENT: usize = (512 << 10) - BESIDES;

/// The bytes that headers take of that.
const HEADERS: usize = 768;
/// The smallest message limit of a server that is accepted, in bytes. Below it, headers would be
/// most of a message.
pub(super) const MIN_PAYLOAD: usize = 8 << 10;

/// A message to be published.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) body: Vec<u8>,
}

impl Packet {
    /// The id by which a server recognises a repeated message. Messages with the same start but
    /// another end have different ids, because mistaking one for the other would leave a gap in the
    /// stream.
    pub(super) fn id(&self, run: &str) -> String {
        let Self { from, to, .. } = self;
        format!(
            "{run}-{}.{}-{}.{}",
            from.whole, from.part, to.whole, to.part
        )
    }
}

/// Follows a log from a position on.
#[derive(Debug)]
pub(super) struct Packets {
    folder: PathBuf,
    source: Source,
    beginning: Beginning,
    key: Option<Key>,
    /// Cut only records that are on the disk.
    synced: bool,
    /// The position up to which the log has been cut.
    place: Place,
    /// The number and bytes of a record that did not fit, or fits only in parts.
    held: Option<(u64, Vec<u8>)>,
}

/// The beginning of the log in a folder, or `None` while it is empty.
pub(super) fn beginning(folder: &Path) -> Result<Option<Beginning>, log::Error> {
    Source::open(folder, 0)?.beginning()
}

/// Whether a server accepts a message that was cut before.
pub(super) fn fits(body: &[u8], max_payload: usize) -> bool {
    body.len() <= max_payload.saturating_sub(HEADERS)
}

impl Packets {
    /// # Errors
    /// [`log::Error::Compacted`] if the next records have other numbers than those that the stream
    /// began with.
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

    /// The next message, with at most this many bytes. `None` if the log has no more records at the
    /// moment.
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

    /// Checks that the log contains what a message has. If the first records of the message have
    /// been folded, only the last one is compared.
    ///
    /// # Errors
    /// [`Error::Diverged`] with the number of the first record that differs or is missing.
    pub(super) fn has(&self, message: &Message, stream: &str) -> Result<(), Error> {
        let other = match self.other(message) {
            Err(log::Error::Compacted { .. }) => match self.other_last(message) {
                // Folded records cannot be compared any more.
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

    /// The first record of a message that differs from the log's or is missing there.
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

    /// The last record of a message, if the log has one with another time under its number, or
    /// none.
    fn other_last(&self, message: &Message) -> Result<Option<u64>, log::Error> {
        let Some((number, at_ns)) = message.last() else {
            return Ok(None);
        };
        let found = self.behind(number.saturating_sub(1))?.read()?;
        let same = found.is_some_and(|record| record.at_ns == at_ns);
        Ok((!same).then_some(number))
    }

    /// The log's records after this one.
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
