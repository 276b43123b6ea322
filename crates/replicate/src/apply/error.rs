//! Why a replica could not be kept.

use std::io;
use std::path::PathBuf;

use datapath::{Classify, ErrorClass};
use rustix::io::Errno;

use crate::log;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("{}: another program applies to this replica; stop that one first", .0.display())]
    Busy(PathBuf),
    #[error("{} is there already and no replica: name another, or an empty directory", .0.display())]
    Occupied(PathBuf),
    #[error("{} is a replica of another log than {}: --fresh makes it one of this", .to.display(), .log.display())]
    OtherLog { to: PathBuf, log: PathBuf },
    #[error(
        "{} does not have epoch {epoch} any more, of which the replica is: --fresh makes it anew",
        .log.display()
    )]
    Behind { log: PathBuf, epoch: u64 },
    #[error(
        "{} was made {} --privileged, which changes what its files have: apply as before, or --fresh makes it anew",
        .to.display(), if *.made { "with" } else { "without" }
    )]
    Privileged { to: PathBuf, made: bool },
    /// A copy of a log that lost its end with the power is behind a replica that did not.
    #[error(
        "{} ends before epoch {epoch}, of which the replica is: wait until its source has sent that again, or --fresh \
         makes it anew",
        .log.display()
    )]
    Short { log: PathBuf, epoch: u64 },
    #[error(
        "{} is not as it was applied: somebody else changed the replica, in {names} place(s); --repair puts \
         it right",
        .path.display()
    )]
    Changed { path: PathBuf, names: u64 },
    #[error(
        "epoch {epoch} has {has} {what}, more than {limit}: raise --max-{what}, or replicate less"
    )]
    Quota {
        epoch: u64,
        what: &'static str,
        has: u64,
        limit: u64,
    },
    /// Two files of the source could not both be there, nor one of them be renamed.
    #[error("{}: names are the same there whatever their case; put the replica elsewhere", .0.display())]
    Case(PathBuf),
    #[error("{}: no room; make some, and apply again: nothing is lost", .0.display())]
    Full(PathBuf),
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl Error {
    /// What a system call said of a path in the replica.
    pub(super) fn of(path: PathBuf, cause: io::Error) -> Self {
        match Errno::from_io_error(&cause) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full(path),
            Some(
                Errno::NOENT
                | Errno::LOOP
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::XDEV
                | Errno::EXIST
                | Errno::NOTEMPTY
                | Errno::STALE
                | Errno::NODATA,
            ) => Self::Changed { path, names: 1 },
            _ => Self::Io { path, cause },
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Log(log::Error::Damaged { .. })
            | Self::Occupied(_)
            | Self::OtherLog { .. }
            | Self::Behind { .. }
            | Self::Short { .. }
            | Self::Quota { .. }
            | Self::Case(_) => ErrorClass::Input,
            Self::Log(_)
            | Self::Busy(_)
            | Self::Privileged { .. }
            | Self::Changed { .. }
            | Self::Full(_)
            | Self::Io { .. } => ErrorClass::Failed,
        }
    }
}
