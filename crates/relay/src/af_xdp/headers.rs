//! The headers of one subscriber's copies: everything that is the same in all of them is written
//! once, and each copy's lengths, TTL and checksums are added to it.

use std::net::IpAddr;

use packet::checksum::{fold, sum};
use packet::{ethernet, ethertype, ipv4, ipv6, protocol, udp};

use crate::plan::Subscriber;

/// The longest headers: Ethernet, IPv6, UDP.
pub(super) const MAX: usize = ethernet::HEADER + ipv6::HEADER + udp::HEADER;
const NETWORK: usize = ethernet::HEADER;

/// What copies of one datagram have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) payload_length: u16,
    /// The folded sum of the payload's network-order words.
    pub(super) payload_sum: u16,
    pub(super) tos: u8,
    pub(super) ttl: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Headers {
    template: [u8; MAX],
    length: usize,
    ttl: Option<u8>,
    /// Folded sums of what is constant: of the IPv4 header, and of pseudo-header and ports.
    network_sum: u32,
    udp_sum: u32,
}

impl Headers {
    pub(super) fn new(subscriber: &Subscriber, source: [u8; 6], destination: [u8; 6]) -> Self {
        let (from, to) = (subscriber.source, subscriber.destination);
        let mut bytes = Vec::with_capacity(MAX);
        bytes.extend(destination);
        bytes.extend(source);
        if to.is_ipv4() {
            bytes.extend(ethertype::IPV4.to_be_bytes());
            bytes.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 0, protocol::UDP, 0, 0]);
        } else {
            bytes.extend(ethertype::IPV6.to_be_bytes());
            bytes.extend([0x60, 0, 0, 0, 0, 0, protocol::UDP, 0]);
        }
        for address in [from.ip(), to.ip()] {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        let transport = bytes.len();
        let addresses = transport - 2 * if to.is_ipv4() { 4 } else { 16 };
        bytes.extend(from.port().to_be_bytes());
        bytes.extend(to.port().to_be_bytes());
        let udp_sum = sum(&bytes[addresses..]) + u32::from(protocol::UDP);
        bytes.extend([0; 4]);
        let mut template = [0; MAX];
        template[..bytes.len()].copy_from_slice(&bytes);
        Self {
            template,
            length: bytes.len(),
            ttl: subscriber.ttl,
            network_sum: fold(sum(&bytes[NETWORK..transport])).into(),
            udp_sum: fold(udp_sum).into(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Bytes of the IP packet that a payload of this length makes.
    pub(super) fn packet_length(&self, payload: u16) -> usize {
        self.length - NETWORK + usize::from(payload)
    }

    /// Writes the headers of a copy.
    ///
    /// # Panics
    /// When `at` is shorter than [`Self::len`].
    pub(super) fn write(&self, origin: Origin, at: &mut [u8]) {
        const UDP: u16 = 8;
        let at = &mut at[..self.length];
        at.copy_from_slice(&self.template[..self.length]);
        let ttl = self.ttl.unwrap_or_else(|| origin.ttl.wrapping_sub(1));
        let length = origin.payload_length + UDP;
        let (network, transport) = at[NETWORK..].split_at_mut(self.length - NETWORK - udp::HEADER);
        if network.len() == ipv4::HEADER {
            let total = origin.payload_length + UDP + 20;
            let words = u32::from(origin.tos) + u32::from(total) + (u32::from(ttl) << 8);
            network[1] = origin.tos;
            network[2..4].copy_from_slice(&total.to_be_bytes());
            network[8] = ttl;
            network[10..12].copy_from_slice(&(!fold(self.network_sum + words)).to_be_bytes());
        } else {
            network[0] |= origin.tos >> 4;
            network[1] = origin.tos << 4;
            network[4..6].copy_from_slice(&length.to_be_bytes());
            network[7] = ttl;
        }
        // The length counts twice: once in the pseudo-header.
        let sum = self.udp_sum + 2 * u32::from(length) + u32::from(origin.payload_sum);
        let check = match !fold(sum) {
            0 => u16::MAX,
            check => check,
        };
        transport[4..6].copy_from_slice(&length.to_be_bytes());
        transport[6..8].copy_from_slice(&check.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use netdev::{NextHop, UnresolvedReason};
    use packet::build;

    use super::*;
    use crate::plan::SubscriberId;

    #[test]
    fn copies_are_as_a_builder_of_whole_frames_makes_them() {
        for (source, destination) in [
            ("10.2.0.1:5001", "10.2.0.2:7000"),
            ("[fd02::1]:5001", "[fd02::2]:7000"),
        ] {
            let subscriber = Subscriber {
                id: SubscriberId(1),
                name: "edge".into(),
                destination: destination.parse().unwrap(),
                source: source.parse().unwrap(),
                ttl: None,
                userspace_only: false,
                next_hop: NextHop::Unresolved(UnresolvedReason::NoRoute),
            };
            let headers = Headers::new(&subscriber, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            for length in [0_u16, 1, 2, 3, 777, 1444] {
                let payload: Vec<u8> = (0..length).map(|i| i.to_le_bytes()[0]).collect();
                let origin = Origin {
                    payload_length: length,
                    payload_sum: fold(sum(&payload)),
                    tos: 0xb8,
                    ttl: 64,
                };
                let mut frame = vec![0xee; headers.len()];
                headers.write(origin, &mut frame);
                frame.extend(&payload);
                let expected = build::udp(subscriber.source, subscriber.destination)
                    .tos(0xb8)
                    .ttl(63)
                    .payload(payload)
                    .frame();
                assert_eq!(frame, expected, "{destination}, {length} bytes");
            }
        }
    }
}
