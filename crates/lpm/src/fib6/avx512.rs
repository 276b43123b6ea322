//! Sixteen addresses at a time by AVX-512. Tables are read by ordinary loads, which are several times
//! faster than a gather where that is microcode.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "lanes and masks of vectors"
)]

use std::arch::x86_64::*;

use super::kernel::resolve;
use super::trie::{ANSWERS, BOUNDS, FLAT, LINE, Trie};
use crate::Simd;

/// Addresses taken through each step together.
const BLOCK: usize = 64;
/// 32-bit lanes of a vector.
const LANES: usize = 16;
/// Lines asked for before they are searched.
const PREFETCH_DISTANCE: usize = 16;
/// Room for a whole vector after the last place of a list.
const LIST_LEN: usize = BLOCK + LANES;

/// The state of a block between the steps, by the address's place in the block.
#[repr(align(64))]
struct Block {
    /// The first 32 bits, then entries.
    entries: [u32; BLOCK],
    /// Bits 32..48.
    xs: [u32; BLOCK],
    answers: [u16; BLOCK],
    /// The items to read next, and the places of the addresses that they are for, with bits 32..48 above.
    targets: [u32; LIST_LEN],
    places: [u32; LIST_LEN],
}

pub(super) fn look_up(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16]) {
    assert!(Simd::Avx512.is_available() && addresses.len() == hops.len());
    let mut block = Block {
        entries: [0; BLOCK],
        xs: [0; BLOCK],
        answers: [0; BLOCK],
        targets: [0; LIST_LEN],
        places: [0; LIST_LEN],
    };
    let mut rest = addresses;
    for hops in hops.chunks_mut(BLOCK) {
        let (addresses, later) = rest.split_at(hops.len());
        rest = later;
        let version = trie.version();
        // SAFETY: the machine has the instructions, and a chunk is no longer than a block.
        unsafe { block.look_up(trie, addresses, later) };
        hops.copy_from_slice(&block.answers[..hops.len()]);
        resolve(trie, addresses, hops, version);
    }
}

impl Block {
    /// # Safety
    /// At most `BLOCK` addresses.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
    unsafe fn look_up(&mut self, trie: &Trie, addresses: &[[u8; 16]], later: &[[u8; 16]]) {
        let vectors = addresses.len().div_ceil(LANES);
        for (at, sixteen) in addresses.chunks(LANES).enumerate() {
            // The next block's addresses, four to a line of the cache.
            for next in later.iter().skip(at * LANES).take(LANES).step_by(4) {
                _mm_prefetch::<_MM_HINT_T0>(next.as_ptr().cast());
            }
            // SAFETY: `at` is below `BLOCK / LANES`.
            unsafe { self.split(at, sixteen) };
        }
        self.read_entries(trie, vectors * LANES);
        // SAFETY: at most `BLOCK / LANES` vectors, here and below.
        let cells = unsafe { self.list::<true>(vectors) };
        for (target, place) in self.targets.iter().zip(&self.places).take(cells) {
            let place = *place as usize % (1 << 16) % BLOCK;
            self.entries[place] = trie.cell(*target).0;
        }
        // SAFETY: as above.
        let lines = unsafe { self.list::<false>(vectors) };
        self.search(trie, lines);
    }

