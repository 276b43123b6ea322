//! Why a plane could not start or change.

use std::io;

use datapath::Missing;

/// What was tried and what stood in the way.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}; {remedy}", what = .0.what, remedy = .0.remedy)]
    Missing(#[from] Missing),
    #[error("{what}: {source}")]
    Kernel {
        what: String,
        source: libbpf_rs::Error,
    },
    #[error("the router's program has no {0}")]
    Absent(String),
    #[error(transparent)]
    Namespace(sys::netns::Error),
    #[error("keeping a descriptor: {0}")]
    Descriptor(io::Error),
    #[error("mapping the table {table}: {source}")]
    Map { table: String, source: io::Error },
    #[error("attaching the xdp data plane: {0}")]
    Attach(netdev::Error),
    #[error("device {ifindex}: {what}")]
    Device { ifindex: u32, what: String },
    #[error(transparent)]
    Routes(#[from] lpm::Error),
    #[error("no room for more than {limit} {what}")]
    Full { what: &'static str, limit: u32 },
    #[error("a group of next hops must have members, of weight 1 or more, that are no groups")]
    Group,
    #[error("the rules: {0}")]
    Rules(#[from] acl::Error),
}

impl Error {
    pub(super) fn kernel(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        |source| Self::Kernel { what, source }
    }
}

impl From<bpf::Error> for Error {
    fn from(error: bpf::Error) -> Self {
        Self::Kernel {
            what: error.what,
            source: error.source,
        }
    }
}
