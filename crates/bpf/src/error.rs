//! Why a program or a map could not be used.

/// The attempted operation, and libbpf's or the kernel's answer.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct Error {
    /// The action and the thing: `writing map streams`.
    pub what: String,
    pub source: libbpf_rs::Error,
}

impl Error {
    /// For `map_err`: `what` names the action and the thing.
    pub fn of(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        |source| Self { what, source }
    }
}

/// The cause alone, for a caller that has other words for what it attempted.
impl From<Error> for libbpf_rs::Error {
    fn from(error: Error) -> Self {
        error.source
    }
}

impl From<Error> for datapath::Error {
    fn from(error: Error) -> Self {
        Self::failed(error.what, error.source)
    }
}
