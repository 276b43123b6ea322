//! Makes map entries of plans, and reads them: the structures of bpf/layout.h.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bpf::Plain as _;
use netdev::NextHop;
use packet::checksum;
use prefix::{Address, Prefix6};

use super::groups::Member;
use super::skel::types;
use crate::counters::{
    DROP_REASONS, DropReason, Drops, StreamCounters, SubscriberCounters, Traffic,
};
use crate::handover::ForwardingPath;
use crate::plan::{Prefix, SourcePolicy, Stream};

/// Egress devices of all streams together.
pub(super) const MAX_DEVICES: u16 = 256;
/// Egress devices of one stream.
pub(super) const MAX_GROUP_DEVICES: usize = 32;
/// `PREFIXES_IN_TRIE` of bpf/layout.h.
const PREFIXES_IN_TRIE: u8 = 255;
const MEMBER_DIRECT: u32 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Ethernet header and one VLAN tag: what the kernel allows a redirected frame beyond the MTU.
const FRAME_MARGIN: u32 = 18;

fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// As programs compare addresses: 16 bytes in network order, IPv4 mapped.
fn in6(octets: [u8; 16]) -> types::in6_addr {
    types::in6_addr::read(&octets).unwrap_or_default()
}

pub(super) fn ingest_key(at: SocketAddr, ifindex: u32) -> types::ingest_key {
    types::ingest_key {
        address: in6(octets(at.ip())),
        ifindex,
        port: at.port().to_be(),
        family: family(at.ip()),
    }
}

/// An ingest on an interface with this link-layer address. Datagrams come to a group only by a group's frame.
pub(super) fn ingest(stream: u32, at: SocketAddr, mac: [u8; 6]) -> types::ingest {
    let mut word = [0; 8];
    word[..6].copy_from_slice(&mac);
    types::ingest {
        stream,
        groups: at.ip().is_multicast().into(),
        mac: u64::from_ne_bytes(word),
    }
}

/// A stream's entry. `copies`: userspace gets one of each datagram.
pub(super) fn stream(
    stream: &Stream,
    group: u32,
    path: ForwardingPath,
    copies: bool,
) -> types::stream {
    let (policy, timeout) = match &stream.source {
        SourcePolicy::Any => (0, 0),
        SourcePolicy::Allow(_) => (1, 0),
        SourcePolicy::Latch { timeout, .. } => (2, nanoseconds(timeout.as_nanos())),
    };
    let (stream_interval, stream_depth) = bucket(stream.limits.stream_pps);
    let (source_interval, source_depth) = bucket(stream.limits.source_pps);
    let mut entry = types::stream {
        group,
        path: code(path as u32),
        copies: copies.into(),
        source_policy: policy,
        min_ttl: stream.min_ttl,
        check_source: stream.check_source.into(),
        stream_interval,
        stream_depth,
        source_interval,
        source_depth,
        latch_timeout: timeout,
        ..Default::default()
    };
    let SourcePolicy::Allow(prefixes) = &stream.source else {
        return entry;
    };
    if prefixes.len() > entry.allowed.len() {
        entry.prefixes = PREFIXES_IN_TRIE;
        return entry;
    }
    entry.prefixes = u8::try_from(prefixes.len()).unwrap_or(u8::MAX);
    for (allowed, prefix) in entry.allowed.iter_mut().zip(prefixes) {
        let (address, mask) = masked(*prefix);
        (allowed.address, allowed.mask) = (in6(address), in6(mask));
    }
    entry
}

/// The keys of a stream's allowed sources in the trie; none where its entry has room for them.
pub(super) fn source_prefixes(stream: &Stream) -> Vec<types::source_prefix> {
    let SourcePolicy::Allow(prefixes) = &stream.source else {
        return Vec::new();
    };
    if prefixes.len() <= types::stream::default().allowed.len() {
        return Vec::new();
    }
    let key = |prefix: &Prefix| {
        let mapped = if prefix.address.is_ipv4() { 96 } else { 0 };
        types::source_prefix {
            // Of the stream, the family and the address.
            length: 64 + u32::from((prefix.length + mapped).min(128)),
            stream: stream.id.0,
            family: family(prefix.address).into(),
            address: in6(masked(*prefix).0),
        }
    };
    prefixes.iter().map(key).collect()
}

/// A bucket in time: nanoseconds of one packet, and of all it holds when full.
fn bucket(rate: Option<u32>) -> (u64, u64) {
    rate.map_or((0, 0), |rate| {
        let interval = 1_000_000_000 / u64::from(rate.max(1));
        (interval, interval * u64::from((rate / 10).max(1)))
    })
}

/// A discriminant, all of which are small.
fn code(discriminant: u32) -> u16 {
    u16::try_from(discriminant).unwrap_or(u16::MAX)
}

fn nanoseconds(duration: u128) -> u64 {
    u64::try_from(duration).unwrap_or(u64::MAX)
}

/// The first address of a prefix and its mask, both as mapped addresses.
fn masked(prefix: Prefix) -> ([u8; 16], [u8; 16]) {
    let mapped = if prefix.address.is_ipv4() { 96 } else { 0 };
    let length = prefix
        .length
        .saturating_add(mapped)
        .min(<u128 as Address>::BITS);
    let address = u128::from_be_bytes(octets(prefix.address));
    let first = Prefix6::cut(address, length).first();
    (first.to_be_bytes(), u128::mask(length).to_be_bytes())
}

