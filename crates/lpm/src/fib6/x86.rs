//! A line searched by one comparison of vectors.

use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU16, Ordering};

use super::kernel;
use super::trie::{ANSWERS, BOUNDS, LINE, Trie};
use crate::Simd;

pub(super) fn avx2(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    assert!(Simd::Avx2.is_available());
    // SAFETY: the machine has the instructions.
    unsafe { by_avx2(trie, addresses, hops) }
}

pub(super) fn avx512(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    assert!(Simd::Avx512.is_available());
    // SAFETY: the machine has the instructions.
    unsafe { by_avx512(trie, addresses, hops) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn by_avx2(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    kernel::look_up(
        trie,
        addresses,
        hops,
        |line, x| {
            // SAFETY: sixteen numbers of the line.
            let bounds = unsafe { _mm256_loadu_si256(line.as_ptr().cast()) };
            let x = _mm256_set1_epi16(x.cast_signed());
            // Not less: max(bound, x) = bound. Of the unused number too, whose two bits are cut off.
            let not_below = _mm256_cmpeq_epi16(_mm256_max_epu16(bounds, x), bounds);
            let below =
                !_mm256_movemask_epi8(not_below).cast_unsigned() & ((1 << (2 * BOUNDS)) - 1);
            line[ANSWERS + below.count_ones() as usize / 2].load(Ordering::Relaxed)
        },
        prefetch,
    );
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
fn by_avx512(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    kernel::look_up(
        trie,
        addresses,
        hops,
        |line: &[AtomicU16; LINE], x| {
            // SAFETY: sixteen numbers of the line.
            let bounds = unsafe { _mm256_loadu_si256(line.as_ptr().cast()) };
            let below = _mm256_cmplt_epu16_mask(bounds, _mm256_set1_epi16(x.cast_signed()));
            let below = below & ((1 << BOUNDS) - 1);
            line[ANSWERS + below.count_ones() as usize].load(Ordering::Relaxed)
        },
        prefetch,
    );
}

#[inline(always)]
fn prefetch(line: &[AtomicU16; LINE]) {
    // SAFETY: a prefetch changes nothing, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
}
