//! The contents of rows about packets: the values in a packet's headers, or the headers' bits.

use ::packet::parse::Fragment;
use ::packet::protocol;

use crate::dissect::Packet;
use crate::flow::{Limits, Place};
use crate::payload::entropy;

/// A row about one packet.
pub(crate) trait Row: 'static {
    fn of(packet: &Packet<'_>, place: Place, limits: &Limits) -> Self;
}

/// The values in a packet's headers.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The packet without its bytes.
    pub packet: Packet<'static>,
    pub place: Place,
    /// Entropy of the payload in bits per byte, if payloads are read.
    pub entropy: Option<f64>,
}

impl Row for Facts {
    fn of(packet: &Packet<'_>, place: Place, limits: &Limits) -> Self {
        let entropy = if limits.payloads {
            entropy::bits_per_byte(packet.payload)
        } else {
            None
        };
        Self {
            packet: Packet {
                payload: &[],
                network: &[],
                ..*packet
            },
            place,
            entropy,
        }
    }
}

/// The bits of a packet's headers and of the start of its payload. Each header has a fixed offset. A bit is 0 or
/// 1, or -1 if the packet does not have it or the capture did not keep it.
#[derive(Clone, Debug)]
pub struct Bits {
    pub time_ns: i64,
    pub place: Place,
    pub bits: Box<[i8]>,
}

/// Bits reserved for each header with all its options. IPv6 is without extension headers.
pub(crate) const IPV4: usize = 480;
pub(crate) const IPV6: usize = 320;
pub(crate) const TCP: usize = 480;
pub(crate) const UDP: usize = 64;
pub(crate) const ICMP: usize = 64;
pub(crate) const HEADERS: usize = IPV4 + IPV6 + TCP + UDP + ICMP;

impl Row for Bits {
    fn of(packet: &Packet<'_>, place: Place, limits: &Limits) -> Self {
        let mut bits = vec![-1; HEADERS + 8 * limits.payload_bytes].into_boxed_slice();
        let [v4, v6, tcp, udp, icmp, payload] = parts(&mut bits);
        match packet.key.version {
            4 => spread(&packet.network[..v4_header(packet.network)], v4),
            _ => spread(packet.network, v6),
        }
        let transport = transport(packet);
        match (packet.key.protocol, packet.key.version) {
            (protocol::TCP, _) => spread(transport, tcp),
            (protocol::UDP, _) => spread(transport, udp),
            (protocol::ICMP, 4) | (protocol::ICMPV6, 6) => spread(transport, icmp),
            _ => {}
        }
        spread(packet.payload, payload);
        Self {
            time_ns: packet.time_ns,
            place,
            bits,
        }
    }
}

fn parts(mut rest: &mut [i8]) -> [&mut [i8]; 6] {
    let mut next = |bits| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(bits);
        rest = after;
        part
    };
    let [v4, v6, tcp, udp, icmp] = [IPV4, IPV6, TCP, UDP, ICMP].map(&mut next);
    [v4, v6, tcp, udp, icmp, rest]
}

/// Bytes of an IPv4 header with its options. `dissect` has already checked that they are present.
fn v4_header(network: &[u8]) -> usize {
    let words = network.first().map_or(0, |first| first & 0x0f);
    (usize::from(words) * 4).min(network.len())
}

/// The captured bytes of a transport header.
fn transport<'a>(packet: &Packet<'a>) -> &'a [u8] {
    if packet.fragment == Fragment::Later {
        return &[];
    }
    let at = packet.ip_header as usize;
    let end = (at + packet.l4_header as usize).min(packet.network.len());
    packet.network.get(at..end).unwrap_or(&[])
}

/// The eight bits of every byte value, most significant bit first.
const SPREAD: [[i8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> (7 - bit) & 1 == 1 {
                table[byte][bit] = 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// Writes bytes as bits until `bits` is full.
fn spread(bytes: &[u8], bits: &mut [i8]) {
    for (byte, bits) in bytes.iter().zip(bits.chunks_exact_mut(8)) {
        bits.copy_from_slice(&SPREAD[usize::from(*byte)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_of_a_byte_comes_first() {
        let mut bits = [-1; 24];
        spread(&[0b1000_0101, 255], &mut bits);
        assert_eq!(bits[..8], [1, 0, 0, 0, 0, 1, 0, 1]);
        assert_eq!(bits[8..16], [1; 8]);
        assert_eq!(bits[16..], [-1; 8]);
    }
}
