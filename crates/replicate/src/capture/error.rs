//! Why a tree cannot be followed, or no longer can.

use std::io;
use std::path::PathBuf;

use datapath::{Classify, ErrorClass, Missing};

use crate::log;
use crate::patterns;
use crate::record::File;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("following a tree needs root: run with sudo")]
    Privileges,
    #[error("{}: {cause}", .path.display())]
    Tree { path: PathBuf, cause: io::Error },
    #[error(
        "{} is not the directory any more that it was: it was moved or unmounted, or something is mounted on it; \
         begin again with what is there now",
        .0.display()
    )]
    Moved(PathBuf),
    #[error(
        "{} is the log of another tree than {}: {differs}; mount or name the tree that the log is of, or begin the log \
         anew with --fresh",
        .log.display(), .tree.display()
    )]
    OtherTree {
        log: PathBuf,
        tree: PathBuf,
        differs: String,
    },
    #[error(
        "{} was replaced: {promoted} was promoted to term {term} of {}, and only that tree can continue the log; make \
         this one a replica with `apply --resync`, or use another folder for a new log",
        .tree.display(), .log.display()
    )]
    Promoted {
        log: PathBuf,
        tree: PathBuf,
        term: u64,
        promoted: String,
    },
    #[error("{} is on {on}", .path.display())]
    FileSystem { path: PathBuf, on: String },
    #[error("a journal in {}: {cause}", .folder.display())]
    Pin { folder: PathBuf, cause: String },
    #[error("following {format} needs Linux {since} or later: this one has no event {event}")]
    Kernel {
        format: &'static str,
        event: String,
        since: &'static str,
    },
    #[error(
        "following {format}: this kernel has no event {event}, and a function cannot stand in: {why}"
    )]
    Preempted {
        format: &'static str,
        event: &'static str,
        why: &'static str,
    },
    #[error("{format} does not report stores through shared mappings")]
    Silent { format: &'static str },
    #[error("reading {file} of {}: {cause}", .path.display())]
    Read {
        path: PathBuf,
        file: File,
        cause: io::Error,
    },
    #[error("{action}: {cause}")]
    Bpf {
        action: String,
        cause: libbpf_rs::Error,
    },
    #[error("{action}: {cause}")]
    Io {
        action: &'static str,
        cause: io::Error,
    },
    #[error(transparent)]
    Patterns(#[from] patterns::Error),
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error("the programs tell what nobody understands: they are of another version")]
    Unknown,
    /// The listener aborted the capture.
    #[error("ended while it read the tree: the next capture goes on with what the log has")]
    Ended,
}

impl Error {
    pub(super) fn bpf<E: Into<libbpf_rs::Error>>(action: &str) -> impl FnOnce(E) -> Self {
        let action = action.to_owned();
        |cause| Self::Bpf {
            action,
            cause: cause.into(),
        }
    }

    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io { action, cause }
    }
}

impl From<bpf::Error> for Error {
    fn from(error: bpf::Error) -> Self {
        Self::Bpf {
            action: error.what,
            cause: error.source,
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Privileges
            | Self::Pin { .. }
            | Self::Kernel { .. }
            | Self::Preempted { .. }
            | Self::Silent { .. } => ErrorClass::Missing,
            Self::Log(error) if error.is_of_folder() => ErrorClass::Input,
            Self::Tree { .. }
            | Self::OtherTree { .. }
            | Self::Promoted { .. }
            | Self::FileSystem { .. }
            | Self::Patterns(_) => ErrorClass::Input,
            Self::Moved(_)
            | Self::Read { .. }
            | Self::Bpf { .. }
            | Self::Io { .. }
            | Self::Log(_)
            | Self::Unknown
            | Self::Ended => ErrorClass::Failed,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        let (what, remedy) = match self {
            Self::Privileges => ("needs root".to_owned(), "run with sudo"),
            Self::Silent { .. } => (
                self.to_string(),
                "--allow mmap: files that are mapped are read before each epoch, and each second",
            ),
            Self::Pin { .. } => (self.to_string(), "run without --pin"),
            Self::Kernel { .. } => (
                self.to_string(),
                "run a newer kernel, or follow a tree on ext4",
            ),
            Self::Preempted { .. } => (self.to_string(), "boot with preempt=voluntary"),
            _ => return Vec::new(),
        };
        vec![("capture".to_owned(), Missing::new(what, remedy))]
    }
}
