//! The differences of IPv4 and IPv6: the width of an address and the layout that follows from it.

use std::fmt::Debug;

use sys::huge::Zeroable;

use crate::line::{Line, Line4, Line6};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::rule::Key;
use crate::table::Table;

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
///
/// A five-tuple is a row of 16-bit lanes, four to a word: source address (lowest bits first),
/// destination address, source port, destination port, protocol.
pub trait Address: prefix::Address + Default {
    /// 16-bit lanes of an address.
    const LANES: usize = Self::BITS as usize / 16;
    /// Lanes of a five-tuple.
    const ALL_LANES: usize = 2 * Self::LANES + 3;
    /// An address in network order.
    type Octets: Copy + Eq + Debug + Default + Send + Sync;
    /// A five-tuple's lanes, packed.
    type Words: Copy + Eq + Debug + Default + Send + Sync + AsRef<[u64]> + AsMut<[u64]>;
    /// The cache lines of a leaf.
    type Line: Line<Self> + Zeroable + Copy;

    /// The address whose octets these are.
    fn from_octets(octets: Self::Octets) -> Self;
    /// Network order.
    fn octets(self) -> Self::Octets;
    /// Lanes of both addresses in the first words, the others zero.
    fn words(source: Self, destination: Self) -> Self::Words;
    /// Mixes the first `bits` of both addresses.
    fn mix(source: Self, destination: Self, bits: (u8, u8)) -> u32;

    /// Lookup by AVX-512, which must be present.
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    fn classify_avx512(table: &Table<Self>, keys: &[Key<Self>], found: &mut [u32]);
}

/// Odd multipliers with well spread bits: the golden ratio's, and two of xxHash's primes.
pub(crate) const MIX: [u32; 3] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D];
const MIX_WIDE: [u64; 2] = [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F];

impl Address for u32 {
    type Octets = [u8; 4];
    type Words = [u64; 2];
    type Line = Line4;

    fn from_octets(octets: [u8; 4]) -> Self {
        Self::from_be_bytes(octets)
    }
    fn octets(self) -> [u8; 4] {
        self.to_be_bytes()
    }
    #[cfg(target_arch = "x86_64")]
    fn classify_avx512(table: &Table<Self>, keys: &[Key<Self>], found: &mut [u32]) {
        avx512::classify4(table, keys, found);
    }
    fn words(source: Self, destination: Self) -> [u64; 2] {
        [u64::from(source) | u64::from(destination) << 32, 0]
    }
    #[inline(always)]
    fn mix(source: Self, destination: Self, bits: (u8, u8)) -> u32 {
        let first =
            |address: Self, bits: u8| address.checked_shr(32 - Self::from(bits)).unwrap_or(0);
        let (source, destination) = (first(source, bits.0), first(destination, bits.1));
        let sum = source
            .wrapping_mul(MIX[0])
            .wrapping_add(destination.wrapping_mul(MIX[1]));
        (sum ^ sum >> 15).wrapping_mul(MIX[2])
    }
}

impl Address for u128 {
    type Octets = [u8; 16];
    type Words = [u64; 5];
    type Line = Line6;

    fn from_octets(octets: [u8; 16]) -> Self {
        Self::from_be_bytes(octets)
    }
    fn octets(self) -> [u8; 16] {
        self.to_be_bytes()
    }
    #[cfg(target_arch = "x86_64")]
    fn classify_avx512(table: &Table<Self>, keys: &[Key<Self>], found: &mut [u32]) {
        avx512::classify6(table, keys, found);
    }
    #[expect(clippy::cast_possible_truncation, reason = "halves")]
    fn words(source: Self, destination: Self) -> [u64; 5] {
        let (s, d) = (source, destination);
        [s as u64, (s >> 64) as u64, d as u64, (d >> 64) as u64, 0]
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "parts are mixed")]
    fn mix(source: Self, destination: Self, bits: (u8, u8)) -> u32 {
        let fold = |address: Self, bits: u8| {
            let first = address.checked_shr(128 - u32::from(bits)).unwrap_or(0);
            let high = ((first >> 64) as u64).wrapping_mul(MIX_WIDE[0]);
            (first as u64 ^ high ^ high >> 29).wrapping_mul(MIX_WIDE[1])
        };
        let sum = fold(source, bits.0)
            .rotate_left(23)
            .wrapping_add(fold(destination, bits.1));
        (((sum ^ sum >> 32) as u32) ^ (sum >> 47) as u32).wrapping_mul(MIX[2])
    }
}
