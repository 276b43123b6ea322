//! AVX-512: two IPv4 rules, or half an IPv6 rule, take one comparison.

use std::arch::asm;
use std::arch::x86_64::*;

use super::front_avx512::Front;
use super::{BATCH, Operations, Work, all_batches, descend, test};
use crate::Simd;
use crate::address::Address;
use crate::line::{Line, Line4, Line6};
use crate::rule::{Key, Key4, NONE};
use crate::table::{BOUND_WORDS, Table};

struct Avx512;

impl Operations<u32> for Avx512 {
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        // SAFETY: `classify4` runs only where BMI2 is present.
        unsafe { _pext_u64(word, mask) }
    }

    #[inline(always)]
    fn first(line: &Line4, key: &[u64; 2]) -> u32 {
        // SAFETY: `classify4` runs only where AVX-512 is present.
        unsafe { first_of_two(line, key) }
    }

    #[inline(always)]
    fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
        // SAFETY: as above.
        unsafe { count_reached(bounds, value) }
    }
}

impl Operations<u128> for Avx512 {
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        // SAFETY: `classify6` runs only where BMI2 is present.
        unsafe { _pext_u64(word, mask) }
    }

    #[inline(always)]
    fn first(line: &Line6, key: &[u64; 5]) -> u32 {
        // SAFETY: `classify6` runs only where AVX-512 is present.
        unsafe { first_of_one(line, key) }
    }

    #[inline(always)]
    fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
        // SAFETY: as above.
        unsafe { count_reached(bounds, value) }
    }
}

/// IPv6 keys, by the plain first stage.
pub(crate) fn classify6(table: &Table<u128>, keys: &[Key<u128>], found: &mut [u32]) {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2,popcnt")]
    fn inner(table: &Table<u128>, keys: &[Key<u128>], found: &mut [u32]) {
        all_batches::<u128, Avx512>(table, keys, found);
    }
    assert!(Simd::Avx512.is_available(), "no AVX-512 here");
    // SAFETY: the features are present.
    unsafe { inner(table, keys, found) }
}

/// IPv4 keys.
pub(crate) fn classify4(table: &Table<u32>, keys: &[Key4], found: &mut [u32]) {
    assert!(Simd::Avx512.is_available(), "no AVX-512 here");
    // SAFETY: the features are present.
    unsafe { batches(table, keys, found) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2,popcnt")]
fn batches(table: &Table<u32>, keys: &[Key4], found: &mut [u32]) {
    let mut work = Work::<u32>::new();
    let mut front = Front::new();
    for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
        front.load(&mut work, keys);
        let mut left = keys.len();
        for root in &table.roots {
            left = front.probe(table, root, &mut work, left);
            if left == 0 {
                break;
            }
            if work.nodes.len > 0 {
                descend::<u32, Avx512>(table, &mut work);
            }
            test::<u32, Avx512>(table, &mut work);
        }
        found.copy_from_slice(&work.best[..keys.len()]);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
    let value = _mm512_set1_epi16(value.cast_signed());
    // SAFETY: both halves lie in the array.
    let (front, back) = unsafe {
        let from = bounds.as_ptr();
        (
            _mm512_loadu_si512(from.cast()),
            _mm512_loadu_si512(from.add(8).cast()),
        )
    };
    let count_reached = |bounds| _mm512_cmple_epu16_mask(bounds, value).count_ones();
    count_reached(front) + count_reached(back)
}

/// [`Line::first`] by arithmetic only: which of two rules matches is a coin toss to a branch
/// predictor.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn first_of_two(line: &Line4, key: &[u64; 2]) -> u32 {
    const ORDER: [u16; 32] = [
        0, 1, 2, 3, 4, 5, 6, 7, 7, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7, 7, 0, 1, 2, 3, 4,
        5, 6,
    ];
    let flip = _mm512_setr_epi64(0, 0, 0, 0, -1, -1, -1, -1);
    // SAFETY: all three are as long as what is read; the order that is read lies within the line.
    unsafe {
        let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
        let key = _mm512_castsi128_si512(_mm_loadu_si128(key.as_ptr().cast()));
        let x = _mm512_xor_si512(_mm512_permutexvar_epi16(order, key), flip);
        let missed = _mm512_cmplt_epu16_mask(x, _mm512_load_si512(line.0.as_ptr().cast()));
        // Moves on condition, which compilers would make jumps of.
        let order: u32;
        asm!(
            "mov {order:e}, -1",
            "test {missed:e}, 0xfe00fe00",
            "cmovz {order:e}, dword ptr [{line} + 46]",
            "test {missed:e}, 0x007f007f",
            "cmovz {order:e}, dword ptr [{line} + 14]",
            order = out(reg) order,
            missed = in(reg) missed,
            line = in(reg) line.0.as_ptr(),
            options(pure, readonly, nostack),
        );
        order
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn first_of_one(line: &Line6, key: &[u64; 5]) -> u32 {
    const LANES: u32 = (1 << <u128 as Address>::ALL_LANES) - 1;
    // SAFETY: a line has two halves of 64 bytes; the mask ends where the key does.
    unsafe {
        let x = _mm512_maskz_loadu_epi64(0x1f, key.as_ptr().cast());
        let low = _mm512_load_si512(line.0.as_ptr().cast());
        let high = _mm512_load_si512(line.0.as_ptr().add(32).cast());
        let not_x = _mm512_xor_si512(x, _mm512_set1_epi64(-1));
        let met = _mm512_mask_cmpge_epu16_mask(LANES, x, low);
        let met = _mm512_mask_cmpge_epu16_mask(met, not_x, high);
        if met == LANES { line.order(0) } else { NONE }
    }
}
