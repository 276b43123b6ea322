//! The Internet checksum (RFC 1071), its incremental update (RFC 1624) and what UDP makes of it.
//!
//! Sums are of network-order words; a checksum is the complement of a folded sum. The twin of
//! lowroad/csum.h, which adds the same words as they lie in memory.

use std::net::IpAddr;

/// The sum of big-endian 16-bit words, an odd last byte being the first of a word. Not folded;
/// exact for up to 128 KiB.
pub fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let even: u32 = words
        .by_ref()
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let odd = words
        .remainder()
        .first()
        .map_or(0, |byte| u32::from(*byte) << 8);
    even + odd
}

/// The 16-bit one's complement sum; zero only when every word was.
pub fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    u16::try_from(twice).unwrap_or(u16::MAX)
}

/// The checksum of bytes whose checksum field is zero, as of an IPv4 header or ICMP.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// The checksum after a 16-bit word changed (RFC 1624, equation 3).
pub fn replace(check: u16, from: u16, to: u16) -> u16 {
    !fold(u32::from(!check) + u32::from(!from) + u32::from(to))
}

/// The checksum after words changed in place: `from` and `to` have the same even length.
pub fn replace_bytes(check: u16, from: &[u8], to: &[u8]) -> u16 {
    let words = |bytes: &[u8]| fold(sum(bytes));
    replace(check, words(from), words(to))
}

/// The pseudo-header sum of UDP, TCP and ICMPv6; `length` is the transport's.
pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: u32) -> u32 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    address(source)
        + address(destination)
        + u32::from(protocol)
        + (length >> 16)
        + (length & 0xffff)
}

/// The checksum of a UDP datagram, whatever its checksum field holds: never zero, which would say
/// that there is none.
pub fn udp(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> u16 {
    let length = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
    let before = datagram.get(..6).unwrap_or(datagram);
    let after = datagram.get(8..).unwrap_or(&[]);
    let pseudo = pseudo(source, destination, crate::protocol::UDP, length);
    match !fold(pseudo + sum(before) + sum(after)) {
        0 => u16::MAX,
        check => check,
    }
}

/// Whether a sender left the checksum to its device: the field holds the folded pseudo-header sum,
/// not complemented.
pub fn is_partial(check: u16, pseudo: u32) -> bool {
    check == fold(pseudo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
        assert_eq!(checksum(&bytes), 0x220d);
        assert_eq!(sum(&[0x12]), 0x1200);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Equation 2 of the older RFC gives 0xffff here.
        assert_eq!(replace(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn an_update_equals_a_new_sum(mut bytes in prop::collection::vec(any::<u8>(), 20..60),
                                      at in 1_usize..9, to in any::<[u8; 4]>()) {
            // A header is never all zero; one that were would have two checksums.
            bytes[0] = 0x45;
            let before = checksum(&bytes);
            let from = [bytes[2 * at], bytes[2 * at + 1]];
            bytes[2 * at..2 * at + 2].copy_from_slice(&to[..2]);
            prop_assert_eq!(replace_bytes(before, &from, &to[..2]), checksum(&bytes));
        }
    }
}
