//! What a comparison has found.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::Hash;
use crate::tree::Stale;

/// Differences are listed up to this many, and counted beyond.
const MAX_LISTED: usize = 1000;
/// Where all that differs is to be looked at again.
const ALL: usize = 100_000;

/// What a folder is beside a log's tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub epoch: u64,
    /// Names that were compared.
    pub names: u64,
    /// Bytes that were read of the folder.
    pub bytes: u64,
    /// The first thousand, in the order of their paths.
    pub differences: Vec<Difference>,
    /// How many there are.
    pub differing: u64,
    /// What is known of neither: the first thousand.
    pub undecided: Vec<Uncertainty>,
    pub undecided_count: u64,
    /// Files with 64 KiB blocks of zeros that take place on the disk on one side only. No difference.
    pub holes: u64,
    /// Names below which another file system is mounted: no part of the tree.
    pub mounted: u64,
    /// Names that the log's patterns leave out, with all below them: no part of the tree either.
    pub left_out: u64,
    /// Files that the epoch has an earlier state of: that is what was compared.
    pub stale: Stale,
    /// Ended before all was compared.
    pub partial: bool,
    /// A hundred thousand are listed.
    pub(super) all: bool,
    /// Of the log's tree and of the folder's, where all of both is known.
    pub hashes: Option<(Hash, Hash)>,
}

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Below the root; the root's own is empty.
    pub path: PathBuf,
    pub what: What,
    /// What the log says, and what the folder has.
    pub log: String,
    pub folder: String,
    /// For bytes, where they differ: offset and length, in whole blocks of 64 KiB, a thousand at most.
    pub ranges: Vec<(u64, u64)>,
}

/// What could not be compared, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncertainty {
    pub path: PathBuf,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Not in the folder, with all below it.
    Missing,
    /// Only in the folder, with all below it.
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
    /// Every byte and name is the same, and that is known.
    pub fn equal(&self) -> bool {
        self.differing == 0 && self.undecided_count == 0 && !self.partial
    }

    /// How many are counted and not listed.
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
