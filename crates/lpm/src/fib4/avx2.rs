//! Sixteen addresses at a time by scalar reads that are collected in a vector register. Where a
//! gather is microcode (AMD before Zen 5, Intel with its mitigations), this is several times faster
//! than one: nothing lies between the reads, so that their misses overlap.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

use std::arch::x86_64::*;
use std::sync::atomic::AtomicU8;

use super::dir24::{BLOCKS, Dir24, Key};
use super::entry::Entry;
use crate::Simd;

/// Addresses taken at a time.
const LANES: usize = 16;

pub(super) fn bytes<K: Key>(dir: &Dir24<u8>, keys: &[K], hops: &mut [u16]) {
    look_up::<u8, K>(&dir.first, keys, hops, |address| dir.resolve_group(address));
}

pub(super) fn words<K: Key>(dir: &Dir24<u16>, keys: &[K], hops: &mut [u16]) {
    look_up::<u16, K>(&dir.first, keys, hops, |address| dir.resolve_group(address));
}

pub(super) fn mixed<K: Key>(dir: &Dir24<u16>, bytes: &[AtomicU8], keys: &[K], hops: &mut [u16]) {
    look_up::<u8, K>(bytes, keys, hops, |address| dir.resolve_word(address));
}

fn look_up<E: Entry, K: Key>(
    table: &[E::Cell],
    keys: &[K],
    hops: &mut [u16],
    resolve_group: impl Fn(u32) -> u16,
) {
    assert!(Simd::Avx2.is_available() && table.len() >= BLOCKS && keys.len() == hops.len());
    let table = table.as_ptr().cast();
    // SAFETY: the machine has the instructions, and the table an entry for each /24.
    unsafe {
        if size_of::<E>() == 1 {
            batch::<K, true>(table, keys, hops, resolve_group);
        } else {
            batch::<K, false>(table, keys, hops, resolve_group);
        }
    }
}

/// # Safety
/// `table` holds `BLOCKS` entries, of one byte or of two.
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn batch<K: Key, const BYTES: bool>(
    table: *const u8,
    keys: &[K],
    hops: &mut [u16],
    resolve_group: impl Fn(u32) -> u16,
) {
    let (chunks, rest) = keys.as_chunks::<LANES>();
    let (hops, rest_hops) = hops.as_chunks_mut::<LANES>();
    for (keys, hops) in chunks.iter().zip(hops) {
        // SAFETY: as asked for.
        let found = unsafe { sixteen::<K, BYTES>(table, keys, hops) };
        resolve(found, keys, hops, &resolve_group);
    }
    if !rest.is_empty() {
        let mut padded = [rest[0]; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        let mut hops = [0; LANES];
        // SAFETY: as asked for.
        let found = unsafe { sixteen::<K, BYTES>(table, &padded, &mut hops) };
        resolve(found, &padded, &mut hops, &resolve_group);
        rest_hops.copy_from_slice(&hops[..rest.len()]);
    }
}

#[inline(always)]
fn resolve<K: Key>(
    mut escapes: u32,
    keys: &[K; LANES],
    hops: &mut [u16; LANES],
    resolve_group: &impl Fn(u32) -> u16,
) {
    while escapes != 0 {
        let lane = escapes.trailing_zeros() as usize % LANES;
        hops[lane] = resolve_group(keys[lane].address());
        escapes &= escapes - 1;
    }
}

/// Writes the entries of sixteen addresses; returns in which lanes they are escapes.
///
/// # Safety
/// As `batch`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn sixteen<K: Key, const BYTES: bool>(
    table: *const u8,
    keys: &[K; LANES],
    hops: &mut [u16; LANES],
) -> u32 {
    let [mut low, mut high] = [_mm_setzero_si128(); 2];
    let pairs = keys.as_ptr().cast::<u64>();
    // Two halves of eight, so that collecting one need not wait for the other.
    macro_rules! collect {
        ($($pair:literal)*) => {$(
            // SAFETY: two keys are eight bytes, and a block is below `BLOCKS`.
            unsafe {
                let [first, second] = blocks::<K>(pairs.add($pair).read_unaligned());
                let [third, fourth] = blocks::<K>(pairs.add(4 + $pair).read_unaligned());
                if BYTES {
                    low = _mm_insert_epi8::<{ 2 * $pair }>(low, byte(table, first));
                    low = _mm_insert_epi8::<{ 2 * $pair + 1 }>(low, byte(table, second));
                    high = _mm_insert_epi8::<{ 2 * $pair }>(high, byte(table, third));
                    high = _mm_insert_epi8::<{ 2 * $pair + 1 }>(high, byte(table, fourth));
                } else {
                    low = _mm_insert_epi16::<{ 2 * $pair }>(low, word(table, first));
                    low = _mm_insert_epi16::<{ 2 * $pair + 1 }>(low, word(table, second));
                    high = _mm_insert_epi16::<{ 2 * $pair }>(high, word(table, third));
                    high = _mm_insert_epi16::<{ 2 * $pair + 1 }>(high, word(table, fourth));
                }
            }
        )*};
    }
    collect!(0 1 2 3);
    let out = hops.as_mut_ptr().cast::<__m128i>();
    let all = _mm_set1_epi8(-1);
    if BYTES {
        let bytes = _mm_unpacklo_epi64(low, high);
        // SAFETY: sixteen hops are 32 bytes.
        unsafe { _mm256_storeu_si256(out.cast(), _mm256_cvtepu8_epi16(bytes)) };
        return _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, all)).cast_unsigned();
    }
    // SAFETY: sixteen hops are 32 bytes.
    unsafe {
        _mm_storeu_si128(out, low);
        _mm_storeu_si128(out.add(1), high);
    }
    let escapes = [low, high].map(|half| _mm_cmpeq_epi16(half, all));
    _mm_movemask_epi8(_mm_packs_epi16(escapes[0], escapes[1])).cast_unsigned()
}

/// The /24s of two keys read at once.
#[inline(always)]
fn blocks<K: Key>(pair: u64) -> [usize; 2] {
    let (first, second) = (pair as u32, (pair >> 32) as u32);
    if K::IS_NETWORK_ORDER {
        return [first.swap_bytes() >> 8, second.swap_bytes() >> 8].map(|block| block as usize);
    }
    [(first >> 8) as usize, (pair >> 40) as usize]
}

/// # Safety
/// The table holds entry `at` of one byte.
#[inline(always)]
unsafe fn byte(table: *const u8, at: usize) -> i32 {
    // SAFETY: as asked for. Volatile: another thread may write, a byte at once.
    i32::from(unsafe { table.add(at).read_volatile() })
}

/// # Safety
/// The table holds entry `at` of two bytes, aligned.
#[inline(always)]
unsafe fn word(table: *const u8, at: usize) -> i32 {
    // SAFETY: as asked for. Volatile: another thread may write, two bytes at once.
    i32::from(unsafe { table.cast::<u16>().add(at).read_volatile() })
}
