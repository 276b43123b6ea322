//! The fields of a record: their encoding and their form in listings. Integers are little-endian,
//! and each list and string follows its length. The bytes are untrusted: a length that does not fit
//! is an error before anything is allocated for it.

use serde_json::{Map, Value};

use super::{Attributes, File, Kind, Name, NoName, Origin, Part, Xattr};

/// The fields of a record in a listing, by name.
pub type Members = Map<String, Value>;

pub(crate) trait Field: Sized {
    /// Appends the encoded field.
    fn put(&self, to: &mut Vec<u8>);

    /// Decodes the field at the cursor.
    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord>;

    /// Adds the field under this name. A field with several values has a name for each.
    fn show(&self, name: &str, to: &mut Members);
}

/// Bytes that are not a valid record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    #[error("a record ends too early")]
    Short,
    #[error("{0} bytes follow a record")]
    Long(usize),
    #[error("no such {what}: {value}")]
    Unknown { what: &'static str, value: u8 },
    #[error("a file's mode has more than twelve bits: {0:o}")]
    Mode(u16),
    #[error("a text is not UTF-8")]
    Text,
    #[error(transparent)]
    Name(#[from] NoName),
}

/// Bytes that have not been read yet.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidRecord> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(InvalidRecord::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, InvalidRecord> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, InvalidRecord> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, InvalidRecord> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, InvalidRecord> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], InvalidRecord> {
        let length = self.u32()? as usize;
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(InvalidRecord::Short)?;
        self.0 = rest;
        Ok(taken)
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(length(bytes.len()));
    to.extend(bytes);
}

/// A length that does not fit into four bytes results in a record that the log rejects as too
/// large.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn add(to: &mut Members, name: &str, value: impl Into<Value>) {
    to.insert(name.to_owned(), value.into());
}

impl Field for u64 {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.to_le_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        from.u64()
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, *self);
    }
}

/// Listings show the number of bytes.
impl Field for Vec<u8> {
    fn put(&self, to: &mut Vec<u8>) {
        put_bytes(to, self);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(from.bytes()?.to_vec())
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, self.len());
    }
}

impl Field for String {
    fn put(&self, to: &mut Vec<u8>) {
        put_bytes(to, self.as_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        let text = from.bytes()?.to_vec();
        Self::from_utf8(text).map_err(|_| InvalidRecord::Text)
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, self.as_str());
    }
}

impl Field for Vec<String> {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(length(self.len()));
        for text in self {
            text.put(to);
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        let mut texts = Self::new();
        for _ in 0..from.u32()? {
            texts.push(Field::take(from)?);
        }
        Ok(texts)
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, self.as_slice());
    }
}

impl Field for Vec<(File, File)> {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(length(self.len()));
        for (one, other) in self {
            one.put(to);
            other.put(to);
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        let mut pairs = Self::new();
        for _ in 0..from.u32()? {
            pairs.push((Field::take(from)?, Field::take(from)?));
        }
        Ok(pairs)
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, self.len());
    }
}

impl Field for File {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.inode.to_le_bytes());
        to.extend(self.generation.to_le_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(Self {
            inode: from.u64()?,
            generation: from.u32()?,
        })
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, self.to_string());
    }
}

impl Field for Name {
    fn put(&self, to: &mut Vec<u8>) {
        put_bytes(to, self.as_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(Self::new(from.bytes()?)?)
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, text(self.as_bytes()));
    }
}

impl Field for Kind {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Regular => to.push(0),
            Self::Directory => to.push(1),
            Self::Symlink(target) => {
                to.push(2);
                target.put(to);
            }
            Self::Fifo => to.push(3),
            Self::Socket => to.push(4),
            Self::CharacterDevice(number) => {
                to.push(5);
                number.put(to);
            }
            Self::BlockDevice(number) => {
                to.push(6);
                number.put(to);
            }
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(match from.u8()? {
            0 => Self::Regular,
            1 => Self::Directory,
            2 => Self::Symlink(Field::take(from)?),
            3 => Self::Fifo,
            4 => Self::Socket,
            5 => Self::CharacterDevice(from.u64()?),
            6 => Self::BlockDevice(from.u64()?),
            value => return Err(unknown("kind", value)),
        })
    }

    fn show(&self, name: &str, to: &mut Members) {
        add(to, name, self.to_string());
    }
}

impl Field for Attributes {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.mode.to_le_bytes());
        to.extend(self.uid.to_le_bytes());
        to.extend(self.gid.to_le_bytes());
        to.extend(self.modified_ns.to_le_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        let mode = from.u16()?;
        if mode > 0o7777 {
            return Err(InvalidRecord::Mode(mode));
        }
        Ok(Self {
            mode,
            uid: from.u32()?,
            gid: from.u32()?,
            modified_ns: i64::from_le_bytes(from.array()?),
        })
    }

    fn show(&self, _: &str, to: &mut Members) {
        add(to, "mode", format!("{:04o}", self.mode));
        add(to, "uid", self.uid);
        add(to, "gid", self.gid);
        add(to, "modified_ns", self.modified_ns);
    }
}

/// Listings show the names.
impl Field for Vec<Xattr> {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(length(self.len()));
        for (name, value) in self {
            put_bytes(to, name);
            put_bytes(to, value);
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        // The vector grows with the entries found, because the number of them is untrusted.
        let mut all = Self::new();
        for _ in 0..from.u32()? {
            all.push((from.bytes()?.to_vec(), from.bytes()?.to_vec()));
        }
        Ok(all)
    }

    fn show(&self, name: &str, to: &mut Members) {
        let names: Vec<String> = self.iter().map(|(name, _)| text(name)).collect();
        add(to, name, names);
    }
}

impl Field for Origin {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self == Self::ReadBack));
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        match from.u8()? {
            0 => Ok(Self::Exact),
            1 => Ok(Self::ReadBack),
            value => Err(unknown("origin", value)),
        }
    }

    fn show(&self, name: &str, to: &mut Members) {
        let shown = match self {
            Self::Exact => "exact",
            Self::ReadBack => "read-back",
        };
        add(to, name, shown);
    }
}

impl Field for Part {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Range { offset, length } => {
                to.push(0);
                offset.put(to);
                length.put(to);
            }
            Self::Attributes => to.push(1),
            Self::Names => to.push(2),
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, InvalidRecord> {
        Ok(match from.u8()? {
            0 => Self::Range {
                offset: from.u64()?,
                length: from.u64()?,
            },
            1 => Self::Attributes,
            2 => Self::Names,
            value => return Err(unknown("part", value)),
        })
    }

    fn show(&self, name: &str, to: &mut Members) {
        let part = match self {
            Self::Range { offset, length } => {
                add(to, "offset", *offset);
                add(to, "bytes", *length);
                "bytes"
            }
            Self::Attributes => "attributes",
            Self::Names => "names",
        };
        add(to, name, part);
    }
}

pub(super) fn unknown(what: &'static str, value: u8) -> InvalidRecord {
    InvalidRecord::Unknown { what, value }
}
