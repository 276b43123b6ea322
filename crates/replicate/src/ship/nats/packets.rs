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
const TOGETHER: usize = 256 << 10;
/// The largest content of a message, in bytes: half of what a server takes unless told otherwise.
const LARGEST: usize = (512 << 10) - BESIDES;

/// What headers take of that.
const HEADERS: usize = 768;
/// The least that a server has to take, in bytes: most of it would be headers.
pub(super) const LEAST: usize = 8 << 10;

/// A message to be published.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) body: Vec<u8>,
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
        let largest = LARGEST.min(max_payload.saturating_sub(BESIDES));
        let together = TOGETHER.min(largest);
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

    /// Whether the log has what a message says.
    ///
    /// # Errors
    /// [`Error::Diverged`] with the number of the first record that is another there, or missing.
    pub(super) fn has(&self, message: &Message, stream: &str) -> Result<(), Error> {
        let diverged = |number| Error::Diverged {
            stream: stream.to_owned(),
            number,
        };
        let mut place = message.from;
        place.part = 0;
        let opened = Self::open(&self.folder, self.beginning, place, None, false);
        let mut from = match opened {
            // What has been compacted cannot be compared any more.
            Err(log::Error::Compacted { .. }) => return Ok(()),
            opened => opened?.source,
        };
        let mut next = || match from.read() {
            Err(log::Error::Compacted { .. }) => Ok(None),
            read => read.map(Some),
        };
        match &message.content {
            Content::Records(records) => {
                for record in records {
                    match next()? {
                        Some(found) if found.as_ref() == Some(record) => {}
                        Some(_) => return Err(diverged(record.number)),
                        None => return Ok(()),
                    }
                }
            }
            Content::Part { total, bytes } => {
                let number = message.from.whole + 1;
                let Some(found) = next()? else {
                    return Ok(());
                };
                let found = found.map(|record| encoded(&record)).unwrap_or_default();
                let (from, to) = (message.from.part, message.from.part + bytes.len());
                if found.len() != *total || found.get(from..to) != Some(bytes) {
                    return Err(diverged(number));
                }
            }
        }
        Ok(())
    }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(record, &mut bytes);
    bytes
}
