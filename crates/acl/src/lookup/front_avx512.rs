//! The first stage with AVX-512: sixteen packets hash and load their entries at once. A root that few
//! of them match has a map small enough for registers, which lets most go without reading an entry.

use std::arch::x86_64::*;

use super::{BATCH, Work};
use crate::address::MIX;
use crate::rule::Key4;
use crate::table::{FILTER_BITS, MAP_WORD_BITS, Map, Root, Table};

/// Packets that a later root may still match: addresses and numbers, sixteen of each in a vector.
#[repr(C, align(64))]
pub(super) struct Front {
    sources: [u32; BATCH + 16],
    destinations: [u32; BATCH + 16],
    packets: [u32; BATCH + 16],
    /// Whether packets have left their places because others are done.
    moved: bool,
    /// Packets that a root's map does not rule out.
    hits: MapHits,
}

/// Packets that a map does not rule out, with the hash and the best match of each.
#[repr(C, align(64))]
struct MapHits {
    packets: [u32; BATCH + 16],
    hashes: [u32; BATCH + 16],
    best: [u32; BATCH + 16],
}

impl Front {
    pub(super) fn new() -> Self {
        Self {
            sources: [0; BATCH + 16],
            destinations: [0; BATCH + 16],
            packets: [0; BATCH + 16],
            moved: false,
            hits: MapHits {
                packets: [0; BATCH + 16],
                hashes: [0; BATCH + 16],
                best: [0; BATCH + 16],
            },
        }
    }

    /// Takes the keys into lanes and columns.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn load(&mut self, work: &mut Work<u32>, keys: &[Key4]) {
        let host = _mm512_broadcast_i32x4(_mm_setr_epi8(
            7, 6, 5, 4, 11, 10, 9, 8, 13, 12, 15, 14, 0, -1, -1, -1,
        ));
        self.moved = false;
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
    /// the entries that may match go to the lists. Returns how many places are left to look at.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn probe(
        &mut self,
        table: &Table<u32>,
        root: &Root,
        work: &mut Work<u32>,
        left: usize,
    ) -> usize {
        let root_best = _mm512_set1_epi32(root.best.cast_signed());
        let in_place = !self.moved;
        if in_place {
            let open = open_in_place(&work.best, root_best, left);
            // Holes cost less than moving the others, while they are few.
            self.moved = open * 4 < left * 3;
            if open == 0 {
                (work.leaves.len, work.nodes.len) = (0, 0);
                return 0;
            }
        }
        let mut root_entries = RootEntries::new(table, root);
        let (mut stay, mut hits) = (0, 0);
        for start in (0..left).step_by(16) {
            let some = first(left - start);
            let sources = load(&self.sources, start);
            let destinations = load(&self.destinations, start);
            let packets = load(&self.packets, start);
            let best = if in_place {
                load(&work.best, start)
            } else {
                // SAFETY: packet numbers are below 256.
                unsafe {
                    let best = work.best.as_ptr().cast();
                    _mm512_mask_i32gather_epi32::<4>(root_best, some, packets, best)
                }
            };
            let open = _mm512_mask_cmplt_epu32_mask(some, root_best, best);
            if self.moved {
                pack(&mut self.sources, stay, open, sources);
                pack(&mut self.destinations, stay, open, destinations);
                pack(&mut self.packets, stay, open, packets);
                stay += open.count_ones() as usize;
            } else {
                stay = (start + 16).min(left);
            }
            let hash = hash(sources, destinations, root);
            if let Some(map) = &root.map {
                let pass = contains(map, open, hash);
                pack(&mut self.hits.packets, hits, pass, packets);
                pack(&mut self.hits.hashes, hits, pass, hash);
                pack(&mut self.hits.best, hits, pass, best);
                hits += pass.count_ones() as usize;
            } else {
                root_entries.enter(work, open, packets, hash, best);
            }
        }
        for start in (0..hits).step_by(16) {
            let packets = load(&self.hits.packets, start);
            let hash = load(&self.hits.hashes, start);
            let best = load(&self.hits.best, start);
            root_entries.enter(work, first(hits - start), packets, hash, best);
        }
        work.leaves.len = root_entries.leaves;
        work.nodes.len = root_entries.nodes;
        stay
    }
}

