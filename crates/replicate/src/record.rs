//! The contents of the log: each change of the source's tree, in the order in which it took place.
//!
//! Records identify files by a value that stays the same when they are renamed, and bind names to
//! files separately. A replica can therefore be renamed, linked and unlinked exactly as the source
//! was.

mod change;
pub(crate) mod field;
mod source;
mod term;

use std::fmt;

use crate::patterns::Patterns;

pub(crate) use change::Subject;
pub use change::{Change, Edit};
use field::Field as _;
pub use field::Members;
pub use source::Source;
pub(crate) use term::Renumbering;
pub use term::Term;

/// A file of the source. Inode numbers are reused, and the generation distinguishes the uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File {
    pub inode: u64,
    pub generation: u32,
}

/// One name in a directory: 1 to 255 bytes other than `/` and NUL, and never `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

/// The kind of a file, which never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Regular,
    Directory,
    /// The target, as the source has it. It is never followed.
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    /// The device number, as in `st_rdev`.
    CharacterDevice(u64),
    BlockDevice(u64),
}

/// The attributes that `chmod`, `chown` and `utimensat` change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The lower twelve bits of `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// The name and the value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// How the capture obtained bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Copied from the page cache while the write held the file's lock.
    Exact,
    /// Read from the file later, because the written bytes were not captured.
    ReadBack,
}

/// A part of a file that can be in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A range of bytes. A length of `u64::MAX` means everything after the offset.
    Range { offset: u64, length: u64 },
    /// Attributes, extended attributes and size.
    Attributes,
    /// The names in a directory.
    Names,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Consecutive from 1. A gap is a defect.
    pub number: u64,
    /// When the capture wrote it, in nanoseconds since 1970.
    pub at_ns: u64,
    pub entry: Entry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Discards everything. The records that follow describe the whole tree below this directory.
    Start {
        root: File,
    },
    /// The identity of the tree that the log follows from here on.
    Source(Source),
    /// Another tree continues the log. This record follows an epoch.
    Term(Term),
    /// From here on, all files have other identifiers. Each pair has the old and the new one. The
    /// last of several such records in a row is marked.
    Renumber {
        pairs: Vec<(File, File)>,
        last: bool,
    },
    /// The patterns that select which part of the source the log has from here on. There is no
    /// epoch until the log agrees with them.
    Patterns(Patterns),
    Change(Change),
    /// A program has requested the epoch that follows: it has synced, renamed or linked a file.
    Barrier,
    /// The epoch that follows has an earlier state of this file's content and attributes, because
    /// the file changed all the time.
    Stale {
        file: File,
    },
    /// With all records before this one, the tree is a state that the source had. A replica may
    /// show it.
    Epoch {
        number: u64,
    },
}

/// Bytes that are not a valid name of a directory entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of a file: {:?}", String::from_utf8_lossy(.0))]
pub struct NoName(pub Vec<u8>);

impl Record {
    /// The number of bytes of a file in the record.
    pub(crate) fn bytes(&self) -> usize {
        match &self.entry {
            Entry::Change(Change::Data { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }
}

impl Entry {
    /// The record's name and fields for listings.
    pub fn describe(&self) -> (&'static str, Members) {
        let mut members = Members::new();
        let name = match self {
            Self::Start { root } => {
                root.show("root", &mut members);
                "start"
            }
            Self::Source(source) => {
                source.show(&mut members);
                "source"
            }
            Self::Term(term) => {
                term.show(&mut members);
                "term"
            }
            Self::Renumber { pairs, .. } => {
                (pairs.len() as u64).show("files", &mut members);
                "renumber"
            }
            Self::Patterns(patterns) => {
                patterns.include.show("include", &mut members);
                patterns.exclude.show("exclude", &mut members);
                "patterns"
            }
            Self::Change(change) => return change.describe(),
            Self::Barrier => "barrier",
            Self::Stale { file } => {
                file.show("file", &mut members);
                "stale"
            }
            Self::Epoch { number } => {
                number.show("epoch", &mut members);
                "epoch"
            }
        };
        (name, members)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regular => f.write_str("file"),
            Self::Directory => f.write_str("directory"),
            Self::Symlink(target) => write!(f, "symlink to {}", target.escape_ascii()),
            Self::Fifo => f.write_str("fifo"),
            Self::Socket => f.write_str("socket"),
            Self::CharacterDevice(device) => write!(f, "character device {device:#x}"),
            Self::BlockDevice(device) => write!(f, "block device {device:#x}"),
        }
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} (generation {})", self.inode, self.generation)
    }
}

impl Name {
    /// A value that sorts before every name.
    pub(crate) fn first() -> Self {
        Self(Vec::new())
    }

    /// # Errors
    /// [`NoName`] for bytes that no directory can contain, and for `.` and `..`.
    pub fn new(bytes: &[u8]) -> Result<Self, NoName> {
        let fits = (1..=255).contains(&bytes.len()) && bytes != b"." && bytes != b"..";
        if !fits || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(NoName(bytes.to_vec()));
        }
        Ok(Self(bytes.to_vec()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}
