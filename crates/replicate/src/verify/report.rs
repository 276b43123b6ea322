//! The results of a comparison.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::Hash;
use crate::tree::Stale;

/// How many differences are listed. All are counted.
const MAX_LISTED: usize = 1000;
/// The limit for a comparison whose differences must all be examined again.
const ALL: usize = 100_000;

/// How a folder compares with the tree of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub epoch: u64,
    /// The number of names compared.
    pub names: u64,
    /// The number of bytes read from the folder.
    pub bytes: u64,
    /// The first thousand differences, in the order of their paths.
    pub differences: Vec<Difference>,
    /// The total number of differences.
    pub differing: u64,
    /// The first thousand names that could not be compared.
    pub undecided: Vec<Uncertainty>,
    pub undecided_count: u64,
    /// Files with 64 KiB blocks of zeros that are allocated on one side only. This is not a
    /// difference.
    pub holes: u64,
    /// Names with another file system mounted on them. They are not part of the tree.
    pub mounted: u64,
    /// Names that the log's patterns exclude, without those below them. They are not part of the
    /// tree.
    pub left_out: u64,
    /// Files that the epoch has in an earlier state. That state was compared.
    pub stale: Stale,
    /// The comparison ended before everything was compared.
    pub partial: bool,
    /// A hundred thousand differences are listed instead of a thousand.
    pub(super) all: bool,
    /// The hashes of the log's tree and of the folder's, if both are completely known.
    pub hashes: Option<(Hash, Hash)>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path below the root, empty for the root.
    pub path: PathBuf,
    pub what: What,
    /// The value in the log and the value in the folder.
    pub log: String,
    pub folder: String,
    /// For bytes, the ranges that differ: offset and length, in whole blocks of 64 KiB, at most a
    /// thousand.
    pub ranges: Vec<(u64, u64)>,
}

/// Something that could not be compared, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncertainty {
    pub path: PathBuf,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Missing in the folder, with everything below it.
    Missing,
    /// Only in the folder, with everything below it.
    Extra,
    Kind,
    Size,
    Bytes,
    Mode,
    Owner,
    Modified,
    Extended,
    Links,
    Target,
    Device,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Kind => "kind",
            Self::Size => "size",
            Self::Bytes => "bytes",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Modified => "modified",
            Self::Extended => "extended attributes",
            Self::Links => "hard links",
            Self::Target => "target",
            Self::Device => "device",
        }
    }
}

impl Verdict {
    /// Whether every byte and name is known to be the same.
    pub fn equal(&self) -> bool {
        self.differing == 0 && self.undecided_count == 0 && !self.partial
    }

    /// The number of differences that are counted but not listed.
    pub(super) fn unlisted(&self) -> u64 {
        let listed = self.differences.len() + self.undecided.len();
        self.differing + self.undecided_count - listed as u64
    }

    fn most(&self) -> usize {
        if self.all { ALL } else { MAX_LISTED }
    }

    pub(super) fn differ(&mut self, difference: Difference) {
        self.differing += 1;
        if self.differences.len() < self.most() {
            self.differences.push(difference);
        }
    }

    pub(super) fn undecide(&mut self, path: &[u8], why: String) {
        self.undecided_count += 1;
        if self.undecided.len() < self.most() {
            let path = path_of(path);
            self.undecided.push(Uncertainty { path, why });
        }
    }
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}
