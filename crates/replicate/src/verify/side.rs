//! The view of a tree during a comparison, for the tree of a log and for a folder.

use std::io;

use rustix::io::Errno;

use crate::log;
use crate::record::{Attributes, Kind, Name, Xattr};

/// Why a side cannot answer.
#[derive(Debug)]
pub(super) enum Fault {
    Log(log::Error),
    /// The log has no tree.
    Nothing,
    /// An error of one file.
    Io(io::Error),
    /// The watcher ended the comparison.
    Ended,
}

/// One of two trees.
pub(super) trait Side {
    /// The result of looking up a name.
    type Lookup;

    fn root(&mut self) -> Result<Self::Lookup, Fault>;

    /// The names in a directory, sorted.
    fn names(&mut self, directory: &Self::Lookup) -> Result<Vec<Name>, Fault>;

    /// `None` if the name is not part of the tree, or no longer.
    fn find(
        &mut self,
        directory: &Self::Lookup,
        name: &Name,
    ) -> Result<Option<Self::Lookup>, Fault>;

    fn seen(&mut self, found: &Self::Lookup) -> Result<Metadata, Fault>;

    /// The offset of the next data at or after an offset. Everything before it is a hole. `None` if
    /// there is no more data.
    fn data_from(&mut self, found: &mut Self::Lookup, at: u64) -> Result<Option<u64>, Fault>;

    /// Fills the buffer with the bytes at an offset.
    fn read(&mut self, found: &mut Self::Lookup, at: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Whether the file has changed since it was looked up. What was read may then mix several
    /// states.
    fn changed(&mut self, found: &Self::Lookup, seen: &Metadata) -> Result<bool, Fault>;
}

/// What is compared of a file, except its bytes and names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    pub(super) extended: Vec<Xattr>,
    pub(super) size: u64,
    /// For a file that may have several names, an identifier of the file.
    pub(super) shared: Option<(u64, u64)>,
    /// When the file was last changed, if known.
    pub(super) changed_ns: i64,
}

/// The missing other side of a tree that is hashed alone.
#[derive(Debug)]
pub(super) struct Nobody;

impl Side for Nobody {
    type Lookup = std::convert::Infallible;

    fn root(&mut self) -> Result<Self::Lookup, Fault> {
        Err(Fault::Nothing)
    }

    fn names(&mut self, directory: &Self::Lookup) -> Result<Vec<Name>, Fault> {
        match *directory {}
    }

    fn find(&mut self, directory: &Self::Lookup, _: &Name) -> Result<Option<Self::Lookup>, Fault> {
        match *directory {}
    }

    fn seen(&mut self, found: &Self::Lookup) -> Result<Metadata, Fault> {
        match *found {}
    }

    fn data_from(&mut self, found: &mut Self::Lookup, _: u64) -> Result<Option<u64>, Fault> {
        match *found {}
    }

    fn read(&mut self, found: &mut Self::Lookup, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        match *found {}
    }

    fn changed(&mut self, found: &Self::Lookup, _: &Metadata) -> Result<bool, Fault> {
        match *found {}
    }
}

impl From<log::Error> for Fault {
    fn from(error: log::Error) -> Self {
        Self::Log(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}