/// A latch that `holder` has held since `now`.
pub(super) fn latch(holder: Option<SocketAddr>, now: u64) -> types::latch {
    holder.map_or_else(types::latch::default, |holder| types::latch {
        port: holder.port().to_be(),
        held: 1,
        address: in6(octets(holder.ip())),
        seen: now,
        ..Default::default()
    })
}

/// The sender that holds a latch.
pub(super) fn latch_holder(latch: &types::latch) -> Option<SocketAddr> {
    let (address, _) = <[u8; 16]>::split(latch.address.bytes())?;
    let address = Ipv6Addr::from(address).to_canonical();
    (latch.held != 0).then(|| SocketAddr::new(address, u16::from_be(latch.port)))
}

/// The members of a group that leave by one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub ifindex: u32,
    pub mtu: u32,
    pub slot: u16,
    pub first: u16,
    pub count: u16,
}

impl Device {
    fn frame_max(&self) -> u32 {
        self.mtu.saturating_add(FRAME_MARGIN)
    }
}

/// A group, of which `ready` of `members` are sent to, by `devices`. Broadcasts leave by at most [`MAX_GROUP_DEVICES`];
/// other programs read no device of it.
pub(super) fn group(stream: u32, ready: u32, members: u32, devices: &[Device]) -> types::group {
    let smallest = devices.iter().map(Device::frame_max).min();
    let mut entry = types::group {
        stream,
        ready,
        members,
        devices: u32::try_from(devices.len()).unwrap_or(u32::MAX),
        frame_max: smallest.unwrap_or(u32::MAX),
        ..Default::default()
    };
    for (entry, device) in entry.device.iter_mut().zip(devices) {
        *entry = types::device {
            ifindex: device.ifindex,
            frame_max: device.frame_max(),
            slot: device.slot,
            first: device.first,
            count: device.count,
            zero: 0,
        };
    }
    entry
}

/// A member's entry; with a reason, one that only counts refusals.
pub(super) fn member(member: &Member<'_>) -> types::member {
    let subscriber = member.subscriber;
    let (ifindex, source_mac, destination_mac, mtu) = match subscriber.next_hop {
        NextHop::Ready {
            ifindex,
            source_mac,
            destination_mac,
            mtu,
            ..
        } => (ifindex, source_mac, destination_mac, mtu),
        NextHop::Unresolved(_) => (0, [0; 6], [0; 6], 0),
    };
    let refused = member.refused.map_or(0, |reason| reason as u8);
    let (from, to) = (subscriber.source, subscriber.destination);
    let (source, destination) = (octets(from.ip()), octets(to.ip()));
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()];
    types::member {
        destination_mac,
        source_mac,
        source_port: from.port().to_be(),
        destination_port: to.port().to_be(),
        source: in6(source),
        destination: in6(destination),
        subscriber: subscriber.id.0,
        ifindex,
        mtu,
        address_sum: folded(&[source, destination].concat()),
        port_sum: folded(&ports.concat()),
        family: family(to.ip()),
        ttl: subscriber.ttl.unwrap_or(0),
        refused,
        flags: if member.direct { MEMBER_DIRECT } else { 0 },
    }
}

/// The folded sum of words as they lie in memory, as lowroad/csum.h adds them.
fn folded(bytes: &[u8]) -> u16 {
    checksum::fold(checksum::sum(bytes)).to_be()
}

pub(super) fn stream_counters(
    sums: &types::stream_counters,
    latched: Option<SocketAddr>,
) -> StreamCounters {
    StreamCounters {
        received: traffic(&sums.received),
        forwarded: traffic(&sums.forwarded),
        passed: traffic(&sums.passed),
        drops: drops(&sums.drops),
        copies_lost: sums.copies_lost,
        latched,
        subscribers: Default::default(),
    }
}

pub(super) fn subscriber_counters(sums: &types::subscriber_counters) -> SubscriberCounters {
    SubscriberCounters {
        delivered: traffic(&sums.delivered),
        drops: drops(&sums.drops),
    }
}

fn traffic(of: &types::traffic) -> Traffic {
    Traffic {
        packets: of.packets,
        bytes: of.bytes,
    }
}

fn drops(counts: &[u64; DROP_REASONS]) -> Drops {
    let mut drops = Drops::default();
    for (reason, count) in REASONS.into_iter().zip(counts) {
        drops.add(reason, *count);
    }
    drops
}

/// In the order of their discriminants.
const REASONS: [DropReason; DROP_REASONS] = [
    DropReason::Malformed,
    DropReason::BadChecksum,
    DropReason::SourceDenied,
    DropReason::RateLimited,
    DropReason::TtlExceeded,
    DropReason::NoRoute,
    DropReason::NoNeighbour,
    DropReason::TooBig,
    DropReason::Transmit,
    DropReason::QueueFull,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_at_their_index() {
        for (index, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }

    #[test]
    fn prefixes_are_masked_as_mapped_addresses() {
        let prefix = |text: &str, length| {
            masked(Prefix {
                address: text.parse().unwrap(),
                length,
            })
        };
        let (address, mask) = prefix("10.1.2.3", 8);
        assert_eq!(address[10..], [0xff, 0xff, 10, 0, 0, 0]);
        assert_eq!(mask[11..], [0xff, 0xff, 0, 0, 0]);
        assert_eq!(prefix("::", 0), ([0; 16], [0; 16]));
        assert_eq!(prefix("2001:db8::1", 128).1, [0xff; 16]);
    }
}
