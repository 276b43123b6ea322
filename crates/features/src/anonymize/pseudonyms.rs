//! The pseudonyms of addresses, identifiers and names under a key.

use std::net::IpAddr;

use aes::cipher::{BlockEncrypt as _, KeyInit as _};
use aes::{Aes128, Block};
use ring::hmac;

use super::Key;
use super::crypto_pan::CryptoPan;

/// The first byte of a block: what the rest identifies.
const VENDOR: u8 = 1;
const MAC: u8 = 2;
const FLOW: u8 = 3;
/// Bytes of a name's pseudonym: enough that two names never share one by chance.
const NAME_BYTES: usize = 16;
/// Bits of a layer 2 segment identifier, as of a VNI.
const SEGMENT_BITS: u32 = 24;

/// Pseudonyms of addresses, identifiers and names. The same key gives the same pseudonyms in every run.
pub struct Pseudonyms {
    addresses: CryptoPan,
    tunnels: CryptoPan,
    identifiers: Aes128,
    names: hmac::Key,
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pseudonyms").finish_non_exhaustive()
    }
}

impl Pseudonyms {
    pub fn new(key: &Key) -> Self {
        let identifiers = key.derive("lowroad anonymize 1: identifiers");
        let (identifiers, _) = identifiers.split_at(identifiers.len() / 2);
        let names = key.derive("lowroad anonymize 1: names");
        Self {
            addresses: CryptoPan::new(key.bytes()),
            tunnels: CryptoPan::new(&key.derive("lowroad anonymize 1: tunnels")),
            identifiers: Aes128::new(identifiers.into()),
            names: hmac::Key::new(hmac::HMAC_SHA256, &names),
        }
    }

