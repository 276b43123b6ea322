//! Converts the kernel's records to `Flow`s and `Packet`s. All numbers are copied; none are computed here.

use super::classes::classification;
use super::skel::flow::types;
use super::skel::packets::types as packets;
use crate::Key;
use crate::Sender;
use crate::dissect::{Fragment, Icmp, Link, Packet, Tcp};
use crate::flow::{
    Bulks, Closing, Contents, Direction, End, Flow, Lengths, Periods, Remarks, Run, Step, Times,
    Windows,
};

/// The marks of packet.h.
mod packet_mark {
    pub(super) const TCP: u32 = 1 << 0;
    pub(super) const ICMP: u32 = 1 << 1;
    pub(super) const WINDOW_SCALE: u32 = 1 << 2;
    pub(super) const HEADLESS: u32 = 1 << 3;
    pub(super) const FLAG_TRUNCATED: u32 = 1 << 4;
    pub(super) const FLAG_MALFORMED: u32 = 1 << 5;
    pub(super) const FLAG_AGGREGATED: u32 = 1 << 6;
}

/// The marks of flow.h.
const MIDSTREAM: u8 = 1 << 0;
const ICMP: u8 = 1 << 1;
const RESET: u8 = 1 << 2;
const INITIAL: u8 = 1 << 3;
/// The marks of a direction's windows.
const WINDOW_SEEN: u8 = 1 << 0;
const WINDOW_SCALED: u8 = 1 << 1;

/// The ends of flow.h, in its order.
const ENDS: [End; 6] = [
    End::Idle,
    End::Active,
    End::Closed,
    End::Stopped,
    End::Full,
    End::Early,
];

impl From<&types::flow> for Flow {
    fn from(record: &types::flow) -> Self {
        let has = |mark| record.marks & mark != 0;
        Self {
            key: key(&record.key),
            initiator: sender(record.initiator),
            opener: sender(record.opener),
            forward: direction(&record.directions[0]),
            backward: direction(&record.directions[1]),
            gaps: times(&record.gaps),
            periods: Periods::new(
                times(&record.periods.closed),
                times(&record.periods.idle),
                record.periods.open_ns,
                record.periods.subflow_gaps,
            ),
            steps: steps(record),
            first_ns: record.first_ns,
            last_ns: record.last_ns,
            icmp: has(ICMP).then_some(Icmp {
                kind: record.icmp_kind,
                code: record.icmp_code,
                identifier: record.icmp_identifier,
            }),
            source_mac: record.source_mac,
            destination_mac: record.destination_mac,
            vlan: record.vlan,
            midstream: has(MIDSTREAM),
            remarks: Remarks {
                out_of_order: record.out_of_order,
                truncated: record.truncated,
                malformed: record.malformed,
                aggregated: record.aggregated,
                fragments: record.fragments,
                headless: record.headless.map(|lengths_of| lengths(&lengths_of)),
                tunnels: [None; 2],
                classification: classification(record),
            }
            .held(),
            contents: Contents::none(),
            connection: None,
            end: ENDS
                .get(usize::from(record.end))
                .copied()
                .unwrap_or(End::Stopped),
            closing: Closing::new(has(INITIAL).then_some(record.initial), has(RESET)),
        }
    }
}

impl From<&packets::packet> for Packet<'static> {
    fn from(record: &packets::packet) -> Self {
        let has = |mark| record.marks & mark != 0;
        let packets::flow_key {
            addresses,
            ports,
            vlan,
            protocol,
            version,
        } = record.key;
        Self {
            time_ns: record.time_ns,
            wire_length: record.wire_length,
            link: Link {
                l3: record.l3.into(),
                ethertype: record.ethertype,
                vlan: record.vlan,
                vlan_tags: record.vlan_tags,
                source_mac: record.source_mac,
                destination_mac: record.destination_mac,
            },
            key: key(&types::flow_key {
                addresses,
                ports,
                vlan,
                protocol,
                version,
            }),
            sender: sender(record.sender),
            tunnel: None,
            ip_length: record.ip_length,
            ip_header: record.ip_header,
            l4_header: record.l4_header,
            payload_length: record.payload_length,
            ttl: record.ttl,
            tos: record.tos,
            fragment: fragment(record.fragment),
            identification: record.identification,
            ip_protocol: record.ip_protocol,
            tcp: has(packet_mark::TCP).then_some(Tcp {
                flags: record.tcp_flags,
                reserved: record.tcp_reserved,
                sequence: record.sequence,
                acknowledgement: record.acknowledgement,
                window: record.window,
                window_scale: has(packet_mark::WINDOW_SCALE).then_some(record.window_scale),
            }),
            icmp: has(packet_mark::ICMP).then_some(Icmp {
                kind: record.icmp_kind,
                code: record.icmp_code,
                identifier: record.icmp_identifier,
            }),
            headless: has(packet_mark::HEADLESS),
            truncated: has(packet_mark::FLAG_TRUNCATED),
            malformed: has(packet_mark::FLAG_MALFORMED),
            aggregated: has(packet_mark::FLAG_AGGREGATED),
            payload: &[],
            network: &[],
        }
    }
}

