//! The plan of a datapath: streams with resolved subscribers.
//!
//! The relay core makes plans from configuration, control requests and the next-hop tracker; a
//! datapath only carries them out, so that every datapath sends the same packets:
//!
//! - payload: as it arrived. VLAN tags, IPv4 options and IPv6 extension headers are not sent on.
//!   Tags are those of no VLAN, which carry a priority: the frame of a VLAN is another device's.
//!   So is a frame to another link-layer address: the network stack drops it or passes it on.
//! - addresses: [`Subscriber::source`] to [`Subscriber::destination`].
//! - DSCP and ECN: as they arrived. IPv6 flow label 0. IPv4 identification: any.
//! - TTL or hop limit: one less than it arrived with, or [`Subscriber::ttl`].
//! - IPv4 DF set; the relay never fragments. Fragments that arrive are put together first.
//! - UDP checksum: always present and right, whatever arrived.
//!
//! A datagram is checked in this order, and the first failure is what is counted: malformed,
//! bad checksum, source, rate, TTL; then for each subscriber route, neighbour and size.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use netdev::{NextHop, UnresolvedReason};

use crate::counters::DropReason;
pub use crate::prefix::Prefix;

/// A stream's slot: stable while the stream exists, below [`MAX_STREAMS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A subscriber's slot: stable while it subscribes, unique in the relay, below [`MAX_SUBSCRIBERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberId(pub u32);

/// Streams one relay carries at most.
pub const MAX_STREAMS: u32 = 256;
/// Subscribers of one stream at most.
pub const MAX_FANOUT: usize = 256;
/// Subscribers one relay carries at most.
pub const MAX_SUBSCRIBERS: u32 = 4096;

/// Every stream that one datapath carries now.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub streams: Vec<Stream>,
    /// The datapath's own thread runs on the first; empty: anywhere. Read at the start only.
    pub cpus: Vec<usize>,
    /// IPv4 sources whose packets a fast path leaves to the kernel: this machine's addresses, and the broadcast addresses
    /// of its networks.
    pub kernel_sources: BTreeSet<Ipv4Addr>,
}

/// One stream: its ingest, its permitted senders and its subscribers.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: StreamId,
    pub name: String,
    /// Concrete local (or multicast group) addresses that packets arrive on: a wildcard listen
    /// address is expanded to the machine's own addresses, so that transit traffic never matches.
    pub ingest: Vec<SocketAddr>,
    /// Interfaces packets may arrive on; from another they are `source_denied`. Empty: any.
    pub interfaces: Vec<u32>,
    /// The bound ingest socket. Fast paths leave to it what they do not understand.
    pub socket: Arc<UdpSocket>,
    /// Sockets userspace sends by, for each [`Subscriber::source`] that the ingest socket cannot
    /// send from.
    pub egress: BTreeMap<SocketAddr, Arc<UdpSocket>>,
    pub source: SourcePolicy,
    /// The policy allows some of [`Plan::kernel_sources`].
    pub check_source: bool,
    pub limits: Limits,
    /// Datagrams that arrive with a smaller TTL are dropped (`ttl_exceeded`). 2, so that loops
    /// die; 0 where the TTL of every copy is set.
    pub min_ttl: u8,
    /// A fast path starts this stream diverted: see [`crate::handover`]. It counts when the stream enters the plan; a
    /// stream that is in it already stays on its path.
    pub diverted: bool,
    /// Why the kernel has to decide on this stream's packets: a fast path passes them all up, and userspace sends the
    /// copies. None where the kernel would let every packet and every copy through unchanged.
    pub policy: Option<String>,
    /// Work on each packet, which only userspace does: a fast path refuses a stream that has any.
    pub work: PerPacket,
    pub subscribers: Vec<Subscriber>,
}

/// The processing of each packet of a stream before it is forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerPacket {
    /// CPU time spent on it.
    pub spin: Duration,
    /// A parity datagram is sent to each subscriber after every group of this many packets.
    pub fec_group: Option<u8>,
}

impl PerPacket {
    /// Whether there is nothing to do.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// One receiver of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    pub id: SubscriberId,
    pub name: String,
    pub destination: SocketAddr,
    /// The address and port that packets to this subscriber come from.
    pub source: SocketAddr,
    /// TTL or hop limit to send with, instead of one less than the datagram arrived with.
    pub ttl: Option<u8>,
    /// The way to `destination`; for a group, the frame's destination is the group's address.
    /// A fast path drops copies without a ready next hop: [`drop_reason`]. Those for `Local` ones it leaves to
    /// userspace, and counts nothing.
    pub next_hop: NextHop,
    /// The fast path that has the stream cannot send to it, so that userspace beside it does: it is on this machine, or
    /// behind a device that takes no frames from the fast path. Fast paths find that out and ignore this.
    pub userspace_only: bool,
}

/// The permitted senders of a stream. A stream must name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePolicy {
    Any,
    /// Any address in one of these prefixes.
    Allow(Vec<Prefix>),
    /// The first sender (address and port), until it has been silent for the timeout.
    Latch {
        timeout: Duration,
        /// The sender that holds the latch when the plan starts. The latch moves with the stream between datapaths.
        held_by: Option<SocketAddr>,
    },
}

/// Packet rate limits; `None` is unlimited. Each is a token bucket that starts full with
/// `max(rate / 10, 1)` packets (100 ms of the rate) and is refilled at the rate.
///
/// `source_pps` holds for each source address (not port) by itself. The stream's bucket is asked
/// first, and a datagram that the source's bucket refuses gives its token back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub stream_pps: Option<u32>,
    pub source_pps: Option<u32>,
}

/// Why a fast path drops copies with this next hop; `None` when it sends them or they are local.
pub fn drop_reason(next_hop: &NextHop) -> Option<DropReason> {
    match next_hop {
        NextHop::Ready { .. }
        | NextHop::Unresolved(UnresolvedReason::Local | UnresolvedReason::Encapsulated) => None,
        NextHop::Unresolved(UnresolvedReason::NoRoute | UnresolvedReason::LinkDown { .. }) => {
            Some(DropReason::NoRoute)
        }
        NextHop::Unresolved(UnresolvedReason::NoNeighbour { .. }) => Some(DropReason::NoNeighbour),
    }
}
