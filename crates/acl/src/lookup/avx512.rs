//! AVX-512: sixteen packets hash and load their entries at once; two IPv4 rules, or half an IPv6
//! rule, take one comparison.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{BATCH, Operations, Work, all_batches, descend, test};
use crate::Simd;
use crate::address::{Address, MIX};
use crate::line::{Line, Line4, Line6};
use crate::rule::{Key, Key4, NONE};
use crate::table::{BOUND_WORDS, FILTER_BITS, Root, Table};

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
    fn reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
        // SAFETY: as above.
        unsafe { reached(bounds, value) }
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
    fn reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
        // SAFETY: as above.
        unsafe { reached(bounds, value) }
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

/// Packets that a later root may still match: addresses and numbers, sixteen of each in a vector.
#[repr(C, align(64))]
struct Front {
    sources: [u32; BATCH + 16],
    destinations: [u32; BATCH + 16],
    packets: [u32; BATCH + 16],
}

impl Front {
    fn new() -> Self {
        Self {
            sources: [0; BATCH + 16],
            destinations: [0; BATCH + 16],
            packets: [0; BATCH + 16],
        }
    }

    /// Takes the keys into lanes and columns.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn load(&mut self, work: &mut Work<u32>, keys: &[Key4]) {
        let host = _mm512_broadcast_i32x4(_mm_setr_epi8(
            7, 6, 5, 4, 11, 10, 9, 8, 13, 12, 15, 14, 0, -1, -1, -1,
        ));
        // Words 0 (sources) and 1 (destinations) of four keys, of two registers.
        let columns = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
        let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for start in (0..keys.len().min(BATCH)).step_by(16) {
            let mut rows = [_mm512_setzero_si512(); 4];
            for (quarter, row) in rows.iter_mut().enumerate() {
                let left = keys.len().saturating_sub(start + 4 * quarter).min(4);
                let mask = (1u16 << (2 * left)) - 1;
                // SAFETY: the mask leaves out what lies behind the last key; `start` is a multiple of
                // 16 below 256, so 16 rows fit.
                unsafe {
                    let from = keys.as_ptr().wrapping_add(start + 4 * quarter);
                    let bytes = _mm512_maskz_loadu_epi64(mask as u8, from.cast());
                    *row = _mm512_shuffle_epi8(bytes, host);
                    let to = work.keys.as_mut_ptr().add(start + 4 * quarter);
                    _mm512_storeu_si512(to.cast(), *row);
                }
            }
            let front = _mm512_permutex2var_epi32(rows[0], columns, rows[1]);
            let back = _mm512_permutex2var_epi32(rows[2], columns, rows[3]);
            let sources = _mm512_shuffle_i64x2::<0x44>(front, back);
            let destinations = _mm512_shuffle_i64x2::<0xee>(front, back);
            let numbers = _mm512_add_epi32(iota, _mm512_set1_epi32((start as u32).cast_signed()));
            store(&mut self.sources, start, sources);
            store(&mut self.destinations, start, destinations);
            store(&mut self.packets, start, numbers);
            store(&mut work.best, start, _mm512_set1_epi32(-1));
        }
    }

    /// Looks the first `left` packets up in a root: those that it cannot improve leave, of the others
    /// the entries that may match go to the lists. Returns how many stay.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn probe(
        &mut self,
        table: &Table<u32>,
        root: &Root,
        work: &mut Work<u32>,
        left: usize,
    ) -> usize {
        let root_best = _mm512_set1_epi32(root.best.cast_signed());
        let bound_shift = _mm_cvtsi32_si128(i32::from(table.shift));
        let entries = table.entries.as_ptr().wrapping_add(root.base as usize);
        let (mut stay, mut leaves, mut nodes) = (0, 0, 0);
        for start in (0..left).step_by(16) {
            let some = (u32::from(u16::MAX) >> (16 - (left - start).min(16))) as u16;
            let sources = load(&self.sources, start);
            let destinations = load(&self.destinations, start);
            let packets = load(&self.packets, start);
            // SAFETY: packet numbers are below 256.
            let best = unsafe {
                let best = work.best.as_ptr().cast();
                _mm512_mask_i32gather_epi32::<4>(root_best, some, packets, best)
            };
            let open = _mm512_mask_cmplt_epu32_mask(some, root_best, best);
            pack(&mut self.sources, stay, open, sources);
            pack(&mut self.destinations, stay, open, destinations);
            pack(&mut self.packets, stay, open, packets);
            stay += open.count_ones() as usize;

            let hash = hash(sources, destinations, root);
            let slots = _mm512_srl_epi32(hash, right(root.bits));
            // SAFETY: a root has an entry for each value of the slot's bits.
            let (lows, references) = unsafe { gather(entries, open, slots) };
            let bit = _mm512_and_si512(_mm512_srli_epi32::<4>(hash), _mm512_set1_epi32(7));
            let bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), bit);
            let passes = _mm512_test_epi32_mask(lows, bit);
            let bounds = _mm512_sll_epi32(_mm512_srli_epi32::<FILTER_BITS>(lows), bound_shift);
            let met = _mm512_mask_cmplt_epu32_mask(passes, bounds, best);
            let inner = met & _mm512_movepi32_mask(references);
            let leaf = met & !inner;
            pack(&mut work.leaves.packets, leaves, leaf, packets);
            pack(&mut work.leaves.references, leaves, leaf, references);
            leaves += leaf.count_ones() as usize;
            if inner != 0 {
                pack(&mut work.nodes.packets, nodes, inner, packets);
                pack(&mut work.nodes.references, nodes, inner, references);
                nodes += inner.count_ones() as usize;
            }
        }
        work.leaves.len = leaves;
        work.nodes.len = nodes;
        stay
    }
}

