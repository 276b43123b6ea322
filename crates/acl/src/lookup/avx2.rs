//! AVX2 and BMI2: a line of two IPv4 rules in two comparisons.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_cmpeq_epi16, _mm256_loadu_si256,
    _mm256_max_epu16, _mm256_movemask_epi8, _mm256_set_m128i, _mm256_set1_epi16, _mm256_xor_si256,
    _pext_u64,
};

use super::{Operations, all_batches};
use crate::Simd;
use crate::address::Address;
use crate::line::Line;
use crate::rule::{Key, NONE};
use crate::table::{BOUND_WORDS, Table};

struct Avx2;

impl<A: Address> Operations<A> for Avx2 {
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        // SAFETY: `classify` runs only where BMI2 is present.
        unsafe { _pext_u64(word, mask) }
    }

    #[inline(always)]
    fn first(line: &A::Line, key: &A::Words) -> u32 {
        if A::Line::RULES == 2 {
            // SAFETY: `classify` runs only where AVX2 is present.
            unsafe { first_of_two(line.lanes(), key.as_ref()) }
        } else {
            line.first(key.as_ref())
        }
    }

    #[inline(always)]
    fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
        // SAFETY: `classify` runs only where AVX2 is present.
        unsafe { count_reached(bounds, value) }
    }
}

/// `simd` says that the instructions are there.
pub(super) fn classify<A: Address>(table: &Table<A>, keys: &[Key<A>], found: &mut [u32]) {
    assert!(Simd::Avx2.is_available(), "no AVX2 here");
    // SAFETY: the features are present.
    unsafe { inner(table, keys, found) }
}

/// Runs loops over integers, compiled for AVX2 where `simd` has it.
pub(crate) fn with_simd<R>(simd: Simd, loops: impl FnOnce() -> R) -> R {
    #[target_feature(enable = "avx2,bmi2")]
    fn inner<R>(loops: impl FnOnce() -> R) -> R {
        loops()
    }
    if simd == Simd::Portable || !Simd::Avx2.is_available() {
        return loops();
    }
    // SAFETY: the features are present.
    unsafe { inner(loops) }
}

#[target_feature(enable = "avx2,bmi2,popcnt")]
fn inner<A: Address>(table: &Table<A>, keys: &[Key<A>], found: &mut [u32]) {
    all_batches::<A, Avx2>(table, keys, found);
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
    let mut bytes = 0;
    for quarter in bounds.chunks_exact(4) {
        // SAFETY: 32 bytes lie in a chunk.
        bytes += unsafe {
            let value = _mm256_set1_epi16(value.cast_signed());
            let bounds = _mm256_loadu_si256(quarter.as_ptr().cast());
            let met = _mm256_cmpeq_epi16(_mm256_max_epu16(value, bounds), value);
            _mm256_movemask_epi8(met).count_ones()
        };
    }
    bytes / 2
}

/// [`Line::first`] for lines of the layout `low0[7] order0[2] low1[7] high0[7] order1[2] high1[7]`.
///
/// # Safety
/// AVX2; 32 lanes, and two words.
#[inline(always)]
unsafe fn first_of_two(lanes: &[u16], key: &[u64]) -> u32 {
    debug_assert!(lanes.len() == 32 && key.len() == 2);
    // SAFETY: the lengths are the caller's promise.
    unsafe {
        // Lanes 0 to 6 of the key under low0, and again from lane 9 on under low1.
        let once = _mm_loadu_si128(key.as_ptr().cast());
        let again = std::arch::x86_64::_mm_slli_si128::<2>(once);
        let x = _mm256_set_m128i(again, once);
        let low: __m256i = _mm256_loadu_si256(lanes.as_ptr().cast());
        let high = _mm256_loadu_si256(lanes.as_ptr().add(16).cast());
        let not_x = _mm256_xor_si256(x, _mm256_set1_epi16(-1));
        let above = _mm256_cmpeq_epi16(_mm256_max_epu16(x, low), x);
        let below = _mm256_cmpeq_epi16(_mm256_max_epu16(not_x, high), not_x);
        // Two bits for each lane.
        let met = _mm256_movemask_epi8(_mm256_and_si256(above, below)).cast_unsigned();
        let first = ((met & 0x3fff) + 1) >> 14;
        let second = ((met >> 18) + 1) >> 14;
        let order = lanes.as_ptr().add(23 - 16 * first as usize).cast::<u32>();
        order.read_unaligned() | (first | second).wrapping_sub(1) & NONE
    }
}