/// A root's entries, and how many of those read have gone to the lists.
struct RootEntries {
    entries: *const u64,
    slot_shift: __m128i,
    bound_shift: __m128i,
    leaves: usize,
    nodes: usize,
}

impl RootEntries {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(table: &Table<u32>, root: &Root) -> Self {
        Self {
            entries: table.entries.as_ptr().wrapping_add(root.base as usize),
            slot_shift: right(root.bits),
            bound_shift: _mm_cvtsi32_si128(i32::from(table.shift)),
            leaves: 0,
            nodes: 0,
        }
    }

    /// Reads the entries of the packets that the mask names, whose hashes these are, and lists those
    /// that may have something better than `best`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn enter(
        &mut self,
        work: &mut Work<u32>,
        open: u16,
        packets: __m512i,
        hash: __m512i,
        best: __m512i,
    ) {
        let slots = _mm512_srl_epi32(hash, self.slot_shift);
        // SAFETY: a root has an entry for each value of the slot's bits.
        let (lows, references) = unsafe { gather(self.entries, open, slots) };
        let bit = _mm512_and_si512(_mm512_srli_epi32::<4>(hash), _mm512_set1_epi32(7));
        let bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), bit);
        let passes = _mm512_test_epi32_mask(lows, bit);
        let bounds = _mm512_sll_epi32(_mm512_srli_epi32::<FILTER_BITS>(lows), self.bound_shift);
        let met = _mm512_mask_cmplt_epu32_mask(passes, bounds, best);
        let inner = met & _mm512_movepi32_mask(references);
        let leaf = met & !inner;
        pack(&mut work.leaves.packets, self.leaves, leaf, packets);
        pack(&mut work.leaves.references, self.leaves, leaf, references);
        self.leaves += leaf.count_ones() as usize;
        if inner != 0 {
            pack(&mut work.nodes.packets, self.nodes, inner, packets);
            pack(&mut work.nodes.references, self.nodes, inner, references);
            self.nodes += inner.count_ones() as usize;
        }
    }
}

/// The number of packets, of the first `left`, that a root can improve.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn open_in_place(best: &[u32; BATCH + 16], root_best: __m512i, left: usize) -> usize {
    let starts = (0..left).step_by(16);
    let open = starts.map(|start| {
        let best = load(best, start);
        _mm512_mask_cmplt_epu32_mask(first(left - start), root_best, best).count_ones()
    });
    open.sum::<u32>() as usize
}

/// Names the first elements, at most sixteen.
#[inline(always)]
fn first(count: usize) -> u16 {
    (u32::from(u16::MAX) >> (16 - count.min(16))) as u16
}

/// The packets of a mask whose hash is in the map.
#[inline]
#[target_feature(enable = "avx512f")]
fn contains(map: &Map, some: u16, hash: __m512i) -> u16 {
    let word = _mm512_srli_epi32::<{ 32 - MAP_WORD_BITS }>(hash);
    let quarter = |at: usize| load(&map.0, 16 * at);
    let lower = _mm512_permutex2var_epi32(quarter(0), word, quarter(1));
    let upper = _mm512_permutex2var_epi32(quarter(2), word, quarter(3));
    let is_upper = _mm512_test_epi32_mask(word, _mm512_set1_epi32(32));
    let found = _mm512_mask_blend_epi32(is_upper, lower, upper);
    let bit = _mm512_rolv_epi32(
        _mm512_set1_epi32(1),
        _mm512_srli_epi32::<{ 32 - MAP_WORD_BITS - 5 }>(hash),
    );
    _mm512_mask_test_epi32_mask(some, found, bit)
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

/// The shift to the right after which the first `bits` remain.
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
