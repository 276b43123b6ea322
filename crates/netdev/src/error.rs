//! Refusals of the kernel, with its own message where it gives one. A message includes its cause, so no
//! error has a `source`: printing the chain would print the cause twice.

use std::io;

/// Why a device, an address, a route or a program could not be had as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("opening a netlink socket: {0}")]
    Socket(io::Error),
    /// The kernel answered with an error; `said` is its explanation, when there is one.
    #[error("{action}: {cause}{}", said.as_ref().map(|said| format!(" ({said})")).unwrap_or_default())]
    Refused {
        action: String,
        cause: io::Error,
        said: Option<String>,
    },
    #[error("no interface {0} in this network namespace")]
    NoInterface(String),
    #[error("the kernel's answer to {action} cannot be read: {detail}")]
    Answer { action: String, detail: String },
    /// Another program is where ours should be.
    #[error(
        "interface {interface} already has an XDP program (id {program}, {mode} mode); detach it first: ip link set dev {interface} xdp off, or bpftool link"
    )]
    XdpTaken {
        interface: String,
        program: u32,
        mode: &'static str,
    },
    #[error("attaching {program} to {interface}: {cause}; {remedy}")]
    Attach {
        program: &'static str,
        interface: String,
        cause: io::Error,
        remedy: &'static str,
    },
}

impl Error {
    /// The errno of a refusal.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket(cause) | Self::Refused { cause, .. } | Self::Attach { cause, .. } => {
                cause.raw_os_error()
            }
            _ => None,
        }
    }

    pub(crate) fn refused(action: impl Into<String>, cause: io::Error) -> Self {
        Self::Refused {
            action: action.into(),
            cause,
            said: None,
        }
    }
}
