//! The reasons for which a record cannot follow the earlier ones.

use crate::record::{File, Name};

/// A record that no capture writes. The log was manipulated or is defective: take a new one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("record {found} follows where {expected} is due: records are missing")]
    Gap { expected: u64, found: u64 },
    #[error("the log does not begin with the start of a tree")]
    NoStart,
    #[error("{file} is not known")]
    Unknown { file: File },
    #[error("{file} is new a second time")]
    Again { file: File },
    #[error("{file} is gone, but still has a name or names in it")]
    InUse { file: File },
    #[error("{file} has a name in it, but is no directory")]
    NoDirectory { file: File },
    #[error("{file} has content, but is no regular file")]
    NoContent { file: File },
    #[error("{file} would have {size} bytes, more than a file can have")]
    TooLarge { file: File, size: u64 },
    #[error("{file} would be in {directory}, which it contains")]
    Cycle { file: File, directory: File },
    #[error("{directory} has no entry {name:?}")]
    NoEntry { directory: File, name: Name },
    #[error("epoch {number} follows epoch {last}")]
    Epoch { number: u64, last: u64 },
    #[error("term {number} does not follow term {last} at epoch {epoch}")]
    Term { number: u64, last: u64, epoch: u64 },
    #[error("files are renumbered, but {0}")]
    Renumber(&'static str),
    #[error("an epoch ends while {file} is in doubt")]
    Doubt { file: File },
    #[error("an epoch ends while {file} has entries, but no path leads to it")]
    Adrift { file: File },
}
