//! Sixteen addresses at a time by AVX-512 gathers.

use std::arch::x86_64::*;
use std::sync::atomic::AtomicU8;

use super::dir24::{Dir24, Key};
use super::entry::Entry;
use crate::Simd;

/// 32-bit lanes of a vector.
const LANES: usize = 16;

/// The first table in bytes and in words, of which one may be null. An escape in `bytes` leads to `words`.
#[derive(Clone, Copy)]
struct FirstTables {
    bytes: *const u8,
    words: *const u16,
}

pub(super) fn bytes<K: Key>(dir: &Dir24<u8>, keys: &[K], hops: &mut [u16]) {
    let first = FirstTables {
        bytes: dir.first.as_ptr().cast(),
        words: std::ptr::null(),
    };
    look_up::<K, true, false>(first, keys, hops, |address| dir.resolve_group(address));
}

pub(super) fn words<K: Key>(dir: &Dir24<u16>, keys: &[K], hops: &mut [u16]) {
    let first = FirstTables {
        bytes: std::ptr::null(),
        words: dir.first.as_ptr().cast(),
    };
    look_up::<K, false, true>(first, keys, hops, |address| dir.resolve_group(address));
}

pub(super) fn mixed<K: Key>(dir: &Dir24<u16>, bytes: &[AtomicU8], keys: &[K], hops: &mut [u16]) {
    let first = FirstTables {
        bytes: bytes.as_ptr().cast(),
        words: dir.first.as_ptr().cast(),
    };
    look_up::<K, true, true>(first, keys, hops, |address| dir.resolve_group(address));
}

fn look_up<K: Key, const BYTES: bool, const WORDS: bool>(
    first: FirstTables,
    keys: &[K],
    hops: &mut [u16],
    resolve_group: impl Fn(u32) -> u16,
) {
    assert!(Simd::Avx512.is_available() && keys.len() == hops.len());
    // SAFETY: the machine has the instructions. The tables hold an entry for each /24 and four
    // more, as `Dir24::new` makes them.
    unsafe { batch::<K, BYTES, WORDS>(first, keys, hops, resolve_group) }
}

/// # Safety
/// The tables that `BYTES` and `WORDS` name hold `BLOCKS` entries and the padding.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn batch<K: Key, const BYTES: bool, const WORDS: bool>(
    first: FirstTables,
    keys: &[K],
    hops: &mut [u16],
    resolve_group: impl Fn(u32) -> u16,
) {
    for (keys, hops) in keys.chunks(LANES).zip(hops.chunks_mut(LANES)) {
        let lanes = if keys.len() == LANES {
            u16::MAX
        } else {
            (1 << keys.len()) - 1
        };
        // SAFETY: a key is four bytes without padding; only as many lanes are touched as there are
        // keys and hops. The tables are as asked for.
        let mut further = unsafe {
            let keys = _mm512_maskz_loadu_epi32(lanes, keys.as_ptr().cast());
            let (entries, further) = entries::<BYTES, WORDS>(first, host_order::<K>(keys), lanes);
            _mm256_mask_storeu_epi16(
                hops.as_mut_ptr().cast(),
                lanes,
                _mm512_cvtepi32_epi16(entries),
            );
            further
        };
        while further != 0 {
            let lane = further.trailing_zeros() as usize;
            hops[lane] = resolve_group(keys[lane].address());
            further &= further - 1;
        }
    }
}

/// The entries of addresses, and the lanes in which they are escapes to a group.
///
/// # Safety
/// As `batch`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn entries<const BYTES: bool, const WORDS: bool>(
    first: FirstTables,
    addresses: __m512i,
    lanes: __mmask16,
) -> (__m512i, __mmask16) {
    let blocks = _mm512_srli_epi32::<8>(addresses);
    let byte = _mm512_set1_epi32(i32::from(u8::ESCAPE));
    let word = _mm512_set1_epi32(i32::from(u16::ESCAPE));
    let mut entries = _mm512_setzero_si512();
    let mut further = lanes;
    if BYTES {
        // SAFETY: the index has 24 bits, and the table has 2^24 entries and padding for the last.
        let read = unsafe { _mm512_i32gather_epi32::<1>(blocks, first.bytes.cast()) };
        entries = _mm512_and_si512(read, byte);
        further = _mm512_mask_cmpeq_epi32_mask(lanes, entries, byte);
        if !WORDS || further == 0 {
            return (entries, further);
        }
    }
    // SAFETY: as above; lanes that are masked off are not read.
    let read =
        unsafe { _mm512_mask_i32gather_epi32::<2>(entries, further, blocks, first.words.cast()) };
    entries = _mm512_and_si512(read, word);
    (
        entries,
        _mm512_mask_cmpeq_epi32_mask(further, entries, word),
    )
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn host_order<K: Key>(keys: __m512i) -> __m512i {
    if !K::IS_NETWORK_ORDER {
        return keys;
    }
    let swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    _mm512_shuffle_epi8(keys, _mm512_broadcast_i32x4(swap))
}