    /// The pseudonym of an IP address. Two addresses and their pseudonyms share a prefix of the same length.
    pub fn ip(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => IpAddr::V4(self.addresses.ipv4(address.into()).into()),
            IpAddr::V6(address) => IpAddr::V6(self.addresses.ipv6(address.into()).into()),
        }
    }

    /// The pseudonym of a hardware address: a locally administered address. Addresses of one vendor share the first
    /// half. All zeros and all ones stay: they belong to no device.
    pub fn mac(&self, address: [u8; 6]) -> [u8; 6] {
        if address == [0; 6] || address == [0xff; 6] {
            return address;
        }
        let [a, b, c, ..] = address;
        let [x, y, z] = self.locally_administered([a, b, c]);
        let [.., d, e, f] = self.block(MAC, &address).to_be_bytes();
        [x, y, z, d, e, f]
    }

    /// The pseudonym of the first half of a hardware address.
    pub fn vendor(&self, half: [u8; 3]) -> [u8; 3] {
        if half == [0; 3] || half == [0xff; 3] {
            return half;
        }
        self.locally_administered(half)
    }

    fn locally_administered(&self, half: [u8; 3]) -> [u8; 3] {
        let [.., a, b, c] = self.block(VENDOR, &half).to_be_bytes();
        // The lowest bit marks group addresses, and stays.
        [a & 0xfc | 2 | half[0] & 1, b, c]
    }

    /// The pseudonym of a flow's identifier. Without the key nobody can find the addresses by trying.
    pub fn flow(&self, id: u64) -> u64 {
        self.block(FLOW, &id.to_be_bytes())
    }

    /// The pseudonym of a tunnel's identifier, such as a TEID: another one for each. 0 stays, as it says that there is
    /// no tunnel.
    pub fn tunnel(&self, id: u32) -> u32 {
        match (id, self.tunnels.ipv4(id)) {
            (0, _) => 0,
            // One identifier would get 0, which is taken. The pseudonym that 0 would get is free.
            (_, 0) => self.tunnels.ipv4(0),
            (_, pseudonym) => pseudonym,
        }
    }

    /// The pseudonym of a `layer2SegmentId`: that of its low three bytes. The encapsulation in the highest stays.
    pub fn segment(&self, id: u64) -> u64 {
        let low = (1 << SEGMENT_BITS) - 1;
        // A prefix of an address has a pseudonym of its own length.
        let shift = u32::BITS - SEGMENT_BITS;
        let [.., a, b, c] = id.to_be_bytes();
        let prefix = u32::from_be_bytes([a, b, c, 0]);
        id & !low | u64::from(self.tunnels.ipv4(prefix) >> shift)
    }

    /// The pseudonym of a name: hexadecimal digits.
    pub fn name(&self, name: &str) -> String {
        let tag = hmac::sign(&self.names, name.as_bytes());
        let bytes = tag.as_ref().iter().take(NAME_BYTES);
        let digits = bytes.flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
        digits.collect()
    }

    fn block(&self, of: u8, value: &[u8]) -> u64 {
        let mut block = Block::default();
        block[0] = of;
        block[1..=value.len()].copy_from_slice(value);
        self.identifiers.encrypt_block(&mut block);
        let head = block.iter().take(8);
        head.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn pseudonyms(byte: u8) -> Pseudonyms {
        Pseudonyms::new(&Key::read(&[byte; 32]).unwrap())
    }

    #[test]
    fn hardware_addresses_keep_vendors_apart() {
        let pseudonyms = pseudonyms(7);
        let one = pseudonyms.mac([0, 0x1b, 0x21, 1, 2, 3]);
        let other = pseudonyms.mac([0, 0x1b, 0x21, 1, 2, 4]);
        assert_eq!(one[..3], other[..3]);
        assert_ne!(one[3..], other[3..]);
        assert_eq!(pseudonyms.vendor([0, 0x1b, 0x21]), one[..3]);
        assert_eq!(one[0] & 3, 2, "locally administered, no group");
        let group = pseudonyms.mac([1, 0, 0x5e, 0, 0, 1]);
        assert_eq!(group[0] & 3, 3);
        for stays in [[0; 6], [0xff; 6]] {
            assert_eq!(pseudonyms.mac(stays), stays);
        }
        // Their vendor alone is zeros, but they belong to a device.
        assert_ne!(pseudonyms.mac([0, 0, 0, 1, 2, 3])[3..], [1, 2, 3]);
        assert_ne!(pseudonyms.mac([0, 0, 0, 1, 2, 3])[..3], [0; 3]);
    }

    #[test]
    fn flow_ids_differ_by_key() {
        let [one, other] = [pseudonyms(7), pseudonyms(8)];
        let ids: HashSet<u64> = (0..1000).map(|id| one.flow(id)).collect();
        assert_eq!(ids.len(), 1000);
        assert!((0..1000).all(|id| one.flow(id) != other.flow(id)));
    }

    #[test]
    fn tunnels_keep_apart_and_none_stays_none() {
        let pseudonyms = pseudonyms(7);
        let ids: HashSet<u32> = (0..4096).map(|id| pseudonyms.tunnel(id)).collect();
        assert_eq!(ids.len(), 4096);
        assert_eq!(pseudonyms.tunnel(0), 0);
        // The identifier that Crypto-PAn maps to 0, found from its first bit on.
        let preimage = (0..u32::BITS).fold(0, |id, bit| {
            id ^ pseudonyms.tunnels.ipv4(id) & (1 << 31) >> bit
        });
        assert_eq!(pseudonyms.tunnels.ipv4(preimage), 0);
        assert_eq!(pseudonyms.tunnel(preimage), pseudonyms.tunnels.ipv4(0));
        let encapsulation = 1 << 56;
        let segments: HashSet<u64> = (0..4096)
            .map(|id| pseudonyms.segment(encapsulation | id))
            .collect();
        assert_eq!(segments.len(), 4096);
        assert!(segments.iter().all(|id| id & !0xff_ffff == encapsulation));
        assert_ne!(pseudonyms.segment(encapsulation | 42), encapsulation | 42);
    }

    #[test]
    fn names_are_hashed_with_the_key() {
        let [one, other] = [pseudonyms(7), pseudonyms(8)];
        let name = one.name("example.com");
        assert_eq!(name.len(), 2 * NAME_BYTES);
        assert_eq!(one.name("example.com"), name);
        assert_ne!(one.name("example.org"), name);
        assert_ne!(other.name("example.com"), name);
    }
}