/// [`Address::hash`] of sixteen packets.
#[inline]
#[target_feature(enable = "avx512f")]
fn hash(sources: __m512i, destinations: __m512i, root: &Root) -> __m512i {
    let mix = MIX.map(u32::cast_signed);
    let sources = _mm512_srl_epi32(sources, right(root.lengths.0));
    let destinations = _mm512_srl_epi32(destinations, right(root.lengths.1));
    let sum = _mm512_add_epi32(
        _mm512_mullo_epi32(sources, _mm512_set1_epi32(mix[0])),
        _mm512_mullo_epi32(destinations, _mm512_set1_epi32(mix[1])),
    );
    let sum = _mm512_xor_si512(sum, _mm512_srli_epi32::<15>(sum));
    _mm512_mullo_epi32(sum, _mm512_set1_epi32(mix[2]))
}

/// How far to shift right for the first `bits` to remain.
#[inline]
#[target_feature(enable = "avx512f")]
fn right(bits: u8) -> __m128i {
    _mm_cvtsi32_si128(32 - i32::from(bits))
}

/// Low and high halves of the entries that the mask names, of the others zero.
///
/// # Safety
/// Entries of these slots exist.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn gather(entries: *const u64, some: u16, slots: __m512i) -> (__m512i, __m512i) {
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let nothing = _mm512_setzero_si512();
    let entries = entries.cast();
    let (first, last) = (some as u8, (some >> 8) as u8);
    let slots = (
        _mm512_castsi512_si256(slots),
        _mm512_extracti64x4_epi64::<1>(slots),
    );
    // SAFETY: the caller's promise.
    let (first, last) = unsafe {
        (
            _mm512_mask_i32gather_epi64::<8>(nothing, first, slots.0, entries),
            _mm512_mask_i32gather_epi64::<8>(nothing, last, slots.1, entries),
        )
    };
    (
        _mm512_permutex2var_epi32(first, even, last),
        _mm512_permutex2var_epi32(first, odd, last),
    )
}

/// Writes the elements that the mask names one after the other, and fifteen more at most.
#[inline]
#[target_feature(enable = "avx512f")]
fn pack(to: &mut [u32], start: usize, some: u16, values: __m512i) {
    store(to, start, _mm512_maskz_compress_epi32(some, values));
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[u32], start: usize) -> __m512i {
    debug_assert!(start + 16 <= from.len());
    // SAFETY: callers read at most 16 elements beyond an index below BATCH, and their arrays have
    // that many more.
    unsafe { _mm512_loadu_si512(from.as_ptr().add(start).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u32], start: usize, value: __m512i) {
    debug_assert!(start + 16 <= to.len());
    // SAFETY: as in `load`.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().add(start).cast(), value) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
fn reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32 {
    let value = _mm512_set1_epi16(value.cast_signed());
    // SAFETY: both halves lie in the array.
    let (front, back) = unsafe {
        let from = bounds.as_ptr();
        (
            _mm512_loadu_si512(from.cast()),
            _mm512_loadu_si512(from.add(8).cast()),
        )
    };
    let reached = |bounds| _mm512_cmple_epu16_mask(bounds, value).count_ones();
    reached(front) + reached(back)
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