fn fragment(kind: u8) -> Fragment {
    match kind {
        0 => Fragment::None,
        1 => Fragment::First,
        _ => Fragment::Later,
    }
}

fn key(key: &types::flow_key) -> Key {
    let address = |[high, low]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
    Key {
        addresses: key.addresses.map(address),
        ports: key.ports,
        vlan: key.vlan,
        protocol: key.protocol,
        version: key.version,
        network: 0,
    }
}

/// A key in the layout of the tables.
pub(super) fn key_record(key: &Key) -> types::flow_key {
    types::flow_key {
        addresses: key.addresses.map(halves),
        ports: key.ports,
        vlan: key.vlan,
        protocol: key.protocol,
        version: key.version,
    }
}

/// An address in the layout of the programs: the high and the low half.
pub(super) fn halves(address: u128) -> [u64; 2] {
    let bytes = address.to_be_bytes();
    [0, 8].map(|at| u64::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte])))
}

fn sender(endpoint: u8) -> Sender {
    match endpoint {
        0 => Sender::First,
        _ => Sender::Second,
    }
}

fn steps(record: &types::flow) -> Vec<Step> {
    let lengths = record.step_payloads.iter().zip(record.step_wires);
    let steps = lengths.zip(record.step_gaps);
    let steps = steps.map(|((&payload, wire), gap_ns)| Step {
        payload,
        wire,
        gap_ns,
    });
    steps
        .take(usize::try_from(record.steps).unwrap_or(0))
        .collect()
}

fn direction(direction: &types::direction) -> Direction {
    let has = |mark| direction.window_marks & mark != 0;
    Direction {
        wire: lengths(&direction.wire),
        payload: lengths(&direction.payload),
        gaps: times(&direction.gaps),
        first_ns: direction.first_ns,
        last_ns: direction.last_ns,
        ip_bytes: direction.ip_bytes,
        ip_header_bytes: direction.ip_header_bytes,
        l4_header_bytes: direction.l4_header_bytes,
        payload_packets: direction.payload_packets,
        flags: direction.flags,
        reserved: direction.reserved,
        windows: has(WINDOW_SEEN).then_some(Windows {
            first: direction.first_window,
            last: direction.last_window,
            scale: has(WINDOW_SCALED).then_some(direction.window_scale),
        }),
        min_ttl: direction.min_ttl,
        max_ttl: direction.max_ttl,
        tos: direction.tos,
        min_l4_header: direction.min_l4_header,
        bulks: bulks(&direction.bulks),
    }
}

fn bulks(bulks: &types::bulks) -> Bulks {
    Bulks {
        count: bulks.count,
        packets: bulks.packets,
        bytes: bulks.bytes,
        duration_ns: bulks.duration_ns,
        run: Run {
            packets: bulks.run.packets,
            bytes: bulks.run.bytes,
            duration_ns: bulks.run.duration_ns,
            last_ns: bulks.run.last_ns,
        },
    }
}

fn lengths(lengths: &types::lengths) -> Lengths {
    Lengths {
        count: lengths.count,
        min: lengths.min,
        max: lengths.max,
        sum: lengths.sum,
        squares: lengths.squares,
    }
}

fn times(times: &types::times) -> Times {
    Times {
        count: times.count,
        min: times.min,
        max: times.max,
        sum: times.sum,
        squares: u128::from(times.squares_high) << 64 | u128::from(times.squares_low),
    }
}
