//! Whether a packet's transport checksum is wrong.

use packet::parse::Fragment;
use packet::{checksum, protocol};

use crate::dissect::Packet;

/// IP headers without options or extension headers, in bytes.
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// Whether the checksum of a TCP segment or UDP datagram is wrong. The result is `false` if it cannot be computed: the
/// packet is a fragment, the capture truncated it, or its IP header has options or extension headers, which may change
/// the address in the checksum. It is also `false` for checksum offload, where the field holds the sum of the
/// pseudo-header alone: such a packet was captured on the machine that sent it.
pub(super) fn is_wrong(packet: &Packet<'_>) -> bool {
    let whole = packet.ip_length as usize;
    if packet.fragment != Fragment::None || packet.aggregated || packet.network.len() < whole {
        return false;
    }
    let (addresses, header) = match packet.key.version {
        4 => (12..20, V4_HEADER),
        _ => (8..40, V6_HEADER),
    };
    if packet.ip_header as usize != header || whole > header + usize::from(u16::MAX) {
        return false;
    }
    let (Some(addresses), Some(transport)) = (
        packet.network.get(addresses),
        packet.network.get(header..whole),
    ) else {
        return false;
    };
    let number = packet.key.protocol;
    let (transport, at) = match number {
        protocol::TCP => (transport, 16),
        protocol::UDP => (datagram(transport), 6),
        _ => return false,
    };
    let Some(&[high, low]) = transport.get(at..at + 2) else {
        return false;
    };
    let stored = u16::from_be_bytes([high, low]);
    if number == protocol::UDP && stored == 0 {
        return false;
    }
    let length = u32::try_from(transport.len()).unwrap_or(u32::MAX);
    let pseudo = checksum::sum(addresses) + u32::from(number) + length;
    let sum = checksum::fold(pseudo + checksum::sum(transport));
    sum != u16::MAX && !checksum::is_partial(stored, pseudo)
}

/// The part of a datagram that the length in the UDP header covers.
fn datagram(transport: &[u8]) -> &[u8] {
    let length = transport.get(4..6).map_or(0, |length| {
        usize::from(u16::from_be_bytes([length[0], length[1]]))
    });
    transport.get(..length).unwrap_or(transport)
}

#[cfg(test)]
mod tests {
    use packet::build::{self, Checksum};
    use packet::pcap::{ETHERNET, Frame};

    use super::*;
    use crate::dissect::{Tunnels, dissect};

    fn is_wrong_in(bytes: &[u8], original: usize) -> bool {
        let frame = Frame {
            timestamp_ns: 0,
            original_length: u32::try_from(original).unwrap(),
            link_type: ETHERNET,
            bytes,
        };
        is_wrong(&dissect(&frame, Tunnels::Outer).unwrap())
    }

    #[test]
    fn only_a_checksum_that_is_neither_right_nor_partial_nor_absent_is_wrong() {
        for (from, to) in [("10.0.0.1:5", "10.0.0.2:6"), ("[fd00::1]:5", "[fd00::2]:6")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            for payload in [0, 1, 2, 701] {
                let tcp = build::tcp(from, to, 0x10, 3).payload(vec![0xa7; payload]);
                let udp = build::udp(from, to).payload(vec![0xa7; payload]);
                for (checksum, expected) in [
                    (Checksum::Right, [false, false]),
                    (Checksum::Partial, [false, false]),
                    (Checksum::Absent, [true, false]),
                    (Checksum::Bad, [true, true]),
                ] {
                    let frames = [&tcp, &udp].map(|builder| builder.clone().checksum(checksum));
                    let wrong = frames.map(|builder| {
                        let frame = builder.padding(6).frame();
                        is_wrong_in(&frame, frame.len())
                    });
                    assert_eq!(wrong, expected, "{from} {payload} {checksum:?}");
                }
            }
        }
    }

    #[test]
    fn a_checksum_that_cannot_be_computed_is_not_wrong() {
        let (from, to) = ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
        let bad = build::tcp(from, to, 0x10, 0)
            .payload([7; 40])
            .checksum(Checksum::Bad);
        let whole = bad.frame();
        assert!(is_wrong_in(&whole, whole.len()));
        assert!(!is_wrong_in(&whole[..80], whole.len()));
        for builder in [bad.clone().options(1), bad.fragment(0, true)] {
            let frame = builder.frame();
            assert!(!is_wrong_in(&frame, frame.len()));
        }
    }
}
