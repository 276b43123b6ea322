//! AF_XDP sockets: one UMEM that several sockets on several devices share, rings with the
//! need-wakeup protocol, and frames that are owned by exactly one side at a time.
//!
//! Which packets come here is the XDP program's business: insert a socket's descriptor into its
//! XSKMAP under the socket's queue.

mod ring;
mod socket;
mod umem;

pub use socket::{Bind, Kick, Mode, Socket, Statistics, check};
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
    #[error("AF_XDP needs CAP_NET_RAW and, for its memory, CAP_IPC_LOCK or a higher memlock limit")]
    Denied,
    #[error("AF_XDP is not built into this kernel (CONFIG_XDP_SOCKETS)")]
    NotBuilt,
    #[error("AF_XDP socket on queue {queue} of interface {ifindex}: {step}: {cause}")]
    System {
        ifindex: u32,
        queue: u32,
        /// The call that failed.
        step: &'static str,
        cause: io::Error,
    },
}