    /// Takes the first 48 bits of up to sixteen addresses apart.
    ///
    /// # Safety
    /// `at` is below `BLOCK / LANES`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn split(&mut self, at: usize, addresses: &[[u8; 16]]) {
        let swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
        let swap = _mm512_broadcast_i32x4(swap);
        let words = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
        let bytes = addresses.as_ptr().cast::<i64>();
        let left = addresses.len() * 2;
        // Four addresses; those that are not there read as zero.
        let four = |at: usize| {
            let lanes = (1u32 << left.saturating_sub(at * 8).min(8)) - 1;
            // SAFETY: only as many halves of addresses as there are.
            unsafe { _mm512_maskz_loadu_epi64(lanes as __mmask8, bytes.wrapping_add(at * 8)) }
        };
        // First words of eight addresses below, second words above.
        let low = _mm512_permutex2var_epi32(four(0), words, four(1));
        let high = _mm512_permutex2var_epi32(four(2), words, four(3));
        let first = _mm512_shuffle_i64x2::<0b01_00_01_00>(low, high);
        let second = _mm512_shuffle_i64x2::<0b11_10_11_10>(low, high);
        let first = _mm512_shuffle_epi8(first, swap);
        let x = _mm512_srli_epi32::<16>(_mm512_shuffle_epi8(second, swap));
        // SAFETY: vector `at` lies in both arrays.
        unsafe {
            _mm512_storeu_si512(self.entries.as_mut_ptr().add(at * LANES).cast(), first);
            _mm512_storeu_si512(self.xs.as_mut_ptr().add(at * LANES).cast(), x);
        }
    }

    /// Replaces the first 32 bits by the entries of the /32s.
    #[inline(always)]
    fn read_entries(&mut self, trie: &Trie, len: usize) {
        let entries = self.entries.iter_mut().take(len);
        let Some(flat) = &trie.flat else {
            for entry in entries {
                *entry = trie
                    .paged(*entry)
                    .load(std::sync::atomic::Ordering::Relaxed);
            }
            return;
        };
        let flat: &[_; FLAT] = flat.first_chunk().expect("all /32s of 2000::/3");
        for entry in entries {
            let slot = if *entry >> 29 == 1 {
                &flat[*entry as usize % FLAT]
            } else {
                trie.paged(*entry)
            };
            *entry = slot.load(std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Lists the targets of entries that are cells, or of all that are not answers; writes the answers
    /// in the latter case. Returns how many were listed.
    ///
    /// # Safety
    /// At most `BLOCK / LANES` vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    unsafe fn list<const CELLS: bool>(&mut self, vectors: usize) -> usize {
        let [k, base] = [15, (1 << 26) - 1].map(|mask| _mm512_set1_epi32(mask));
        let mut place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        let mut count = 0;
        for at in (0..vectors * LANES).step_by(LANES) {
            // SAFETY: the vector at `at` lies in the block; the list is one vector longer.
            unsafe {
                let entry = _mm512_loadu_si512(self.entries.as_ptr().add(at).cast());
                let x = _mm512_loadu_si512(self.xs.as_ptr().add(at).cast());
                let bits = _mm512_and_si512(_mm512_srli_epi32::<26>(entry), k);
                let part = _mm512_srli_epi32::<16>(_mm512_sllv_epi32(x, bits));
                let target = _mm512_and_si512(_mm512_add_epi32(entry, part), base);
                let listed = if CELLS {
                    _mm512_cmpge_epu32_mask(entry, _mm512_set1_epi32(0b11 << 30))
                } else {
                    let answers = _mm512_cvtepi32_epi16(entry);
                    _mm256_storeu_si256(self.answers.as_mut_ptr().add(at).cast(), answers);
                    _mm512_movepi32_mask(entry)
                };
                let which = _mm512_or_si512(place, _mm512_slli_epi32::<16>(x));
                let targets = self.targets.as_mut_ptr().add(count);
                let places = self.places.as_mut_ptr().add(count);
                _mm512_storeu_si512(targets.cast(), _mm512_maskz_compress_epi32(listed, target));
                _mm512_storeu_si512(places.cast(), _mm512_maskz_compress_epi32(listed, which));
                count += listed.count_ones() as usize;
            }
            place = _mm512_add_epi32(place, _mm512_set1_epi32(LANES as i32));
        }
        count
    }

    /// Searches the listed lines.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn search(&mut self, trie: &Trie, count: usize) {
        let line = |target: u32| trie.line(target).as_ptr().cast::<u16>();
        for &target in self.targets.iter().take(count.min(PREFETCH_DISTANCE)) {
            _mm_prefetch::<_MM_HINT_T0>(line(target).cast());
        }
        for at in 0..count.min(BLOCK) {
            // Beyond the end of the list there are older targets, which are lines or cells: any
            // number of 24 bits is a line.
            let next = self.targets[(at + PREFETCH_DISTANCE) % LIST_LEN];
            _mm_prefetch::<_MM_HINT_T0>(
                trie.lines
                    .as_ptr()
                    .wrapping_add(next as usize * LINE)
                    .cast(),
            );
            let line = line(self.targets[at]);
            let which = self.places[at];
            // SAFETY: a line of 32 numbers, of which the answers are the last 16.
            let answer = unsafe {
                let bounds = _mm256_loadu_si256(line.cast());
                let x = _mm256_set1_epi16((which >> 16) as i16);
                let below = _mm256_cmplt_epu16_mask(bounds, x) & ((1 << BOUNDS) - 1);
                line.add(ANSWERS + below.count_ones() as usize)
                    .read_volatile()
            };
            self.answers[which as usize % BLOCK] = answer;
        }
    }
}
