//! Why a bed could not be made.

use std::io;

/// Each names the host, link or setting it is about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file describes something that cannot be built.
    #[error("topology: {0}")]
    Topology(String),
    #[error("{}; {}", .0.what, .0.remedy)]
    Missing(datapath::Missing),
    #[error(transparent)]
    Namespace(#[from] sys::netns::Error),
    #[error("{place}: {cause}")]
    Device { place: String, cause: netdev::Error },
    #[error("{place}: {cause}")]
    Feature {
        place: String,
        cause: sys::ethtool::Error,
    },
    #[error("{place}: setting {key} to {value}: {cause}")]
    Setting {
        place: String,
        key: String,
        value: String,
        cause: io::Error,
    },
    #[error("{place}: reading {path}: {cause}")]
    Reading {
        place: String,
        path: String,
        cause: io::Error,
    },
    #[error("link {link}: {what}")]
    Impaired { link: String, what: String },
    #[error("{0}: no carrier, or an address that accepts no packets, after {1} s")]
    NotReady(String, u64),
    #[error("{host}: starting {program}: {cause}")]
    Spawn {
        host: String,
        program: String,
        cause: io::Error,
    },
    #[error("virtual machine {name}: {what}")]
    Guest { name: String, what: String },
    #[error("{engine}: {what}")]
    Container { engine: &'static str, what: String },
    #[error("no host {0} in this topology")]
    NoHost(String),
    #[error("host {host} has no interface to {peer}")]
    NoInterface { host: String, peer: String },
}

/// Says where a device's refusal happened.
pub(crate) fn at(place: &str) -> impl Fn(netdev::Error) -> Error + '_ {
    move |cause| Error::Device {
        place: place.to_owned(),
        cause,
    }
}

impl From<datapath::Missing> for Error {
    fn from(missing: datapath::Missing) -> Self {
        Self::Missing(missing)
    }
}
