//! `nprint.v1`: a packet as bits, each header field at a place of its own: nPrint's representation.
//!
//! All bits are one column, because its rows lie one behind the other in memory: the matrix that a
//! model takes is that memory, and a header is a slice of it. A column for each bit would be as many
//! arrays, which would have to be put together first.

use super::{Rows, Rules, Schema};
use crate::column::{self, Column, Unit, Value};
use crate::packets::Bits;

pub(super) const SCHEMA: Schema = Schema {
    name: "nprint.v1",
    about: "a packet a row: its headers' bits, as nPrint has them",
    rules: Rules::Own,
    rows: Rows::Bits(&[COLUMNS]),
};

/// nPrint's fields in its order (its options -4 -6 -t -u -i -p), and their bits.
const FIELDS: &[(&str, usize)] = &[
    ("ipv4_ver", 4),
    ("ipv4_hl", 4),
    ("ipv4_tos", 8),
    ("ipv4_tl", 16),
    ("ipv4_id", 16),
    ("ipv4_rbit", 1),
    ("ipv4_dfbit", 1),
    ("ipv4_mfbit", 1),
    ("ipv4_foff", 13),
    ("ipv4_ttl", 8),
    ("ipv4_proto", 8),
    ("ipv4_cksum", 16),
    ("ipv4_src", 32),
    ("ipv4_dst", 32),
    ("ipv4_opt", 320),
    ("ipv6_ver", 4),
    ("ipv6_tc", 8),
    ("ipv6_fl", 20),
    ("ipv6_len", 16),
    ("ipv6_nh", 8),
    ("ipv6_hl", 8),
    ("ipv6_src", 128),
    ("ipv6_dst", 128),
    ("tcp_sprt", 16),
    ("tcp_dprt", 16),
    ("tcp_seq", 32),
    ("tcp_ackn", 32),
    ("tcp_doff", 4),
    ("tcp_res", 3),
    ("tcp_ns", 1),
    ("tcp_cwr", 1),
    ("tcp_ece", 1),
    ("tcp_urg", 1),
    ("tcp_ackf", 1),
    ("tcp_psh", 1),
    ("tcp_rst", 1),
    ("tcp_syn", 1),
    ("tcp_fin", 1),
    ("tcp_wsize", 16),
    ("tcp_cksum", 16),
    ("tcp_urp", 16),
    ("tcp_opt", 320),
    ("udp_sport", 16),
    ("udp_dport", 16),
    ("udp_len", 16),
    ("udp_cksum", 16),
    ("icmp_type", 8),
    ("icmp_code", 8),
    ("icmp_cksum", 16),
    ("icmp_roh", 32),
];

const COLUMNS: &[Column<Bits>] = &[
    Column::new(
        "time",
        Unit::Nanoseconds,
        "When the packet was captured.",
        Value::Time(|p| Some(p.time_ns)),
    ),
    Column::new(
        "flow_id",
        Unit::None,
        "That of the packet's flow in flow.v1.",
        Value::U64(|p| Some(p.place.flow_id)),
    ),
    Column::new(
        "packets_before",
        Unit::Packets,
        "Packets of its flow that came before it.",
        Value::U64(|p| Some(p.place.before)),
    ),
    Column::new(
        "forward",
        Unit::None,
        "Whether the side sent it that is the flow's source in flow.v1.",
        Value::Bool(|p| Some(p.place.forward)),
    ),
    Column::new(
        "bits",
        Unit::None,
        "Bits of the IPv4, IPv6, TCP, UDP and ICMP or ICMPv6 header, then of the first --payload-bytes of payload, first bit first: 0 or 1, -1 where the packet has no such header, option or byte, or the capture did not keep it; the field's metadata names their fields.",
        Value::Bits(column::Bits {
            fields: FIELDS,
            of: |p: &Bits| &p.bits,
        }),
    )
    .from_payload(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets;

    #[test]
    fn the_fields_are_as_long_as_the_headers() {
        let bits = |header: &str| {
            let fields = FIELDS.iter().filter(|(name, _)| name.starts_with(header));
            fields.map(|(_, bits)| bits).sum::<usize>()
        };
        for (header, expected) in [
            ("ipv4_", packets::IPV4),
            ("ipv6_", packets::IPV6),
            ("tcp_", packets::TCP),
            ("udp_", packets::UDP),
            ("icmp_", packets::ICMP),
            ("", packets::HEADERS),
        ] {
            assert_eq!(bits(header), expected, "{header}");
        }
    }
}
