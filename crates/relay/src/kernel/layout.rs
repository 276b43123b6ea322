//! What the BPF programs' tables hold, byte by byte: the twin of bpf/layout.h.

use std::net::{IpAddr, SocketAddr};

use netdev::NextHop;

use super::groups::Member;
use crate::counters::{DROP_REASONS, DropReason, Drops, Traffic};
use crate::handover::Road;
use crate::plan::{Prefix, SourcePolicy, Stream};

pub(super) const GROUP_SLOTS: u32 = 320;
pub(super) const MAX_GROUP_DEVICES: usize = 32;
pub(super) const MAX_DEVICES: u16 = 256;
const MEMBER_DIRECT: u32 = 1;
const MAX_PREFIXES: usize = 16;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Ethernet header and one VLAN tag: what the kernel allows a redirected frame beyond the MTU.
const FRAME_MARGIN: u32 = 18;

pub(super) fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

pub(super) fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

pub(super) fn ingest_key(at: SocketAddr, ifindex: u32) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&address(at.ip()));
    key[16..20].copy_from_slice(&ifindex.to_ne_bytes());
    key[20..22].copy_from_slice(&at.port().to_be_bytes());
    key[22..].copy_from_slice(&family(at.ip()).to_ne_bytes());
    key
}

/// `struct ingest`, of a device with this address. A guarded port is guarded from whole groups of
/// devices too; other datagrams come to a group only by a group's frame.
pub(super) fn ingest(stream: u32, at: SocketAddr, guard: bool, mac: [u8; 6]) -> [u8; 16] {
    let groups = guard || at.ip().is_multicast();
    let mut value = [0; 16];
    value[..4].copy_from_slice(&stream.to_ne_bytes());
    value[4..6].copy_from_slice(&u16::from(guard).to_ne_bytes());
    value[6..8].copy_from_slice(&u16::from(groups).to_ne_bytes());
    value[8..14].copy_from_slice(&mac);
    value
}

/// `struct stream`, or why this source policy does not fit.
pub(super) fn stream(stream: &Stream, group: u32, road: Road) -> Result<Vec<u8>, String> {
    let (policy, prefixes, timeout) = match &stream.source {
        SourcePolicy::Any => (0, &[][..], 0),
        SourcePolicy::Allow(prefixes) => (1, prefixes.as_slice(), 0),
        SourcePolicy::Latch { timeout, .. } => (2, &[][..], nanoseconds(timeout.as_nanos())),
    };
    if prefixes.len() > MAX_PREFIXES {
        return Err(format!(
            "stream {}: a fast path takes at most {MAX_PREFIXES} source prefixes, {} given",
            stream.name,
            prefixes.len()
        ));
    }
    let shadow = stream.handover.map_or(0, |handover| handover.shadow_port);
    let mut bytes = Vec::with_capacity(568);
    bytes.extend(group.to_ne_bytes());
    bytes.extend(code(road as u32).to_ne_bytes());
    bytes.extend(stream.copy_port.unwrap_or(0).to_be_bytes());
    bytes.extend(shadow.to_be_bytes());
    bytes.extend([policy, u8::try_from(prefixes.len()).unwrap_or(0)]);
    bytes.extend([stream.min_ttl, 0, 0, 0]);
    for rate in [stream.limits.stream_pps, stream.limits.source_pps] {
        let (interval, depth) = bucket(rate);
        bytes.extend(interval.to_ne_bytes());
        bytes.extend(depth.to_ne_bytes());
    }
    bytes.extend(u64::to_ne_bytes(timeout));
    for prefix in prefixes {
        let (address, mask) = masked(*prefix);
        bytes.extend(address);
        bytes.extend(mask);
    }
    bytes.resize(568, 0);
    Ok(bytes)
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

fn masked(prefix: Prefix) -> ([u8; 16], [u8; 16]) {
    let mapped = if prefix.address.is_ipv4() { 96 } else { 0 };
    let length = u32::from(prefix.length) + mapped;
    let mask = u128::MAX
        .checked_shl(128 - length.min(128))
        .unwrap_or_default()
        .to_be_bytes();
    let mut bytes = address(prefix.address);
    for (byte, mask) in bytes.iter_mut().zip(mask) {
        *byte &= mask;
    }
    (bytes, mask)
}

/// `struct latch`, held by `holder` since `now`.
pub(super) fn latch(holder: Option<SocketAddr>, now: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    if let Some(holder) = holder {
        bytes[4..6].copy_from_slice(&holder.port().to_be_bytes());
        bytes[6] = 1;
        bytes[8..24].copy_from_slice(&address(holder.ip()));
        bytes[24..].copy_from_slice(&now.to_ne_bytes());
    }
    bytes
}

/// Who holds a latch.
pub(super) fn latch_holder(bytes: &[u8]) -> Option<SocketAddr> {
    let held = *bytes.get(6)? != 0;
    let port = u16::from_be_bytes(bytes.get(4..6)?.try_into().ok()?);
    let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
    held.then(|| SocketAddr::new(std::net::Ipv6Addr::from(address).to_canonical(), port))
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

/// `struct group`: `ready` of `members` are sent to, by `devices`.
pub(super) fn group(stream: u32, ready: u32, members: u32, devices: &[Device]) -> Vec<u8> {
    let frame_max = |device: &Device| device.mtu.saturating_add(FRAME_MARGIN);
    let smallest = devices.iter().map(frame_max).min().unwrap_or(u32::MAX);
    let count = u32::try_from(devices.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(536);
    for word in [stream, ready, members, count, smallest, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    for device in devices {
        bytes.extend(device.ifindex.to_ne_bytes());
        bytes.extend(frame_max(device).to_ne_bytes());
        for half in [device.slot, device.first, device.count, 0] {
            bytes.extend(half.to_ne_bytes());
        }
    }
    bytes.resize(536, 0);
    bytes
}

/// `struct member`; with a reason, one that only counts refusals.
pub(super) fn member(member: &Member<'_>) -> Vec<u8> {
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
    let refused = member.refused.map_or(0, |reason| code(reason as u32));
    let (from, to) = (subscriber.source, subscriber.destination);
    let addresses = [address(from.ip()), address(to.ip())].concat();
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(destination_mac);
    bytes.extend(source_mac);
    bytes.extend(&ports);
    bytes.extend(&addresses);
    for word in [subscriber.id.0, ifindex, mtu] {
        bytes.extend(word.to_ne_bytes());
    }
    for half in [folded(&addresses), folded(&ports), family(to.ip())] {
        bytes.extend(half.to_ne_bytes());
    }
    bytes.extend([subscriber.ttl.unwrap_or(0), refused.to_le_bytes()[0]]);
    let flags = if member.direct { MEMBER_DIRECT } else { 0 };
    bytes.extend(flags.to_ne_bytes());
    bytes
}

fn folded(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}

/// A value's 64-bit words, added up over all CPUs.
pub(super) fn add_words(per_cpu: &[Vec<u8>]) -> Vec<u64> {
    let mut sums = Vec::new();
    for value in per_cpu {
        sums.resize(value.len() / 8, 0);
        for (sum, word) in sums.iter_mut().zip(value.chunks_exact(8)) {
            *sum += u64::from_ne_bytes(word.try_into().unwrap_or_default());
        }
    }
    sums
}

pub(super) fn traffic(words: &[u64]) -> Traffic {
    Traffic {
        packets: words.first().copied().unwrap_or(0),
        bytes: words.get(1).copied().unwrap_or(0),
    }
}

pub(super) fn drops(words: &[u64]) -> Drops {
    let mut drops = Drops::default();
    for (reason, count) in REASONS.into_iter().zip(words) {
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
