//! The content of a stream message: some consecutive records of the log, or a part of a record that
//! is too large for one message. It names its log and its records, and has a signature or at least
//! a checksum over everything, so that the broker need not be trusted.

use crate::codec;
use crate::log::{Beginning, MAX_RECORD};
use crate::record::Record;
use crate::ship::Key;

const MAGIC: [u8; 8] = *b"lrnatsm1";
const CHECK: usize = 4;
/// The most bytes that a message takes beside records and parts: numbers, ids of a log and a
/// publisher, and the stream's name. The headers are included, because a server counts them.
pub(super) const BESIDES: usize = 1024 + MAX_NAME;
/// The longest name of a stream that servers accept.
const MAX_NAME: usize = 255;

/// A position in a log: all records up to one, and the first bytes of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) whole: u64,
    /// The number of bytes of the next record.
    pub(super) part: usize,
}

impl Place {
    pub(super) fn behind(whole: u64) -> Self {
        Self { whole, part: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The beginning of the log when the stream was started.
    pub(super) beginning: Beginning,
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Records(Vec<Record>),
    /// A part of the record after `from.whole`. The encoded record has `total` bytes.
    Part {
        total: usize,
        bytes: Vec<u8>,
    },
}

impl Message {
    /// The number of the last record, and when it was written. `None` for a part that does not
    /// contain them.
    pub(super) fn last(&self) -> Option<(u64, u64)> {
        match &self.content {
            Content::Records(records) => {
                let last = records.last()?;
                Some((last.number, last.at_ns))
            }
            Content::Part { bytes, .. } if self.from.part == 0 => codec::number_and_time(bytes),
            Content::Part { .. } => None,
        }
    }
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The message does not have our format.
    Foreign,
    Damaged,
    Unsigned,
    /// The signature does not match this key.
    Forged,
    /// The message is signed, and there is no key to check it with.
    Signed,
}

impl Wrong {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Foreign => "is no part of a log",
            Self::Damaged => "is not as it was written",
            Self::Unsigned => "is not signed",
            Self::Forged => "is not signed with this key",
            Self::Signed => "is signed, and no key was given",
        }
    }
}

/// Appends a record with its length.
pub(super) fn put(record: &[u8], to: &mut Vec<u8>) {
    to.extend(
        u32::try_from(record.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    to.extend(record);
}

/// A message of whole records that [`put`] has appended.
pub(super) fn of_records(
    beginning: &Beginning,
    first: u64,
    last: u64,
    records: &[u8],
    key: Option<&Key>,
) -> Vec<u8> {
    seal(beginning, [first, last, 0, 0], records, key)
}

/// A message with a part of the record with this number, from an offset in its bytes on.
pub(super) fn of_part(
    beginning: &Beginning,
    number: u64,
    record: &[u8],
    range: std::ops::Range<usize>,
    key: Option<&Key>,
) -> Vec<u8> {
    let head = [number, number, range.start as u64, record.len() as u64];
    let bytes = record.get(range).unwrap_or_default();
    seal(beginning, head, bytes, key)
}

fn seal(beginning: &Beginning, head: [u64; 4], content: &[u8], key: Option<&Key>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + BESIDES);
    bytes.extend(MAGIC);
    bytes.push(u8::from(key.is_some()));
    bytes.extend(beginning.id);
    bytes.extend(beginning.first.to_le_bytes());
    bytes.extend(beginning.folded.to_le_bytes());
    for number in head {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(content);
    match key {
        Some(key) => bytes.extend(key.sign(&beginning.id, head[0], &bytes)),
        None => bytes.extend(crc32c::crc32c(&bytes).to_le_bytes()),
    }
    bytes
}

/// Decodes a message. With a key, it must be signed with that key.
pub(super) fn open(bytes: &[u8], key: Option<&Key>) -> Result<Message, Wrong> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(Wrong::Foreign)?;
    let (signed, rest) = rest.split_first().ok_or(Wrong::Damaged)?;
    let (id, mut rest) = rest.split_first_chunk::<16>().ok_or(Wrong::Damaged)?;
    let [first_of_log, folded, first, last, offset, total] = numbers(&mut rest)?;
    let tail = match signed {
        0 => CHECK,
        _ => size_of::<crate::ship::Signature>(),
    };
    let at = bytes.len().checked_sub(tail).ok_or(Wrong::Damaged)?;
    let (said, tail) = bytes.split_at(at);
    match (signed, key) {
        (0, Some(_)) => return Err(Wrong::Unsigned),
        (0, None) if crc32c::crc32c(said).to_le_bytes() == tail => {}
        (0, None) => return Err(Wrong::Damaged),
        (_, Some(key)) if key.signed(id, first, said, tail) => {}
        (_, Some(_)) => return Err(Wrong::Forged),
        (_, None) => return Err(Wrong::Signed),
    }
    let length = rest
        .len()
        .checked_sub(bytes.len() - at)
        .ok_or(Wrong::Damaged)?;
    let content = rest.get(..length).ok_or(Wrong::Damaged)?;
    let before = first.checked_sub(1).ok_or(Wrong::Damaged)?;
    let beginning = Beginning {
        id: *id,
        first: first_of_log,
        folded,
    };
    if total != 0 {
        return part(beginning, before, offset, total, content);
    }
    let records = records(first, last, content)?;
    Ok(Message {
        beginning,
        from: Place::behind(before),
        to: Place::behind(last),
        content: Content::Records(records),
    })
}

fn part(
    beginning: Beginning,
    before: u64,
    offset: u64,
    total: u64,
    content: &[u8],
) -> Result<Message, Wrong> {
    let size = |number: u64| {
        usize::try_from(number)
            .ok()
            .filter(|size| *size <= MAX_RECORD)
    };
    let (offset, total) = size(offset).zip(size(total)).ok_or(Wrong::Damaged)?;
    let end = offset + content.len();
    if end > total || content.is_empty() {
        return Err(Wrong::Damaged);
    }
    let place = |part| Place {
        whole: before,
        part,
    };
    Ok(Message {
        beginning,
        from: place(offset),
        to: if end == total {
            Place::behind(before + 1)
        } else {
            place(end)
        },
        content: Content::Part {
            total,
            bytes: content.to_vec(),
        },
    })
}

fn records(first: u64, last: u64, mut content: &[u8]) -> Result<Vec<Record>, Wrong> {
    let mut records = Vec::new();
    while let Some((length, rest)) = content.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (bytes, rest) = rest.split_at_checked(length).ok_or(Wrong::Damaged)?;
        let record = codec::decode(bytes).map_err(|_| Wrong::Damaged)?;
        if record.number != first + records.len() as u64 {
            return Err(Wrong::Damaged);
        }
        records.push(record);
        content = rest;
    }
    let whole = records.last().map(|record| record.number) == Some(last);
    (content.is_empty() && whole)
        .then_some(records)
        .ok_or(Wrong::Damaged)
}

fn numbers<const N: usize>(from: &mut &[u8]) -> Result<[u64; N], Wrong> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (bytes, rest) = from.split_first_chunk::<8>().ok_or(Wrong::Damaged)?;
        *number = u64::from_le_bytes(*bytes);
        *from = rest;
    }
    Ok(numbers)
}
