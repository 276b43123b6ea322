//! What addresses and identifiers become under a key.

use std::net::IpAddr;

use aes::cipher::{BlockEncrypt as _, KeyInit as _};
use aes::{Aes128, Block};

use super::KEY_BYTES;
use super::crypto_pan::CryptoPan;

/// What the other pseudonyms' key is made of, so that no block has two uses.
const OTHERS: &[u8; 16] = b"lowroad 1 others";
/// In the first byte of a block: what it is of.
const VENDOR: u8 = 1;
const MAC: u8 = 2;
const FLOW: u8 = 3;

/// A pseudonym for each address and identifier. The same key gives the same pseudonyms, in every run.
pub struct Pseudonyms {
    addresses: CryptoPan,
    others: Aes128,
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pseudonyms").finish_non_exhaustive()
    }
}

impl Pseudonyms {
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        let mut others = Block::from(*OTHERS);
        let addresses = CryptoPan::new(key);
        addresses.encrypt(&mut others);
        Self {
            addresses,
            others: Aes128::new(&others),
        }
    }

    /// Addresses that share a prefix have pseudonyms that share a prefix of the same length.
    pub fn ip(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => IpAddr::V4(self.addresses.ipv4(address.into()).into()),
            IpAddr::V6(address) => IpAddr::V6(self.addresses.ipv6(address.into()).into()),
        }
    }

    /// One of the locally administered hardware addresses; addresses of one vendor share their first half. An address
    /// of zeros or ones stays: it is nobody's.
    pub fn mac(&self, address: [u8; 6]) -> [u8; 6] {
        if address == [0; 6] || address == [0xff; 6] {
            return address;
        }
        let [a, b, c, ..] = address;
        let [x, y, z] = self.vendor([a, b, c]);
        let [.., d, e, f] = self.block(MAC, &address).to_be_bytes();
        [x, y, z, d, e, f]
    }

    /// The first half of hardware addresses.
    pub fn vendor(&self, half: [u8; 3]) -> [u8; 3] {
        if half == [0; 3] || half == [0xff; 3] {
            return half;
        }
        let [.., a, b, c] = self.block(VENDOR, &half).to_be_bytes();
        // Locally administered; a group stays a group.
        [a & 0xfc | 2 | half[0] & 1, b, c]
    }

    /// Another identifier of a flow. Without the key nobody can try which addresses have it.
    pub fn flow(&self, id: u64) -> u64 {
        self.block(FLOW, &id.to_be_bytes())
    }

    fn block(&self, what: u8, value: &[u8]) -> u64 {
        let mut block = Block::default();
        block[0] = what;
        block[1..=value.len()].copy_from_slice(value);
        self.others.encrypt_block(&mut block);
        let head = block.iter().take(8);
        head.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn hardware_addresses_keep_their_vendor_apart_and_are_nobody_s() {
        let pseudonyms = Pseudonyms::new(&[7; KEY_BYTES]);
        let one = pseudonyms.mac([0, 0x1b, 0x21, 1, 2, 3]);
        let other = pseudonyms.mac([0, 0x1b, 0x21, 1, 2, 4]);
        assert_eq!(one[..3], other[..3]);
        assert_ne!(one[3..], other[3..]);
        assert_eq!(pseudonyms.vendor([0, 0x1b, 0x21]), one[..3]);
        assert_eq!(one[0] & 3, 2, "locally administered, no group");
        let group = pseudonyms.mac([1, 0, 0x5e, 0, 0, 1]);
        assert_eq!(group[0] & 3, 3);
        for nobody in [[0; 6], [0xff; 6]] {
            assert_eq!(pseudonyms.mac(nobody), nobody);
        }
    }

    #[test]
    fn identifiers_differ_by_key_and_stay_apart() {
        let [one, other] = [[7; KEY_BYTES], [8; KEY_BYTES]].map(|key| Pseudonyms::new(&key));
        let ids: HashSet<u64> = (0..1000).map(|id| one.flow(id)).collect();
        assert_eq!(ids.len(), 1000);
        assert!((0..1000).all(|id| one.flow(id) != other.flow(id)));
    }
}
