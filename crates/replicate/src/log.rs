//! The log: records in append-only segments in a folder, each record framed by its length and
//! checksums. A record whose write was interrupted by a crash of the machine or the writer is cut
//! off. Any other damage is an error that names the place, unless it is at the end of the log and
//! looks like an interrupted write.

mod compact;
mod disk_usage;
mod folder;
mod frame;
mod open;
mod reader;
mod recover;
mod segment;
mod terms;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

pub use compact::{Compacting, CompactionReport, compact, compact_while};
pub use disk_usage::{DiskUsage, foldable, seal, try_room};
pub use folder::{check, check_followed, check_new};
pub use frame::MAX_RECORD;
pub use reader::{LocatedRecord, Place, Reader};
pub use segment::{Beginning, Id};
pub use terms::{TermStart, terms};
pub use writer::{Durability, Last, Options, Writer};

use datapath::{Classify, ErrorClass};

use crate::tree::Invalid;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{0} is not a log: it has no segments; name a folder that `lowroad replicate capture --to` or `receive --to` \
         writes"
    )]
    NotALog(PathBuf),
    #[error(
        "{0}: there is no log yet; start `lowroad replicate capture --to` or `receive --to` first"
    )]
    NoLog(PathBuf),
    #[error(
        "{0} has other files in it and is not a log; name a new or an empty folder for the log"
    )]
    Occupied(PathBuf),
    #[error("{0} has no epoch yet; wait until its `capture` or `receive` has the whole tree")]
    NoEpochs(PathBuf),
    #[error("{0}: another program writes this log or compacts it; stop that one first")]
    Busy(PathBuf),
    #[error("{path} is damaged at byte {offset}: {what}; take the log again from its source")]
    Damaged {
        path: PathBuf,
        offset: u64,
        what: String,
    },
    #[error("{folder}: record {number} is missing; take the log again from its source")]
    Missing { folder: PathBuf, number: u64 },
    #[error("{0}: segments of different logs are mixed; keep one log in a folder")]
    Mixed(PathBuf),
    #[error("{folder}: record {number} was compacted away; begin with a fresh replica")]
    Compacted { folder: PathBuf, number: u64 },
    #[error("{0}: the log was replaced by another; begin with a fresh replica")]
    Replaced(PathBuf),
    #[error("a record of {0} bytes is larger than the log takes, {MAX_RECORD}: write it in parts")]
    TooLarge(usize),
    #[error("record {found} was received where {expected} is due: records are missing")]
    Gap { expected: u64, found: u64 },
    #[error("{folder} has no epoch {epoch}: `lowroad replicate epochs` lists those it has")]
    NoEpoch { folder: PathBuf, epoch: u64 },
    #[error("epoch {epoch} is in the segment that is still written: compact up to an earlier one")]
    Written { epoch: u64 },
    #[error("records up to epoch {epoch} are as few as they can be: nothing to compact")]
    Compact { epoch: u64 },
    #[error("{0}: the compaction was ended; the log is as it was")]
    Interrupted(PathBuf),
    #[error("{folder}: {invalid}")]
    Invalid { folder: PathBuf, invalid: Invalid },
}

impl Error {
    /// Whether the error is about the named folder: it has no log, or none that can be used yet.
    pub(crate) fn is_of_folder(&self) -> bool {
        matches!(
            self,
            Self::NotALog(_) | Self::NoLog(_) | Self::Occupied(_) | Self::NoEpochs(_)
        )
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let Self::Io { source, .. } = self else {
            return false;
        };
        matches!(source.kind(), StorageFull | QuotaExceeded)
    }

    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            what: what.into(),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotALog(_)
            | Self::NoLog(_)
            | Self::Occupied(_)
            | Self::NoEpochs(_)
            | Self::NoEpoch { .. }
            | Self::Written { .. }
            | Self::Compact { .. }
            | Self::Damaged { .. } => ErrorClass::Input,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorClass::Input
            }
            Self::Io { .. }
            | Self::Busy(_)
            | Self::Missing { .. }
            | Self::Mixed(_)
            | Self::Compacted { .. }
            | Self::Replaced(_)
            | Self::TooLarge(_)
            | Self::Gap { .. }
            | Self::Interrupted(_)
            | Self::Invalid { .. } => ErrorClass::Failed,
        }
    }
}
