//! AF_XDP sockets: one UMEM that several sockets on several devices share, rings with the
//! need-wakeup protocol, and frames that are owned by exactly one side at a time.
//!
//! A [`Socket`] has the rings; a [`Port`] accounts for the frames that it holds; a [`Pump`] moves packets
//! through the ports of one thread.
//!
//! Which packets come here is the XDP program's business: insert a socket's descriptor into its
//! XSKMAP under the socket's queue.

mod port;
mod pump;
mod ring;
mod socket;
mod umem;

pub use port::{Outcome, Port};
pub use pump::{Pump, Wait};
pub use socket::{Bind, Kick, Mode, Socket, Statistics};
pub use umem::{Frame, Umem};

use std::io;

/// Why a UMEM or a socket could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a UMEM frame is 2048 or 4096 bytes, not {0}")]
    FrameSize(u32),
    #[error("a ring has a power of two of entries, not {0}")]
    RingSize(u32),
    #[error("headroom of {0} bytes leaves no room for a packet")]
    Headroom(u32),
    #[error("no memory for {frames} frames of {size} bytes: {cause}")]
    Memory {
        frames: u32,
        size: u32,
        cause: io::Error,
    },
    #[error("interface {ifindex} has no queue {queue} (`ethtool -l` shows its channels)")]
    NoQueue { ifindex: u32, queue: u32 },
    #[error("interface {0} does not exist in this network namespace, or is down")]
    NoInterface(u32),
    #[error("queue {queue} of interface {ifindex} already has an AF_XDP socket")]
    Taken { ifindex: u32, queue: u32 },
    #[error("the driver of interface {0} has no zero-copy AF_XDP; bind with copy mode")]
    NoZeroCopy(u32),
    /// The kernel has no AF_XDP, or this process may not use it.
    #[error(transparent)]
    Missing(#[from] datapath::Missing),
    #[error("AF_XDP socket on queue {queue} of interface {ifindex}: {step}: {cause}")]
    System {
        ifindex: u32,
        queue: u32,
        /// The call that failed.
        step: &'static str,
        cause: io::Error,
    },
}

impl From<Error> for datapath::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Missing(missing) => missing.into(),
            error => Self::failed("opening an AF_XDP socket", error),
        }
    }
}
