//! `ipfix`: flows in the terms of IANA's registry of information elements, one for each column. What a
//! responder sent is in reverse elements (RFC 5103). Columns are null where a flow has no such thing;
//! a record then goes without the element.

use std::fmt::Write;

use super::flow::mac;
use super::{Rows, Rules, Schema};
use crate::column::{Column, Unit, Value};
use crate::dissect::{Tunnel, tcp_flag};
use crate::element::{Element, Encoding};
use crate::flow::{Direction, End, Flow};
use crate::key::Endpoint;
use crate::text::ip;

pub(super) const SCHEMA: Schema = Schema {
    name: "ipfix",
    about: "the information elements that IPFIX collectors know",
    rules: Rules::Own,
    rows: Rows::Flows(&[COLUMNS]),
};

const COLUMNS: &[Column<Flow>] = &[
    Column::<Flow>::new(
        "flowId",
        Unit::None,
        "Same as flow_id of flow.v1.",
        Value::U64(|f| Some(f.id())),
    )
    .exported_as(Element::unsigned(148, 8)),
    Column::<Flow>::new(
        "sourceIPv4Address",
        Unit::None,
        "Address of the side that sent the first packet; of the other side if that packet was a SYN with ACK; null of IPv6.",
        Value::Text(|f, out| f.key.version == 4 && address(f, f.source(), out)),
    )
    .exported_as(Element::new(8, Encoding::Ipv4)),
    Column::<Flow>::new(
        "sourceIPv6Address",
        Unit::None,
        "Address of the side that sent the first packet; of the other side if that packet was a SYN with ACK; null of IPv4.",
        Value::Text(|f, out| f.key.version != 4 && address(f, f.source(), out)),
    )
    .exported_as(Element::new(27, Encoding::Ipv6)),
    Column::<Flow>::new(
        "sourceTransportPort",
        Unit::None,
        "Port of the source; 0 where the protocol has none.",
        Value::U16(|f| Some(port(f, f.source()))),
    )
    .exported_as(Element::unsigned(7, 2)),
    Column::<Flow>::new(
        "destinationIPv4Address",
        Unit::None,
        "Address of the other side; null of IPv6.",
        Value::Text(|f, out| f.key.version == 4 && address(f, f.destination(), out)),
    )
    .exported_as(Element::new(12, Encoding::Ipv4)),
    Column::<Flow>::new(
        "destinationIPv6Address",
        Unit::None,
        "Address of the other side; null of IPv4.",
        Value::Text(|f, out| f.key.version != 4 && address(f, f.destination(), out)),
    )
    .exported_as(Element::new(28, Encoding::Ipv6)),
    Column::<Flow>::new(
        "destinationTransportPort",
        Unit::None,
        "Port of the destination; 0 where the protocol has none.",
        Value::U16(|f| Some(port(f, f.destination()))),
    )
    .exported_as(Element::unsigned(11, 2)),
    Column::<Flow>::new(
        "protocolIdentifier",
        Unit::None,
        "IP protocol number, after extension headers.",
        Value::U8(|f| Some(f.key.protocol)),
    )
    .exported_as(Element::unsigned(4, 1)),
    Column::<Flow>::new(
        "ipVersion",
        Unit::None,
        "4 or 6.",
        Value::U8(|f| Some(f.key.version)),
    )
    .exported_as(Element::unsigned(60, 1)),
    Column::<Flow>::new(
        "flowStartNanoseconds",
        Unit::Nanoseconds,
        "Time of the first packet.",
        Value::Time(|f| Some(f.first_ns)),
    )
    .exported_as(Element::new(156, Encoding::Nanoseconds)),
    Column::<Flow>::new(
        "flowEndNanoseconds",
        Unit::Nanoseconds,
        "Latest time of any packet.",
        Value::Time(|f| Some(f.last_ns)),
    )
    .exported_as(Element::new(157, Encoding::Nanoseconds)),
    Column::<Flow>::new(
        "flowStartMilliseconds",
        Unit::None,
        "The same as flowStartNanoseconds, cut to milliseconds, for collectors that know no others.",
        Value::Time(|f| Some(milliseconds(f.first_ns))),
    )
    .exported_as(Element::new(152, Encoding::Milliseconds)),
    Column::<Flow>::new(
        "flowEndMilliseconds",
        Unit::None,
        "The same as flowEndNanoseconds, cut to milliseconds.",
        Value::Time(|f| Some(milliseconds(f.last_ns))),
    )
    .exported_as(Element::new(153, Encoding::Milliseconds)),
    Column::<Flow>::new(
        "flowEndReason",
        Unit::None,
        "1 idle timeout, 2 active timeout, 3 end of the connection, 4 the capture ended, 5 the table was full; null of a row that is not the flow's last.",
        Value::U8(end_reason),
    )
    .exported_as(Element::unsigned(136, 1)),
    Column::<Flow>::new(
        "biflowDirection",
        Unit::None,
        "1: forward is the direction of the side that started.",
        Value::U8(|_| Some(1)),
    )
    .exported_as(Element::unsigned(239, 1)),
    Column::<Flow>::new(
        "vlanId",
        Unit::None,
        "Outermost VLAN id of the first packet; null without a tag.",
        Value::U16(|f| (f.vlan != 0).then_some(f.vlan)),
    )
    .exported_as(Element::unsigned(58, 2)),
    Column::<Flow>::new(
        "layer2SegmentId",
        Unit::None,
        "Identifier of the innermost tunnel's layer 2 segment, in the low three bytes, and its encapsulation in the highest: 1 VXLAN, 2 NVGRE; null without one, and of other tunnels.",
        Value::U64(segment),
    )
    .exported_as(Element::unsigned(351, 8)),
    Column::<Flow>::new(
        "sourceMacAddress",
        Unit::None,
        "Hardware source address of the first packet; null without one.",
        Value::Text(|f, out| mac(f.source_mac, out)),
    )
    .exported_as(Element::new(56, Encoding::Mac)),
    Column::<Flow>::new(
        "destinationMacAddress",
        Unit::None,
        "Hardware destination address of the first packet; null without one.",
        Value::Text(|f, out| mac(f.destination_mac, out)),
    )
    .exported_as(Element::new(80, Encoding::Mac)),
    Column::<Flow>::new(
        "icmpTypeCodeIPv4",
        Unit::None,
        "Type * 256 + code of the first packet; null unless ICMP.",
        Value::U16(|f| icmp(f, 4)),
    )
    .exported_as(Element::unsigned(32, 2)),
    Column::<Flow>::new(
        "icmpTypeCodeIPv6",
        Unit::None,
        "Type * 256 + code of the first packet; null unless ICMPv6.",
        Value::U16(|f| icmp(f, 6)),
    )
    .exported_as(Element::unsigned(139, 2)),
    Column::<Flow>::new(
        "packetTotalCount",
        Unit::Packets,
        "Packets sent forward.",
        Value::U64(|f| Some(f.forward.packets())),
    )
    .exported_as(Element::unsigned(86, 8)),
    Column::<Flow>::new(
        "reversePacketTotalCount",
        Unit::Packets,
        "Packets sent backward; null without packets.",
        Value::U64(|f| of(&f.backward, Direction::packets)),
    )
    .exported_as(Element::unsigned(86, 8).reverse()),
    Column::<Flow>::new(
        "octetTotalCount",
        Unit::Bytes,
        "Bytes of IP packets by their headers, sent forward.",
        Value::U64(|f| Some(f.forward.ip_bytes)),
    )
    .exported_as(Element::unsigned(85, 8)),
    Column::<Flow>::new(
        "reverseOctetTotalCount",
        Unit::Bytes,
        "Bytes of IP packets by their headers, sent backward; null without packets.",
        Value::U64(|f| of(&f.backward, |d| d.ip_bytes)),
    )
    .exported_as(Element::unsigned(85, 8).reverse()),
    Column::<Flow>::new(
        "layer2OctetTotalCount",
        Unit::Bytes,
        "Bytes of whole frames, without check sequences, sent forward; null without packets.",
        Value::U64(|f| of(&f.forward, |d| d.wire.sum)),
    )
    .exported_as(Element::unsigned(353, 8)),
    Column::<Flow>::new(
        "reverseLayer2OctetTotalCount",
        Unit::Bytes,
        "Bytes of whole frames, without check sequences, sent backward; null without packets.",
        Value::U64(|f| of(&f.backward, |d| d.wire.sum)),
    )
    .exported_as(Element::unsigned(353, 8).reverse()),
    Column::<Flow>::new(
        "minimumLayer2TotalLength",
        Unit::Bytes,
        "Length of the shortest frame sent forward; null without packets.",
        Value::U64(|f| of(&f.forward, |d| d.wire.min.into())),
    )
    .exported_as(Element::unsigned(422, 8)),
    Column::<Flow>::new(
        "reverseMinimumLayer2TotalLength",
        Unit::Bytes,
        "Length of the shortest frame sent backward; null without packets.",
        Value::U64(|f| of(&f.backward, |d| d.wire.min.into())),
    )
    .exported_as(Element::unsigned(422, 8).reverse()),
    Column::<Flow>::new(
        "maximumLayer2TotalLength",
        Unit::Bytes,
        "Length of the longest frame sent forward; null without packets.",
        Value::U64(|f| of(&f.forward, |d| d.wire.max.into())),
    )
    .exported_as(Element::unsigned(423, 8)),
    Column::<Flow>::new(
        "reverseMaximumLayer2TotalLength",
        Unit::Bytes,
        "Length of the longest frame sent backward; null without packets.",
        Value::U64(|f| of(&f.backward, |d| d.wire.max.into())),
    )
    .exported_as(Element::unsigned(423, 8).reverse()),
    Column::<Flow>::new(
        "layer2OctetTotalSumOfSquares",
        Unit::SquareBytes,
        "Sum of the squares of the lengths of frames sent forward; null without packets.",
        Value::U64(|f| of(&f.forward, |d| d.wire.squares)),
    )
    .exported_as(Element::unsigned(429, 8)),
    Column::<Flow>::new(
        "reverseLayer2OctetTotalSumOfSquares",
        Unit::SquareBytes,
        "Sum of the squares of the lengths of frames sent backward; null without packets.",
        Value::U64(|f| of(&f.backward, |d| d.wire.squares)),
    )
    .exported_as(Element::unsigned(429, 8).reverse()),
    Column::<Flow>::new(
        "ipClassOfService",
        Unit::None,
        "DSCP and ECN of the first packet sent forward; null without packets.",
        Value::U8(|f| of(&f.forward, |d| d.tos)),
    )
    .exported_as(Element::unsigned(5, 1)),
    Column::<Flow>::new(
        "reverseIpClassOfService",
        Unit::None,
        "DSCP and ECN of the first packet sent backward; null without packets.",
        Value::U8(|f| of(&f.backward, |d| d.tos)),
    )
    .exported_as(Element::unsigned(5, 1).reverse()),
    Column::<Flow>::new(
        "minimumTTL",
        Unit::None,
        "Least TTL or hop limit of packets sent forward; null without packets.",
        Value::U8(|f| of(&f.forward, |d| d.min_ttl)),
    )
    .exported_as(Element::unsigned(52, 1)),
    Column::<Flow>::new(
        "reverseMinimumTTL",
        Unit::None,
        "Least TTL or hop limit of packets sent backward; null without packets.",
        Value::U8(|f| of(&f.backward, |d| d.min_ttl)),
    )
    .exported_as(Element::unsigned(52, 1).reverse()),
    Column::<Flow>::new(
        "maximumTTL",
        Unit::None,
        "Greatest TTL or hop limit of packets sent forward; null without packets.",
        Value::U8(|f| of(&f.forward, |d| d.max_ttl)),
    )
    .exported_as(Element::unsigned(53, 1)),
    Column::<Flow>::new(
        "reverseMaximumTTL",
        Unit::None,
        "Greatest TTL or hop limit of packets sent backward; null without packets.",
        Value::U8(|f| of(&f.backward, |d| d.max_ttl)),
    )
    .exported_as(Element::unsigned(53, 1).reverse()),
    Column::<Flow>::new(
        "reverseFlowStartNanoseconds",
        Unit::Nanoseconds,
        "Time of the first packet sent backward; null without packets.",
        Value::Time(|f| of(&f.backward, |d| d.first_ns)),
    )
    .exported_as(Element::new(156, Encoding::Nanoseconds).reverse()),
    Column::<Flow>::new(
        "reverseFlowEndNanoseconds",
        Unit::Nanoseconds,
        "Time of the latest packet sent backward; null without packets.",
        Value::Time(|f| of(&f.backward, |d| d.last_ns)),
    )
    .exported_as(Element::new(157, Encoding::Nanoseconds).reverse()),
    Column::<Flow>::new(
        "tcpControlBits",
        Unit::None,
        "All TCP flags of packets sent forward, with AE and the reserved bits, as bytes 13 and 14 of the header have them; null unless TCP, and without packets.",
        Value::U16(|f| tcp(f, &f.forward, control_bits)),
    )
    .exported_as(Element::unsigned(6, 2)),
    Column::<Flow>::new(
        "reverseTcpControlBits",
        Unit::None,
        "All TCP flags of packets sent backward, likewise; null unless TCP, and without packets.",
        Value::U16(|f| tcp(f, &f.backward, control_bits)),
    )
    .exported_as(Element::unsigned(6, 2).reverse()),
    Column::<Flow>::new(
        "tcpSynTotalCount",
        Unit::Packets,
        "Packets with SYN sent forward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.forward, |d| d.flag(tcp_flag::SYN))),
    )
    .exported_as(Element::unsigned(218, 8)),
    Column::<Flow>::new(
        "reverseTcpSynTotalCount",
        Unit::Packets,
        "Packets with SYN sent backward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.backward, |d| d.flag(tcp_flag::SYN))),
    )
    .exported_as(Element::unsigned(218, 8).reverse()),
    Column::<Flow>::new(
        "tcpFinTotalCount",
        Unit::Packets,
        "Packets with FIN sent forward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.forward, |d| d.flag(tcp_flag::FIN))),
    )
    .exported_as(Element::unsigned(219, 8)),
    Column::<Flow>::new(
        "reverseTcpFinTotalCount",
        Unit::Packets,
        "Packets with FIN sent backward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.backward, |d| d.flag(tcp_flag::FIN))),
    )
    .exported_as(Element::unsigned(219, 8).reverse()),
    Column::<Flow>::new(
        "tcpRstTotalCount",
        Unit::Packets,
        "Packets with RST sent forward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.forward, |d| d.flag(tcp_flag::RST))),
    )
    .exported_as(Element::unsigned(220, 8)),
    Column::<Flow>::new(
        "reverseTcpRstTotalCount",
        Unit::Packets,
        "Packets with RST sent backward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.backward, |d| d.flag(tcp_flag::RST))),
    )
    .exported_as(Element::unsigned(220, 8).reverse()),
    Column::<Flow>::new(
        "tcpPshTotalCount",
        Unit::Packets,
        "Packets with PSH sent forward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.forward, |d| d.flag(tcp_flag::PSH))),
    )
    .exported_as(Element::unsigned(221, 8)),
    Column::<Flow>::new(
        "reverseTcpPshTotalCount",
        Unit::Packets,
        "Packets with PSH sent backward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.backward, |d| d.flag(tcp_flag::PSH))),
    )
    .exported_as(Element::unsigned(221, 8).reverse()),
    Column::<Flow>::new(
        "tcpAckTotalCount",
        Unit::Packets,
        "Packets with ACK sent forward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.forward, |d| d.flag(tcp_flag::ACK))),
    )
    .exported_as(Element::unsigned(222, 8)),
    Column::<Flow>::new(
        "reverseTcpAckTotalCount",
        Unit::Packets,
        "Packets with ACK sent backward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.backward, |d| d.flag(tcp_flag::ACK))),
    )
    .exported_as(Element::unsigned(222, 8).reverse()),
    Column::<Flow>::new(
        "tcpUrgTotalCount",
        Unit::Packets,
        "Packets with URG sent forward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.forward, |d| d.flag(tcp_flag::URG))),
    )
    .exported_as(Element::unsigned(223, 8)),
    Column::<Flow>::new(
        "reverseTcpUrgTotalCount",
        Unit::Packets,
        "Packets with URG sent backward; null unless TCP, and without packets.",
        Value::U64(|f| tcp(f, &f.backward, |d| d.flag(tcp_flag::URG))),
    )
    .exported_as(Element::unsigned(223, 8).reverse()),
];

