//! Errors of keeping a replica.

use std::io;
use std::path::PathBuf;

use datapath::{Classify, ErrorClass};
use rustix::io::Errno;

use crate::log;

const INTERRUPTION_HINT: &str = "an earlier step was interrupted and has removed or made some of them already, nothing else was \
                           changed";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("{}: another program applies to this replica; stop that one first", .0.display())]
    Busy(PathBuf),
    #[error("{}: there is no replica; name the folder that `lowroad replicate apply --to` has written", .0.display())]
    NoReplica(PathBuf),
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
        "{} was promoted: its tree is a source now, and no epoch is applied to it; --resync makes it a replica again",
        .0.display()
    )]
    Promoted(PathBuf),
    #[error(
        "{} was made {} --privileged, which changes what its files have: apply as before, or --fresh makes it anew",
        .to.display(), if *.made { "with" } else { "without" }
    )]
    Privileged { to: PathBuf, made: bool },
    /// A copy of a log that lost its end in a power failure is behind a replica that did not.
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
    #[error(
        "epoch {epoch} would remove {removed} of the {files} files of {}; {}: check the source, then \
         allow the step with --allow-delete (in a run: `lowroad replicate allow-delete`)",
        .to.display(), if *.interrupted { INTERRUPTION_HINT } else { "nothing was changed" }
    )]
    Deletion {
        to: PathBuf,
        epoch: u64,
        removed: u64,
        files: u64,
        /// Whether a step to another epoch had begun to change the tree.
        interrupted: bool,
    },
    #[error(
        "{}: epoch {epoch} needs room for {needs} bytes and {files} files, and there is room for {has} bytes and {names} \
         files; nothing was changed: make room",
        .to.display()
    )]
    Room {
        to: PathBuf,
        epoch: u64,
        needs: u64,
        files: u64,
        has: u64,
        names: u64,
    },
    /// Two files of the source cannot coexist there, and neither can be renamed.
    #[error("{}: names are the same there whatever their case; put the replica elsewhere", .0.display())]
    Case(PathBuf),
    /// The gate was closed in the middle of a step.
    #[error("{}: ended in the middle of a step; the next `apply` puts the replica right and goes on", .0.display())]
    Ended(PathBuf),
    #[error("{}: no room; make some, and apply again: nothing is lost", .0.display())]
    Full(PathBuf),
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl Error {
    /// The error of a system call on a path in the replica.
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
            Self::Log(error) if error.is_of_folder() => ErrorClass::Input,
            Self::Log(log::Error::Damaged { .. })
            | Self::Occupied(_)
            | Self::NoReplica(_)
            | Self::OtherLog { .. }
            | Self::Behind { .. }
            | Self::Promoted(_)
            | Self::Short { .. }
            | Self::Quota { .. }
            | Self::Deletion { .. }
            | Self::Case(_) => ErrorClass::Input,
            Self::Log(_)
            | Self::Busy(_)
            | Self::Privileged { .. }
            | Self::Changed { .. }
            | Self::Room { .. }
            | Self::Ended(_)
            | Self::Full(_)
            | Self::Io { .. } => ErrorClass::Failed,
        }
    }
}
