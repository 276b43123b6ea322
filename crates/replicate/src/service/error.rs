//! Why a part cannot start or continue, and whether to retry.

use std::io;

use datapath::{Classify, ErrorClass, Missing};

use super::freezer::FreezeError;
use super::receive::Needs;
use crate::ship::{nats, tcp};
use crate::{apply, capture, coverage, log};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error that no retry can resolve.
    #[error("{0}")]
    Input(String),
    #[error(transparent)]
    Needs(#[from] Needs),
    #[error(transparent)]
    Capture(#[from] capture::Error),
    #[error(transparent)]
    Coverage(#[from] coverage::Error),
    /// Operations that are not seen on the tree's file system.
    #[error("{} is not seen on this file system", .0.join(", "))]
    Invisible(Vec<&'static str>),
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error(transparent)]
    Tcp(#[from] tcp::Error),
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error(transparent)]
    Apply(#[from] apply::Error),
    #[error(transparent)]
    Freezer(#[from] FreezeError),
    #[error("no process that thaws what is frozen: {0}")]
    Watchdog(io::Error),
    #[error("watching the log: {0}")]
    Watch(io::Error),
    #[error("no thread: {0}")]
    Thread(io::Error),
    /// The end came before everything was done.
    #[error("{0}")]
    Unfinished(String),
    #[error(
        "it panicked; this is a mistake in lowroad: please report what was said on standard error"
    )]
    Panicked,
}

impl Error {
    /// Whether a log's disk is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Log(error) | Self::Capture(capture::Error::Log(error)) => error.is_full(),
            _ => false,
        }
    }

    /// Whether the error may pass without a change of the configuration, a certificate or a log.
    pub fn passes(&self) -> bool {
        match self {
            Self::Capture(error) => of_capture(error),
            Self::Coverage(coverage::Error::Capture(error)) => of_capture(error),
            Self::Coverage(_) | Self::Watch(_) | Self::Watchdog(_) | Self::Thread(_) => true,
            // The application may be started again.
            Self::Freezer(refused) => matches!(refused, FreezeError::Missing(_)),
            Self::Log(error) => of_log(error),
            Self::Tcp(tcp::Error::Log(error)) | Self::Nats(nats::Error::Log(error)) => {
                of_log(error)
            }
            // Its address is still in use.
            Self::Tcp(tcp::Error::Listen { .. }) => true,
            Self::Tcp(error) => error.heals(),
            Self::Nats(_) => false,
            Self::Apply(error) => of_apply(error),
            Self::Input(_)
            | Self::Needs(_)
            | Self::Invisible(_)
            | Self::Unfinished(_)
            | Self::Panicked => false,
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Input(_) | Self::Needs(_) | Self::Freezer(_) => ErrorClass::Input,
            Self::Capture(error) => error.class(),
            Self::Coverage(error) => error.class(),
            Self::Invisible(_) => ErrorClass::Missing,
            Self::Tcp(error) => error.class(),
            Self::Nats(error) => error.class(),
            Self::Apply(error) => error.class(),
            Self::Log(error) if error.is_of_folder() => ErrorClass::Input,
            // A service works on its log while it runs, so an error there is a failure and not
            // wrong input.
            Self::Log(_)
            | Self::Watchdog(_)
            | Self::Watch(_)
            | Self::Thread(_)
            | Self::Unfinished(_)
            | Self::Panicked => ErrorClass::Failed,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Capture(error) => error.missing(),
            Self::Coverage(error) => error.missing(),
            Self::Invisible(operations) => operations.iter().map(|name| invisible(name)).collect(),
            _ => Vec::new(),
        }
    }
}

fn invisible(operation: &str) -> (String, Missing) {
    let what = format!("{operation} is not seen on this file system");
    let remedy = "see lowroad replicate coverage; what can be looked for, --allow names";
    ("capture".to_owned(), Missing::new(what, remedy))
}

fn of_capture(error: &capture::Error) -> bool {
    use capture::Error as Capture;
    match error {
        // The tree may be mounted again.
        Capture::Tree { .. }
        | Capture::OtherTree { .. }
        | Capture::Promoted { .. }
        | Capture::Moved(_)
        | Capture::Read { .. }
        | Capture::Bpf { .. }
        | Capture::Io { .. } => true,
        Capture::Log(error) => of_log(error),
        Capture::Privileges
        | Capture::FileSystem { .. }
        | Capture::Kernel { .. }
        | Capture::Preempted { .. }
        | Capture::Silent { .. }
        | Capture::Pin { .. }
        | Capture::Patterns(_)
        | Capture::Ended
        | Capture::Unknown => false,
    }
}

fn of_log(error: &log::Error) -> bool {
    // A disk may get space, another writer may end, and a copy may have been replaced or compacted
    // while it was read.
    matches!(
        error,
        log::Error::Io { .. }
            | log::Error::Busy(_)
            | log::Error::Replaced(_)
            | log::Error::Compacted { .. }
    )
}

fn of_apply(error: &apply::Error) -> bool {
    use apply::Error as Apply;
    match error {
        Apply::Log(error) => of_log(error),
        Apply::Busy(_)
        | Apply::Full(_)
        | Apply::Room { .. }
        | Apply::Io { .. }
        | Apply::Short { .. } => true,
        Apply::Occupied(_)
        | Apply::Case(_)
        | Apply::OtherLog { .. }
        | Apply::Privileged { .. }
        | Apply::Behind { .. }
        | Apply::Changed { .. }
        | Apply::Deletion { .. }
        | Apply::Ended(_)
        | Apply::Quota { .. }
        | Apply::NoReplica(_)
        | Apply::Promoted(_) => false,
    }
}
