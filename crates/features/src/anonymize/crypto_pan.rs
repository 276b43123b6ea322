//! Crypto-PAn: a permutation of addresses that keeps common prefixes, and tells nobody without the key more (Xu, Fan,
//! Ammar, Moon, "Prefix-Preserving IP Address Anonymization", ICNP 2002).

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockEncrypt as _, KeyInit as _};
use aes::{Aes128, Block};

use super::KEY_BYTES;

pub(super) struct CryptoPan {
    cipher: Aes128,
    pad: u128,
}

impl CryptoPan {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        let (key, pad) = key.split_at(KEY_BYTES / 2);
        let cipher = Aes128::new(GenericArray::from_slice(key));
        let mut pad = *Block::from_slice(pad);
        cipher.encrypt_block(&mut pad);
        Self {
            cipher,
            pad: u128::from_be_bytes(pad.into()),
        }
    }

    /// A block as AES encrypts it, for keys of other uses.
    pub(super) fn encrypt(&self, block: &mut Block) {
        self.cipher.encrypt_block(block);
    }

    pub(super) fn ipv4(&self, address: u32) -> u32 {
        let bits = self.flips::<32>(u128::from(address) << 96);
        address ^ bits.fold(0, |bits, flip| bits << 1 | u32::from(flip))
    }

    pub(super) fn ipv6(&self, address: u128) -> u128 {
        let bits = self.flips::<128>(address);
        address ^ bits.fold(0, |bits, flip| bits << 1 | u128::from(flip))
    }

    /// Whether each bit is another one, which the bits before it decide. The address is at the head of 128 bits, and
    /// the pad takes the place of what is not yet looked at.
    fn flips<const BITS: usize>(&self, address: u128) -> impl Iterator<Item = bool> + use<BITS> {
        let block = |bit: usize| {
            // Of the first bit there is nothing before it.
            let rest = u128::MAX >> bit;
            Block::from((address & !rest | self.pad & rest).to_be_bytes())
        };
        let mut blocks: [Block; BITS] = std::array::from_fn(block);
        self.cipher.encrypt_blocks(&mut blocks);
        blocks.into_iter().map(|block| block[0] >> 7 == 1)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Of the sample in the authors' distribution.
    const KEY: [u8; KEY_BYTES] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131,
        121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ];

    #[test]
    fn published_addresses_have_their_pseudonyms() {
        let anonymizer = CryptoPan::new(&KEY);
        for (address, pseudonym) in [
            ("128.11.68.132", "135.242.180.132"),
            ("129.118.74.4", "134.136.186.123"),
            ("130.132.252.244", "133.68.164.234"),
            ("141.223.7.43", "141.167.8.160"),
            ("141.233.145.108", "141.129.237.235"),
            ("152.163.225.39", "151.140.114.167"),
            ("156.29.3.236", "147.225.12.42"),
            ("165.247.96.84", "162.9.99.234"),
            ("166.107.77.190", "160.132.178.185"),
            ("192.102.249.13", "252.138.62.131"),
            ("192.215.32.125", "252.43.47.189"),
            ("192.233.80.103", "252.25.108.8"),
            ("192.41.57.43", "252.222.221.184"),
            ("193.150.244.223", "253.169.52.216"),
            ("195.205.63.100", "255.186.223.5"),
            ("198.200.171.101", "249.199.68.213"),
        ] {
            let [address, pseudonym] =
                [address, pseudonym].map(|text| text.parse::<Ipv4Addr>().unwrap());
            let found = Ipv4Addr::from(anonymizer.ipv4(address.into()));
            assert_eq!(found, pseudonym, "{address}");
        }
    }

    #[test]
    fn yacryptopan_has_the_same_pseudonym() {
        let anonymizer = CryptoPan::new(b"32-char-str-for-AES-key-and-pad.");
        let found = anonymizer.ipv4(Ipv4Addr::new(192, 0, 2, 1).into());
        assert_eq!(Ipv4Addr::from(found), Ipv4Addr::new(192, 0, 125, 244));
    }

    proptest! {
        #[test]
        fn pseudonyms_share_a_prefix_as_long_as_the_addresses_do(
            one in any::<u128>(),
            shared in 0_u32..=128,
        ) {
            let anonymizer = CryptoPan::new(&KEY);
            let other = if shared == 128 { one } else { one ^ 1 << (127 - shared) };
            let bits = anonymizer.ipv6(one) ^ anonymizer.ipv6(other);
            prop_assert_eq!(bits.leading_zeros(), shared);
            let [one, other] = [one, other].map(|address| (address >> 96) as u32);
            let bits = anonymizer.ipv4(one) ^ anonymizer.ipv4(other);
            prop_assert_eq!(bits.leading_zeros(), shared.min(32));
        }
    }

    #[test]
    fn ipv4_and_the_head_of_ipv6_are_alike() {
        // The block of a bit is the same, however long the address is.
        let anonymizer = CryptoPan::new(&KEY);
        let address = Ipv6Addr::new(0x800b, 0x4484, 1, 2, 3, 4, 5, 6);
        let head = anonymizer.ipv6(address.into()) >> 96;
        assert_eq!(head, u128::from(anonymizer.ipv4(0x800b_4484)));
    }
}
