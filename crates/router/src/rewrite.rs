//! What a router changes in the packets that it forwards: the TTL, and the link-layer header.

use packet::{checksum, ethernet, ethertype, ipv4, ipv6};

use crate::forward::Adjacency;

/// The TTL of a packet would become 0: the kernel answers it with an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlExpired;

/// Takes one off the TTL or hop limit of a frame's IP packet, and keeps the header's checksum.
/// What is no IP packet stays as it is.
///
/// # Errors
/// It would be 0; nothing is changed then.
pub fn decrement_ttl(frame: &mut [u8]) -> Result<(), TtlExpired> {
    let at = network(frame);
    let Some(packet) = frame.get_mut(at..) else {
        return Ok(());
    };
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= ipv4::HEADER => {
            let before = [packet[8], packet[9]];
            if before[0] <= 1 {
                return Err(TtlExpired);
            }
            packet[8] -= 1;
            let check = u16::from_be_bytes([packet[10], packet[11]]);
            let check = checksum::replace_bytes(check, &before, &packet[8..10]);
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        }
        Some(6) if packet.len() >= ipv6::HEADER => {
            if packet[7] <= 1 {
                return Err(TtlExpired);
            }
            packet[7] -= 1;
        }
        _ => {}
    }
    Ok(())
}

/// Writes the link-layer header to a neighbour into the first 14 or, with a VLAN, 18 bytes.
///
/// # Panics
/// When the frame is shorter than that.
pub fn link_header(frame: &mut [u8], to: &Adjacency, kind: u16) {
    frame[..6].copy_from_slice(&to.destination);
    frame[6..12].copy_from_slice(&to.source);
    let mut at = 12;
    if let Some(vlan) = to.vlan {
        frame[12..14].copy_from_slice(&ethertype::VLAN.to_be_bytes());
        frame[14..16].copy_from_slice(&vlan.to_be_bytes());
        at = 16;
    }
    frame[at..at + 2].copy_from_slice(&kind.to_be_bytes());
}

/// Where the IP header begins, after at most two tags.
fn network(frame: &[u8]) -> usize {
    let mut at = ethernet::HEADER;
    for _ in 0..2 {
        let kind = frame.get(at - 2..at);
        let kind = kind.map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]));
        if !ethernet::is_tag(kind) {
            break;
        }
        at += ethernet::TAG;
    }
    at
}

#[cfg(test)]
mod tests {
    use packet::build;

    use super::*;

    #[test]
    fn the_ttl_is_one_less_and_the_checksum_right() {
        for (from, to) in [
            ("192.0.2.1:1", "198.51.100.1:2"),
            ("[2001:db8::1]:1", "[2001:db8::2]:2"),
        ] {
            let udp = build::udp(from.parse().unwrap(), to.parse().unwrap());
            for udp in [
                udp.clone(),
                udp.clone().vlan(9),
                udp.clone().vlan(9).vlan(10),
                udp.clone().tos(0xb8).identification(0xffff),
            ] {
                for ttl in 0..=255 {
                    let mut frame = udp.clone().ttl(ttl).frame();
                    let rewritten = decrement_ttl(&mut frame);
                    if ttl <= 1 {
                        assert_eq!(rewritten, Err(TtlExpired));
                        assert_eq!(frame, udp.clone().ttl(ttl).frame());
                    } else {
                        assert_eq!(frame, udp.clone().ttl(ttl - 1).frame(), "{ttl}");
                    }
                }
            }
        }
        for mut other in [vec![], vec![0; 13], vec![0x45; 20]] {
            let before = other.clone();
            assert_eq!(decrement_ttl(&mut other), Ok(()));
            assert_eq!(other, before);
        }
    }
}
