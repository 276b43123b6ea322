//! How a record is written as bytes: little-endian, each list and string behind its length. Bytes may
//! come from anybody: what does not fit is an error before anything is allocated for it. Checksums are
//! the log's.

use crate::patterns::Patterns;
use crate::record::{
    Attributes, Change, Entry, Extended, File, Kind, Name, NoName, Origin, Part, Record,
};

/// Bytes that are no record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a record ends too early")]
    Short,
    #[error("{0} bytes follow a record")]
    Long(usize),
    #[error("no such {what}: {value}")]
    Unknown { what: &'static str, value: u8 },
    #[error("a file's mode has more than twelve bits: {0:o}")]
    Mode(u16),
    #[error("a pattern is no UTF-8")]
    Text,
    #[error(transparent)]
    Name(#[from] NoName),
}

/// Appends the record's bytes.
pub fn encode(record: &Record, to: &mut Vec<u8>) {
    to.extend(record.number.to_le_bytes());
    to.extend(record.at_ns.to_le_bytes());
    match &record.entry {
        Entry::Start { root } => {
            to.push(tag::START);
            put_file(to, *root);
        }
        Entry::Epoch { number } => {
            to.push(tag::EPOCH);
            to.extend(number.to_le_bytes());
        }
        Entry::Patterns(patterns) => {
            to.push(tag::PATTERNS);
            put_texts(to, &patterns.include);
            put_texts(to, &patterns.exclude);
        }
        Entry::Change(change) => put_change(to, change),
    }
}

/// # Errors
/// [`Malformed`], unless the bytes are one record and nothing else.
pub fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
    let mut from = Cursor(bytes);
    let number = from.u64()?;
    let at_ns = from.u64()?;
    let entry = match from.u8()? {
        tag::START => Entry::Start { root: from.file()? },
        tag::EPOCH => Entry::Epoch {
            number: from.u64()?,
        },
        tag::PATTERNS => Entry::Patterns(Patterns {
            include: from.texts()?,
            exclude: from.texts()?,
        }),
        other => Entry::Change(from.change(other)?),
    };
    if from.0.is_empty() {
        Ok(Record {
            number,
            at_ns,
            entry,
        })
    } else {
        Err(Malformed::Long(from.0.len()))
    }
}

/// A record's number and time, of which it says the first.
pub(crate) fn number_and_time(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut from = Cursor(bytes);
    Some((from.u64().ok()?, from.u64().ok()?))
}

mod tag {
    pub(super) const START: u8 = 1;
    pub(super) const EPOCH: u8 = 2;
    pub(super) const NEW: u8 = 3;
    pub(super) const GONE: u8 = 4;
    pub(super) const ATTRIBUTES: u8 = 5;
    pub(super) const EXTENDED: u8 = 6;
    pub(super) const LINK: u8 = 7;
    pub(super) const UNLINK: u8 = 8;
    pub(super) const DATA: u8 = 9;
    pub(super) const SIZE: u8 = 10;
    pub(super) const HOLE: u8 = 11;
    pub(super) const DOUBT: u8 = 12;
    pub(super) const SETTLED: u8 = 13;
    pub(super) const PATTERNS: u8 = 14;
}

fn put_change(to: &mut Vec<u8>, change: &Change) {
    let (tag, file) = head(change);
    to.push(tag);
    put_file(to, file);
    match change {
        Change::New { kind, .. } => put_kind(to, kind),
        Change::Gone { .. } => {}
        Change::Attributes { attributes, .. } => {
            to.extend(attributes.mode.to_le_bytes());
            to.extend(attributes.uid.to_le_bytes());
            to.extend(attributes.gid.to_le_bytes());
            to.extend(attributes.modified_ns.to_le_bytes());
        }
        Change::Extended { all, .. } => {
            to.extend(length(all.len()));
            for (name, value) in all {
                put_bytes(to, name);
                put_bytes(to, value);
            }
        }
        Change::Link { name, file, .. } => {
            put_bytes(to, name.as_bytes());
            put_file(to, *file);
        }
        Change::Unlink { name, .. } => put_bytes(to, name.as_bytes()),
        Change::Data {
            offset,
            bytes,
            origin,
            ..
        } => {
            to.extend(offset.to_le_bytes());
            to.push(u8::from(*origin == Origin::ReadBack));
            put_bytes(to, bytes);
        }
        Change::Size { size, .. } => to.extend(size.to_le_bytes()),
        Change::Hole { offset, length, .. } => {
            to.extend(offset.to_le_bytes());
            to.extend(length.to_le_bytes());
        }
        Change::Doubt { part, .. } | Change::Settled { part, .. } => put_part(to, part),
    }
}

/// What each change begins with; for names, the file is the directory.
fn head(change: &Change) -> (u8, File) {
    match *change {
        Change::New { file, .. } => (tag::NEW, file),
        Change::Gone { file } => (tag::GONE, file),
        Change::Attributes { file, .. } => (tag::ATTRIBUTES, file),
        Change::Extended { file, .. } => (tag::EXTENDED, file),
        Change::Link { directory, .. } => (tag::LINK, directory),
        Change::Unlink { directory, .. } => (tag::UNLINK, directory),
        Change::Data { file, .. } => (tag::DATA, file),
        Change::Size { file, .. } => (tag::SIZE, file),
        Change::Hole { file, .. } => (tag::HOLE, file),
        Change::Doubt { file, .. } => (tag::DOUBT, file),
        Change::Settled { file, .. } => (tag::SETTLED, file),
    }
}

