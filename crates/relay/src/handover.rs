//! How a stream changes between userspace and a fast path without loss or reordering.
//!
//! Into a fast path: the program starts the stream *diverted*. It rewrites the destination port of
//! valid datagrams to the shadow port, counts them, and passes them up. Once every CPU runs the
//! program nothing new reaches the ingest socket, so userspace sends what that holds, then what the
//! shadow socket holds, and publishes after each send how many diverted datagrams are done with.
//! The program takes over at the first datagram that finds as many done as diverted.
//!
//! Out of a fast path: userspace stops reading the ingest socket, the stream is set to *passing*,
//! and once no CPU runs the program as it was, userspace reads on.

use std::net::SocketAddr;

use crate::plan::{StreamId, SubscriberId};

/// Who relays a stream that a fast path is attached for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Road {
    /// Userspace: datagrams reach the ingest socket untouched.
    Passing = 0,
    /// Userspace, through the shadow socket, until it has caught up.
    Diverted = 1,
    /// The fast path.
    Fast = 2,
}

/// The controls a fast path offers for each stream of its plan. Methods may be called from any
/// thread; all fail only when the kernel refuses the map access or the stream is not in the plan.
pub trait FastPath: Send + Sync {
    fn road(&self, stream: StreamId) -> Result<Road, datapath::Error>;

    /// Sets the stream to passing, from either of the other roads. Returns once no CPU still
    /// handles it the old way; frames the old way had queued for transmission are then on theirs.
    fn pass(&self, stream: StreamId) -> Result<(), datapath::Error>;

    /// Datagrams diverted to the shadow port since the hand-over began.
    fn diverted(&self, stream: StreamId) -> Result<u64, datapath::Error>;

    /// Tells the program how many diverted datagrams userspace is done with: sent, refused and
    /// counted, or lost to a full shadow socket and counted. Nothing is taken over before the
    /// first call, so that what the ingest socket still holds is not overtaken: it is made, with
    /// 0 if need be, once that is empty.
    ///
    /// The datagram that compares and the one that takes over must be one atomic step against
    /// diverting: a datagram diverted on one CPU while another takes over would be overtaken.
    fn publish_done(&self, stream: StreamId, datagrams: u64) -> Result<(), datapath::Error>;

    /// Who holds the stream's latch.
    fn latched(&self, stream: StreamId) -> Option<SocketAddr>;

    /// Why this fast path does not send to this subscriber (or not this stream at all), beyond
    /// what its next hop and its drop counters say; `None` when it does.
    fn slow_reason(&self, stream: StreamId, subscriber: SubscriberId) -> Option<String>;
}
