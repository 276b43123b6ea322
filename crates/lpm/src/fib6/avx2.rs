//! A line searched by one comparison of 256-bit vectors.

use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU16, Ordering};

use super::kernel::{self, Search};
use super::trie::{ANSWERS, BOUNDS, LINE, Trie};
use crate::Simd;

pub(super) fn look_up(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    assert!(Simd::Avx2.is_available());
    // SAFETY: the machine has the instructions.
    unsafe { by_avx2(trie, addresses, hops) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn by_avx2(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    kernel::look_up(trie, addresses, hops, &Avx2);
}

/// Made only where there is AVX2.
struct Avx2;

impl Search for Avx2 {
    #[inline(always)]
    fn answer(&self, line: &[AtomicU16; LINE], x: u16) -> u16 {
        // SAFETY: sixteen numbers of the line; whoever made `Avx2` saw to the instructions.
        let below = unsafe {
            let bounds = _mm256_loadu_si256(line.as_ptr().cast());
            let x = _mm256_set1_epi16(x.cast_signed());
            // max(bound, x) = bound: not below.
            let not_below = _mm256_cmpeq_epi16(_mm256_max_epu16(bounds, x), bounds);
            !_mm256_movemask_epi8(not_below).cast_unsigned()
        };
        // Two bits a bound; those of the number that is none are cut off.
        let below = below & ((1 << (2 * BOUNDS)) - 1);
        line[ANSWERS + below.count_ones() as usize / 2].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn prefetch(&self, line: &[AtomicU16; LINE]) {
        // SAFETY: a prefetch changes nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
