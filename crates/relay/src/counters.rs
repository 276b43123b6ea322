//! The counters that all relay datapaths report, under the same names.
//!
//! For each stream: received = forwarded + passed + each stream drop; forwarded x subscribers = the
//! sum over subscribers of delivered + each subscriber drop.
//!
//! What a fast path passes up, userspace receives and counts again: [`StreamCounters::merge`] adds
//! the two so that each datagram is in the sum once.
//!
//! What the network stack drops before userspace reads it: `malformed` is counted by fast paths
//! only, since the stack tells nobody which socket was meant. `queue_full` is the socket's own
//! counter. `bad_checksum` is the namespace's, taken to be the stream's where a worker has one
//! stream only; with several, it is the socket's, which lacks short datagrams. Such datagrams count
//! no bytes where only the stack has seen them; malformed ones never do, as their length is a lie.
//!
//! A slot counts from zero when it enters a datapath's plan. Its counts stay readable after it
//! left, until the slot is used again.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Counters of one datapath since its start, by stream slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub streams: BTreeMap<u32, StreamCounters>,
}

/// Packets and their UDP payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl Traffic {
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Self) {
        self.packets = self.packets.saturating_sub(other.packets);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCounters {
    /// Every datagram that reached the stream's ingest, valid or not.
    pub received: Traffic,
    /// Datagrams offered to the subscribers, of whom there may be none.
    pub forwarded: Traffic,
    /// Datagrams the fast path handed to the slow path; they are counted there.
    pub passed: Traffic,
    /// Datagrams refused before fan-out, by reason.
    pub drops: Drops,
    /// Copies of forwarded datagrams that were lost on their way from a fast path to userspace:
    /// subscribers on this machine have missed them.
    #[serde(default)]
    pub copies_lost: u64,
    /// The sender that holds the stream's latch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latched: Option<SocketAddr>,
    /// By subscriber slot.
    pub subscribers: BTreeMap<u32, SubscriberCounters>,
}

impl StreamCounters {
    /// Adds what userspace counted of the same stream: what this fast path passed, or what came
    /// before or after it.
    pub fn merge(&mut self, other: &Self) {
        self.received.remove(self.passed);
        self.passed = Traffic::default();
        self.received.add(other.received);
        self.forwarded.add(other.forwarded);
        self.drops.merge(&other.drops);
        self.copies_lost += other.copies_lost;
        self.latched = other.latched.or(self.latched);
        for (slot, theirs) in &other.subscribers {
            let ours = self.subscribers.entry(*slot).or_default();
            ours.delivered.add(theirs.delivered);
            ours.drops.merge(&theirs.drops);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberCounters {
    pub delivered: Traffic,
    /// Copies refused after fan-out, by reason.
    pub drops: Drops,
}

/// Drop counts by reason; only reasons that occurred are present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Drops(pub BTreeMap<DropReason, u64>);

impl Drops {
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        if packets > 0 {
            *self.0.entry(reason).or_default() += packets;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (reason, packets) in &other.0 {
            self.add(*reason, *packets);
        }
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Why a packet was dropped. The discriminants are the indices used by the BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum DropReason {
    /// Headers that lie about their lengths, or are cut short.
    Malformed = 0,
    /// The UDP checksum does not match.
    BadChecksum = 1,
    /// The sender is not among the stream's allowed sources.
    SourceDenied = 2,
    /// Over the stream's or the source's packet rate.
    RateLimited = 3,
    /// TTL or hop limit 1 on arrival, and no TTL set for the copies: forwarding again would be a loop.
    TtlExceeded = 4,
    /// No route to the subscriber.
    NoRoute = 5,
    /// The next hop has no resolved link-layer address yet.
    NoNeighbour = 6,
    /// Larger than the path or device MTU.
    TooBig = 7,
    /// The egress device refused the frame or its queue is full.
    Transmit = 8,
    /// The socket receive queue overflowed.
    QueueFull = 9,
}

impl DropReason {
    /// Every reason, by index.
    pub const ALL: [Self; DROP_REASONS] = [
        Self::Malformed,
        Self::BadChecksum,
        Self::SourceDenied,
        Self::RateLimited,
        Self::TtlExceeded,
        Self::NoRoute,
        Self::NoNeighbour,
        Self::TooBig,
        Self::Transmit,
        Self::QueueFull,
    ];

    /// The reasons for which datagrams are refused before they are copied.
    pub const OF_STREAMS: [Self; 6] = [
        Self::Malformed,
        Self::BadChecksum,
        Self::SourceDenied,
        Self::RateLimited,
        Self::TtlExceeded,
        Self::QueueFull,
    ];

    /// The reasons for which one subscriber's copy is dropped.
    pub const OF_SUBSCRIBERS: [Self; 4] = [
        Self::NoRoute,
        Self::NoNeighbour,
        Self::TooBig,
        Self::Transmit,
    ];
}

/// How many reasons there are: the length of the arrays the BPF programs count in.
pub const DROP_REASONS: usize = 10;
