//! What a tree is to who compares it, whether a log says it or a folder has it.

use std::io;

use rustix::io::Errno;

use crate::log;
use crate::record::{Attributes, Kind, Name, Xattr};

/// Why a side cannot say something.
#[derive(Debug)]
pub(super) enum Fault {
    Log(log::Error),
    /// The log has no tree.
    Nothing,
    /// Of one file.
    Io(io::Error),
    /// Who watches wants no more.
    Ended,
}

/// One of two trees.
pub(super) trait Side {
    /// What a name leads to.
    type Lookup;

    fn root(&mut self) -> Result<Self::Lookup, Fault>;

    /// The names in a directory, sorted.
    fn names(&mut self, directory: &Self::Lookup) -> Result<Vec<Name>, Fault>;

    /// None where the name is no part of the tree, or not any more.
    fn find(
        &mut self,
        directory: &Self::Lookup,
        name: &Name,
    ) -> Result<Option<Self::Lookup>, Fault>;

    fn seen(&mut self, found: &Self::Lookup) -> Result<Metadata, Fault>;

    /// Where data begins, from an offset on: all before is zeros that take no place. None where there
    /// is no more.
    fn data_from(&mut self, found: &mut Self::Lookup, at: u64) -> Result<Option<u64>, Fault>;

    /// Fills it with the bytes from an offset on.
    fn read(&mut self, found: &mut Self::Lookup, at: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Whether it is not as it was when it was found: what was read of it may be of no moment.
    fn changed(&mut self, found: &Self::Lookup, seen: &Metadata) -> Result<bool, Fault>;
}

/// What is compared of a file, its bytes and names apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    pub(super) extended: Vec<Xattr>,
    pub(super) size: u64,
    /// For one that may have several names: which names mean the same file.
    pub(super) shared: Option<(u64, u64)>,
    /// When it was changed last, where that is known.
    pub(super) changed_ns: i64,
}

/// The other side of a tree that is hashed alone.
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
