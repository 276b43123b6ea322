//! What the log says: each change of the source's tree, in the order in which it took place.
//!
//! Records speak of files by what stays the same when they are renamed, and bind names to files
//! separately: a replica can then be renamed, linked and unlinked exactly as the source was.

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

/// A file of the source. Inode numbers are used again; the generation tells one use from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File {
    pub inode: u64,
    pub generation: u32,
}

/// One name in a directory: any bytes but `/` and NUL, 1 to 255 of them, never `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

/// What a file is; it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Regular,
    Directory,
    /// Its target, as the source has it: never followed.
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    /// Its device number, as `st_rdev` has it.
    CharacterDevice(u64),
    BlockDevice(u64),
}

/// What `chmod`, `chown` and `utimensat` change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The lower twelve bits of `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// An extended attribute: name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Where bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Copied from the page cache while the write held the file's lock.
    Exact,
    /// Read from the file later, because what was written was not seen.
    ReadBack,
}

/// Of what something is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes from an offset on; a length of `u64::MAX` means all that follow.
    Range { offset: u64, length: u64 },
    /// Attributes, extended ones and size.
    Attributes,
    /// Which names a directory has.
    Names,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Consecutive from 1 on: a gap is a defect.
    pub number: u64,
    /// When the capture wrote it, in nanoseconds since 1970.
    pub at_ns: u64,
    pub entry: Entry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Forget everything: what follows says the whole tree anew, below this directory.
    Start {
        root: File,
    },
    /// Which tree follows, or goes on.
    Source(Source),
    /// Another tree goes on with the log: it follows an epoch.
    Term(Term),
    /// From here on, files are called otherwise, all of them: what each was called and is called. The last one of
    /// several in a row ends it.
    Renumber {
        pairs: Vec<(File, File)>,
        last: bool,
    },
    /// What the log is to have from here on, of what the source has: no epoch until it has.
    Patterns(Patterns),
    Change(Change),
    /// A program has asked for the epoch that follows: it has synced, renamed or linked a file.
    Barrier,
    /// The epoch that follows has an earlier state of this file's content and attributes: it changed all the time.
    Stale {
        file: File,
    },
    /// With all records before, the tree is one that the source had: a replica may show it.
    Epoch {
        number: u64,
    },
}

/// Bytes that are no name of a directory entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of a file: {:?}", String::from_utf8_lossy(.0))]
pub struct NoName(pub Vec<u8>);

impl Record {
    /// How many bytes of a file it has.
    pub(crate) fn bytes(&self) -> usize {
        match &self.entry {
            Entry::Change(Change::Data { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }
}

impl Entry {
    /// What a listing calls it and shows of it.
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
    /// Before every name in their order.
    pub(crate) fn first() -> Self {
        Self(Vec::new())
    }

    /// # Errors
    /// [`NoName`] for what no directory can contain, `.` and `..`.
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
