//! How a stream changes between userspace and a fast path without loss or reordering.
//!
//! Into a fast path: the program starts the stream *diverted*. It counts valid datagrams and hands them
//! to userspace through a ring buffer, past the network stack, whose rules might drop what is new to
//! them. Once every CPU runs the program, nothing new but what it leaves to the stack reaches the
//! ingest socket, so userspace sends what that holds, then what was diverted, and publishes after each
//! send how many diverted datagrams are done with. The program takes over at the first datagram that
//! finds as many done as diverted.
//!
//! Out of a fast path: userspace stops reading the ingest socket, the stream is set to *passing*,
//! and once no CPU runs the program as it was, userspace reads on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libbpf_rs::MapHandle;

use crate::plan::{StreamId, SubscriberId};

/// The path of a stream's datagrams while a fast path is attached for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ForwardingPath {
    /// Userspace: datagrams reach the ingest socket untouched.
    Passing = 0,
    /// Userspace, through the ring of diverted datagrams, until it has caught up.
    Diverted = 1,
    /// The fast path.
    Fast = 2,
}

/// The controls a fast path offers for each stream of its plan. Methods may be called from any
/// thread; all fail only when the kernel refuses the map access or the stream is not in the plan.
pub trait FastPath: Send + Sync {
    fn forwarding_path(&self, stream: StreamId) -> Result<ForwardingPath, datapath::Error>;

    /// Sets the stream to passing, from either of the other paths. Returns once no CPU still handles it the
    /// old way; frames that were queued for transmission before are then in their queues.
    fn pass(&self, stream: StreamId) -> Result<(), datapath::Error>;

    /// Datagrams diverted to userspace since the hand-over began.
    fn diverted(&self, stream: StreamId) -> Result<u64, datapath::Error>;

    /// Tells the program how many diverted datagrams userspace is done with: sent, refused and
    /// counted, or lost to a full backlog and counted. Nothing is taken over before the
    /// first call, so that what the ingest socket still holds is not overtaken: it is made, with
    /// 0 if need be, once that is empty.
    ///
    /// The datagram that compares and the one that takes over must be one atomic step against
    /// diverting: a datagram diverted on one CPU while another takes over would be overtaken.
    fn publish_done(&self, stream: StreamId, datagrams: u64) -> Result<(), datapath::Error>;

    /// The ring of datagrams that the program hands to userspace: diverted ones, and copies.
    fn punts(&self) -> Result<MapHandle, datapath::Error>;

    /// The stream's subscribers that this fast path cannot send to, so that userspace sends them copies.
    fn userspace_only(&self, stream: StreamId) -> BTreeSet<SubscriberId>;

    /// The sender that holds the stream's latch.
    fn latched(&self, stream: StreamId) -> Option<SocketAddr>;

    /// Why this fast path does not send to this subscriber (or not this stream at all), beyond
    /// what its next hop and its drop counters say; `None` when it does.
    fn slow_reason(&self, stream: StreamId, subscriber: SubscriberId) -> Option<String>;

    /// The interfaces of the stream that this fast path does not take datagrams from, and why: userspace relays what
    /// comes in by them.
    fn unattached(&self, stream: StreamId) -> BTreeMap<u32, String>;

    /// The path of the last copy of a datagram, which is the frame itself, and the reason; `None` if there is
    /// only one path.
    fn last_copy(&self, _stream: StreamId) -> Option<String> {
        None
    }
}

/// Userspace's side of a hand-over: how much of what is diverted is done.
pub(crate) struct Handover {
    pub(crate) stream: StreamId,
    fast_path: Arc<dyn FastPath>,
    /// What the ingest socket held is sent.
    begun: AtomicBool,
    done: AtomicU64,
    /// How much of it the program has been told.
    published: AtomicU64,
}

impl Handover {
    pub(crate) fn new(stream: StreamId, fast_path: Arc<dyn FastPath>) -> Self {
        Self {
            stream,
            fast_path,
            begun: AtomicBool::new(false),
            done: AtomicU64::new(0),
            published: AtomicU64::new(0),
        }
    }

    /// The ingest socket is empty, and nothing more reaches it: from now on the fast path may take
    /// over without overtaking.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
        self.publish(self.done.load(Ordering::SeqCst));
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// More diverted datagrams are done with; tells the fast path.
    pub(crate) fn add_done(&self, datagrams: u64) {
        let done = self.done.fetch_add(datagrams, Ordering::SeqCst) + datagrams;
        if self.has_begun() {
            self.publish(done);
        }
    }

    fn publish(&self, done: u64) {
        match self.fast_path.publish_done(self.stream, done) {
            Ok(()) => self.published.store(done, Ordering::SeqCst),
            Err(error) => tracing::warn!(stream = self.stream.0, %error, "the hand-over stalls"),
        }
    }

    /// Whether the fast path has taken over, or does so at the next datagram.
    pub(crate) fn is_over(&self) -> Result<bool, datapath::Error> {
        if self.fast_path.forwarding_path(self.stream)? == ForwardingPath::Fast {
            return Ok(true);
        }
        let published = self.published.load(Ordering::SeqCst);
        if !self.has_begun() || self.fast_path.diverted(self.stream)? != published {
            return Ok(false);
        }
        // A program that has read an older number diverts once more.
        crate::kernel::grace()?;
        Ok(
            self.fast_path.forwarding_path(self.stream)? == ForwardingPath::Fast
                || self.fast_path.diverted(self.stream)? == published,
        )
    }

    /// Whether everything diverted up to now is done.
    pub(crate) fn is_level(&self) -> Result<bool, datapath::Error> {
        let done = self.done.load(Ordering::SeqCst);
        Ok(self.fast_path.diverted(self.stream)? == done)
    }

    /// Back to userspace: what comes from now on is left to the ingest socket.
    pub(crate) fn pass(&self) -> Result<(), datapath::Error> {
        self.fast_path.pass(self.stream)
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover")
            .field("stream", &self.stream)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}
