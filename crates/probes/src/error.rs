//! Why a probe could not be attached or read.

use datapath::Missing;

/// What a probe could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot run it (exit code 3).
    #[error("{}; {}", .0.what, .0.remedy)]
    Missing(Missing),
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
    pub(crate) fn bpf(action: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        |cause| Self::Bpf {
            action: action.into(),
            cause,
        }
    }
}

/// Why no program can be loaded at all, asked before the first one is.
pub(crate) fn check_privileges() -> Result<(), Error> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Missing(Missing::new(
        "probes need CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        "run with sudo",
    )))
}