/// A value of a direction that has sent something.
fn of<T>(direction: &Direction, value: fn(&Direction) -> T) -> Option<T> {
    (direction.packets() > 0).then(|| value(direction))
}

fn tcp<T>(flow: &Flow, direction: &Direction, value: fn(&Direction) -> T) -> Option<T> {
    of(direction, value).filter(|_| flow.key.protocol == 6)
}

/// The flags with the bits before them; those of the data offset are zero (RFC 9565).
fn control_bits(direction: &Direction) -> u16 {
    (0..8)
        .filter(|bit| direction.flags[*bit] > 0)
        .fold(u16::from(direction.reserved) << 8, |bits, bit| {
            bits | 1 << bit
        })
}

/// The value of element 351, which IANA's registry defines for two encapsulations.
fn segment(flow: &Flow) -> Option<u64> {
    let forward = flow.tunnel(flow.initiator);
    let backward = || flow.tunnel(flow.initiator.other());
    let (encapsulation, id) = match forward.or_else(backward)? {
        Tunnel::Vxlan(id) => (1, id),
        Tunnel::Nvgre(id) => (2, id),
        Tunnel::Geneve(_) | Tunnel::Gre(_) | Tunnel::Gtp(_) => return None,
    };
    Some(encapsulation << 56 | u64::from(id))
}

/// Identifiers of echoes are no ports of a transport header.
fn port(flow: &Flow, endpoint: Endpoint) -> u16 {
    match flow.icmp {
        Some(_) => 0,
        None => endpoint.port,
    }
}

fn address(flow: &Flow, endpoint: Endpoint, out: &mut dyn Write) -> bool {
    ip(endpoint.ip(flow.key.version), out)
}

fn milliseconds(time_ns: i64) -> i64 {
    time_ns - time_ns.rem_euclid(1_000_000)
}

fn icmp(flow: &Flow, version: u8) -> Option<u16> {
    let icmp = flow.icmp.filter(|_| flow.key.version == version)?;
    Some(u16::from_be_bytes([icmp.kind, icmp.code]))
}

/// The codes of element 136. An early row ends nothing, so that its record has none.
fn end_reason(flow: &Flow) -> Option<u8> {
    match flow.end {
        End::Idle => Some(1),
        End::Active => Some(2),
        End::Closed => Some(3),
        End::Stopped => Some(4),
        End::Full => Some(5),
        End::Early => None,
    }
}
