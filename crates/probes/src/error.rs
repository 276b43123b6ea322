//! Why a probe could not be attached or read.

use datapath::Missing;

/// An error of a probe.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot run it (exit code 3).
    #[error("{}; {}", .0.what, .0.remedy)]
    Missing(#[from] Missing),
    /// The configuration asks for something no machine can do (exit code 2).
    #[error("{0}")]
    Config(String),
    /// The kernel refused.
    #[error("{action}: {cause}")]
    Bpf {
        action: String,
        cause: libbpf_rs::Error,
    },
    #[error(transparent)]
    Namespace(#[from] sys::netns::Error),
    #[error(transparent)]
    Device(#[from] netdev::Error),
}

impl Error {
    /// For `map_err` of libbpf and of `bpf`, whose own words for the attempt are dropped.
    pub(crate) fn bpf<E: Into<libbpf_rs::Error>>(
        action: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        |error| Self::Bpf {
            action: action.into(),
            cause: error.into(),
        }
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
