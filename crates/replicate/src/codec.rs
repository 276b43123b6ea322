//! The encoding of a record: its number, its time, a tag and the fields of its entry
//! (`record::field`). The log adds the checksums.

use crate::patterns::Patterns;
use crate::record::field::{Cursor, Field};
use crate::record::{Change, Entry, Record, Source, Term};

pub use crate::record::field::InvalidRecord;

/// The tags of all entries except changes, whose tags are in `record::change`.
const START: u8 = 1;
const EPOCH: u8 = 2;
const PATTERNS: u8 = 14;

/// Notes are about the log and change no file. Each has the tag of patterns and begins with a
/// pattern that is not UTF-8, which real patterns never do. A reader that does not know notes but
/// uses tags and lengths skips them.
const NOTE: [u8; 13] = [1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0, 0, 0, 0];
/// The tags of notes.
const SOURCE: u8 = 1;
const BARRIER: u8 = 2;
const STALE: u8 = 3;
const TERM: u8 = 4;
const RENUMBER: u8 = 5;

/// Appends the encoded record.
pub fn encode(record: &Record, to: &mut Vec<u8>) {
    record.number.put(to);
    record.at_ns.put(to);
    match &record.entry {
        Entry::Start { root } => {
            to.push(START);
            root.put(to);
        }
        Entry::Epoch { number } => {
            to.push(EPOCH);
            number.put(to);
        }
        Entry::Source(source) => {
            begin_note(SOURCE, to);
            source.put(to);
        }
        Entry::Term(term) => {
            begin_note(TERM, to);
            term.put(to);
        }
        Entry::Renumber { pairs, last } => {
            begin_note(RENUMBER, to);
            to.push(u8::from(*last));
            pairs.put(to);
        }
        Entry::Patterns(patterns) => {
            to.push(PATTERNS);
            patterns.include.put(to);
            patterns.exclude.put(to);
        }
        Entry::Barrier => begin_note(BARRIER, to),
        Entry::Stale { file } => {
            begin_note(STALE, to);
            file.put(to);
        }
        Entry::Change(change) => change.encode(to),
    }
}

/// # Errors
/// [`InvalidRecord`] unless the bytes are exactly one record.
pub fn decode(bytes: &[u8]) -> Result<Record, InvalidRecord> {
    let mut from = Cursor(bytes);
    let number = from.u64()?;
    let at_ns = from.u64()?;
    let entry = match from.u8()? {
        START => Entry::Start {
            root: Field::take(&mut from)?,
        },
        EPOCH => Entry::Epoch {
            number: from.u64()?,
        },
        PATTERNS => match from.0.strip_prefix(&NOTE) {
            Some(rest) => {
                from.0 = rest;
                decode_note(&mut from)?
            }
            None => Entry::Patterns(Patterns {
                include: Field::take(&mut from)?,
                exclude: Field::take(&mut from)?,
            }),
        },
        tag => Entry::Change(Change::decode(tag, &mut from)?),
    };
    if from.0.is_empty() {
        Ok(Record {
            number,
            at_ns,
            entry,
        })
    } else {
        Err(InvalidRecord::Long(from.0.len()))
    }
}

fn begin_note(tag: u8, to: &mut Vec<u8>) {
    to.push(PATTERNS);
    to.extend(NOTE);
    to.push(tag);
}

fn decode_note(from: &mut Cursor<'_>) -> Result<Entry, InvalidRecord> {
    match from.u8()? {
        SOURCE => Ok(Entry::Source(Source::take(from)?)),
        BARRIER => Ok(Entry::Barrier),
        STALE => Ok(Entry::Stale {
            file: Field::take(from)?,
        }),
        TERM => Ok(Entry::Term(Term::take(from)?)),
        RENUMBER => Ok(Entry::Renumber {
            last: match from.u8()? {
                0 => false,
                1 => true,
                value => {
                    let what = "end of a renumbering";
                    return Err(InvalidRecord::Unknown { what, value });
                }
            },
            pairs: Field::take(from)?,
        }),
        value => Err(InvalidRecord::Unknown {
            what: "note",
            value,
        }),
    }
}

/// The number and the time of a record, which are its first fields.
pub(crate) fn number_and_time(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut from = Cursor(bytes);
    Some((from.u64().ok()?, from.u64().ok()?))
}
