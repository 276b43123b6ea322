//! What a datapath is asked to do: streams with resolved subscribers.
//!
//! The relay core makes plans from configuration, control requests and the neighbour keeper; a
//! datapath only carries them out, so that every datapath sends the same packets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use netdev::NextHop;

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
}

/// One stream: where it comes in, who may send it, and who gets it.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: StreamId,
    pub name: String,
    /// Concrete local (or multicast group) addresses that packets arrive on: a wildcard listen
    /// address is expanded to the machine's own addresses, so that transit traffic never matches.
    pub ingest: Vec<SocketAddr>,
    /// Interfaces packets may arrive on.
    pub interfaces: Vec<u32>,
    /// The bound ingest socket. Kernel datapaths leave to it what they do not understand.
    pub socket: Arc<UdpSocket>,
    pub source: SourcePolicy,
    pub limits: Limits,
    /// Packets are also handed to userspace.
    pub copy_to_user: bool,
    pub subscribers: Vec<Subscriber>,
}

/// One receiver of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    pub id: SubscriberId,
    pub name: String,
    pub destination: SocketAddr,
    /// The address and port that packets to this subscriber come from.
    pub source: SocketAddr,
    pub next_hop: NextHop,
}

/// Who may send a stream. There is no default: a stream names its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePolicy {
    Any,
    /// Any address in one of these prefixes.
    Allow(Vec<Prefix>),
    /// The first sender, until it has been silent for the stream's latch time.
    Latch,
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

/// Packet rate limits; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub stream_pps: Option<u32>,
    pub source_pps: Option<u32>,
}
