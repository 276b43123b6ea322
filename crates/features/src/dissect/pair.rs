//! Assigns frames to workers. All packets of a flow and all fragments of a packet go to the same worker.

use packet::ethertype;
use packet::pcap::Frame;

use super::{Tunnels, dissect, link};
use crate::key::mapped;

/// The worker, below `workers`, for a frame. It depends only on the two addresses, and is the same in both directions.
/// Frames without addresses belong to no flow and go to worker 0.
#[inline]
pub(crate) fn shard(frame: &Frame<'_>, tunnels: Tunnels, workers: u32) -> u32 {
    let pair = match tunnels {
        Tunnels::Outer => outer(frame),
        // The inner addresses are known only after full dissection.
        Tunnels::Inner => dissect(frame, tunnels)
            .ok()
            .map(|packet| packet.key.addresses),
    };
    pair.map_or(0, |[one, other]| spread(one.wrapping_add(other), workers))
}

/// The same addresses that `ip::read` finds, without the rest of the dissection.
#[inline]
fn outer(frame: &Frame<'_>) -> Option<[u128; 2]> {
    let link = link::read(frame.link_type, frame.bytes).ok()?;
    let bytes = frame.bytes.get(link.l3..)?;
    match (link.ethertype, bytes.first()? >> 4) {
        (ethertype::IPV4, 4) => {
            let pair: &[u8; 8] = bytes.get(12..20)?.first_chunk()?;
            let [a, b, c, d, e, f, g, h] = *pair;
            Some([mapped([a, b, c, d]), mapped([e, f, g, h])])
        }
        (ethertype::IPV4 | ethertype::IPV6, 6) => {
            let one: &[u8; 16] = bytes.get(8..24)?.first_chunk()?;
            let other: &[u8; 16] = bytes.get(24..40)?.first_chunk()?;
            Some([u128::from_be_bytes(*one), u128::from_be_bytes(*other)])
        }
        _ => None,
    }
}

/// Multiplying by an odd constant lets every bit of the sum affect the upper half of the product, so that adjacent
/// addresses go to different workers.
#[expect(clippy::cast_possible_truncation, reason = "halves are meant")]
fn spread(sum: u128, workers: u32) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let folded = (sum >> 64) as u64 ^ sum as u64;
    let mixed = (folded ^ folded >> 32).wrapping_mul(ODD) >> 32;
    ((mixed * u64::from(workers)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use packet::build;
    use packet::pcap::ETHERNET;

    use super::*;

    fn of(bytes: &[u8], tunnels: Tunnels) -> u32 {
        let frame = Frame {
            timestamp_ns: 0,
            original_length: 0,
            link_type: ETHERNET,
            bytes,
        };
        shard(&frame, tunnels, 5)
    }

    #[test]
    fn both_directions_and_all_fragments_are_one_workers() {
        let mut used = [false; 5];
        for host in 0..50 {
            let (a, b) = (([10, 0, 0, host], 1).into(), ([10, 0, 1, 9], 2).into());
            let there = build::udp(a, b).payload([0; 30]);
            let back = of(&build::tcp(b, a, 2, 0).vlan(5).frame(), Tunnels::Outer);
            let later = build::other(a.ip(), b.ip(), 17).fragment(9, false);
            for frame in [there.frame(), later.frame()] {
                assert_eq!(of(&frame, Tunnels::Outer), back);
                assert_eq!(of(&frame, Tunnels::Inner), back);
            }
            used[back as usize] = true;
        }
        assert_eq!(used, [true; 5]);
    }

    #[test]
    fn what_has_no_addresses_is_the_first_ones() {
        for bytes in [&[][..], &[0xff; 60], &[0; 14]] {
            assert_eq!(of(bytes, Tunnels::Outer), 0);
        }
    }
}