fn put_kind(to: &mut Vec<u8>, kind: &Kind) {
    match kind {
        Kind::Regular => to.push(0),
        Kind::Directory => to.push(1),
        Kind::Symlink(target) => {
            to.push(2);
            put_bytes(to, target);
        }
        Kind::Fifo => to.push(3),
        Kind::Socket => to.push(4),
        Kind::CharacterDevice(number) => {
            to.push(5);
            to.extend(number.to_le_bytes());
        }
        Kind::BlockDevice(number) => {
            to.push(6);
            to.extend(number.to_le_bytes());
        }
    }
}

fn put_part(to: &mut Vec<u8>, part: &Part) {
    match part {
        Part::Range { offset, length } => {
            to.push(0);
            to.extend(offset.to_le_bytes());
            to.extend(length.to_le_bytes());
        }
        Part::Attributes => to.push(1),
        Part::Names => to.push(2),
    }
}

fn put_file(to: &mut Vec<u8>, file: File) {
    to.extend(file.inode.to_le_bytes());
    to.extend(file.generation.to_le_bytes());
}

fn put_texts(to: &mut Vec<u8>, texts: &[String]) {
    to.extend(length(texts.len()));
    for text in texts {
        put_bytes(to, text.as_bytes());
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(length(bytes.len()));
    to.extend(bytes);
}

/// A length that four bytes cannot say makes a record that the log refuses as too large.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Malformed> {
        let length = self.u32()?;
        Ok(self.take(length as usize)?.to_vec())
    }

    fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let mut texts = Vec::new();
        for _ in 0..self.u32()? {
            texts.push(String::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)?);
        }
        Ok(texts)
    }

    fn name(&mut self) -> Result<Name, Malformed> {
        let length = self.u32()?;
        Ok(Name::new(self.take(length as usize)?)?)
    }

    fn file(&mut self) -> Result<File, Malformed> {
        Ok(File {
            inode: self.u64()?,
            generation: self.u32()?,
        })
    }

    fn change(&mut self, tag: u8) -> Result<Change, Malformed> {
        let file = self.file()?;
        Ok(match tag {
            tag::NEW => Change::New {
                file,
                kind: self.kind()?,
            },
            tag::GONE => Change::Gone { file },
            tag::ATTRIBUTES => Change::Attributes {
                file,
                attributes: self.attributes()?,
            },
            tag::EXTENDED => Change::Extended {
                file,
                all: self.extended()?,
            },
            tag::LINK => Change::Link {
                directory: file,
                name: self.name()?,
                file: self.file()?,
            },
            tag::UNLINK => Change::Unlink {
                directory: file,
                name: self.name()?,
            },
            tag::DATA => Change::Data {
                file,
                offset: self.u64()?,
                origin: self.origin()?,
                bytes: self.bytes()?,
            },
            tag::SIZE => Change::Size {
                file,
                size: self.u64()?,
            },
            tag::HOLE => Change::Hole {
                file,
                offset: self.u64()?,
                length: self.u64()?,
            },
            tag::DOUBT => Change::Doubt {
                file,
                part: self.part()?,
            },
            tag::SETTLED => Change::Settled {
                file,
                part: self.part()?,
            },
            value => {
                return Err(Malformed::Unknown {
                    what: "change",
                    value,
                });
            }
        })
    }

    fn kind(&mut self) -> Result<Kind, Malformed> {
        Ok(match self.u8()? {
            0 => Kind::Regular,
            1 => Kind::Directory,
            2 => Kind::Symlink(self.bytes()?),
            3 => Kind::Fifo,
            4 => Kind::Socket,
            5 => Kind::CharacterDevice(self.u64()?),
            6 => Kind::BlockDevice(self.u64()?),
            value => {
                return Err(Malformed::Unknown {
                    what: "kind",
                    value,
                });
            }
        })
    }

    fn attributes(&mut self) -> Result<Attributes, Malformed> {
        let mode = self.u16()?;
        if mode > 0o7777 {
            return Err(Malformed::Mode(mode));
        }
        Ok(Attributes {
            mode,
            uid: self.u32()?,
            gid: self.u32()?,
            modified_ns: i64::from_le_bytes(self.array()?),
        })
    }

    fn extended(&mut self) -> Result<Vec<Extended>, Malformed> {
        // Grown as they are found: the number of them is only a claim.
        let mut all = Vec::new();
        for _ in 0..self.u32()? {
            all.push((self.bytes()?, self.bytes()?));
        }
        Ok(all)
    }

    fn origin(&mut self) -> Result<Origin, Malformed> {
        match self.u8()? {
            0 => Ok(Origin::Exact),
            1 => Ok(Origin::ReadBack),
            value => Err(Malformed::Unknown {
                what: "origin",
                value,
            }),
        }
    }

    fn part(&mut self) -> Result<Part, Malformed> {
        Ok(match self.u8()? {
            0 => Part::Range {
                offset: self.u64()?,
                length: self.u64()?,
            },
            1 => Part::Attributes,
            2 => Part::Names,
            value => {
                return Err(Malformed::Unknown {
                    what: "part",
                    value,
                });
            }
        })
    }
}
