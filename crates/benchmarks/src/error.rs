//! Why a benchmark has no result.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use datapath::{Classify, ErrorClass, Missing};
use router::{cpu, gpu};

/// Why a benchmark has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments or the input cannot work; the text names what to change.
    #[error("{0}")]
    Input(String),
    /// The CPU's tables could not be built.
    #[error(transparent)]
    Cpu(#[from] cpu::Error),
    /// The device's tables could not be built.
    #[error(transparent)]
    Device(#[from] gpu::Error),
    /// This machine lacks something; each entry has the name of what needs it.
    #[error("cannot run here")]
    Missing(Vec<(String, Missing)>),
    /// The measurement was attempted and did not work.
    #[error(transparent)]
    Failed(Box<dyn StdError + Send + Sync>),
    /// As [`Error::Failed`], with what was attempted.
    #[error("{what}")]
    Attempt {
        what: String,
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    pub(crate) fn failed(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Failed(source.into())
    }

    pub(crate) fn attempt(what: impl Into<String>, source: io::Error) -> Self {
        Self::Attempt {
            what: what.into(),
            source: source.into(),
        }
    }

    /// A file that cannot be read, or is not what it should be.
    pub(crate) fn file(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Input(format!("{}: {why}", path.display()))
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Input(_) => ErrorClass::Input,
            Self::Cpu(error) => error.class(),
            Self::Device(error) => error.class(),
            Self::Missing(_) => ErrorClass::Missing,
            Self::Failed(_) | Self::Attempt { .. } => ErrorClass::Failed,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Cpu(error) => error.missing(),
            Self::Device(error) => error.missing(),
            Self::Missing(list) => list.clone(),
            Self::Input(_) | Self::Failed(_) | Self::Attempt { .. } => Vec::new(),
        }
    }
}
