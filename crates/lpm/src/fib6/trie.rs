//! The tables that readers see, as flat arrays without pointers, and what their entries mean.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use sys::huge::Array;

use super::capacity::Capacity6;
use super::lines;
use crate::memory::{Provider, array};
use crate::{Error, NO_ROUTE};

/// Entries of a page: the /32s of a /20.
pub(super) const PAGE: usize = 1 << 12;
/// Numbers in a line: 15 bounds, one unused, 16 answers. Such a line is one of the cache.
pub(super) const LINE: usize = 32;
/// The index of a line's first answer.
pub(super) const ANSWERS: usize = 16;
/// Bounds in a line.
pub(super) const BOUNDS: usize = 15;
/// Blocks with prefixes longer than /48: what an answer has bits for.
pub(super) const DEEP: usize = 1 << 15;
/// /20s.
pub(super) const SLASH20: usize = 1 << 20;
/// /32s of 2000::/3.
pub(super) const FLAT: usize = 1 << 29;

/// An answer with this bit is the number of a deep block.
pub(super) const DEEP_BIT: u16 = 0x8000;

/// By the first 16 bits, `short` has the answer of the prefixes that are no longer than /16. By the
/// first 32 bits, `flat` or `pages` has an [`Entry`] for the longer ones.
#[derive(Debug)]
pub(super) struct Trie {
    pub(super) short: Array<AtomicU16>,
    /// One number, which counts when a change of `short` begins and when it ends.
    pub(super) version: Array<AtomicU64>,
    /// For each /20, its page.
    pub(super) page_of: Array<AtomicU32>,
    pub(super) pages: Array<AtomicU32>,
    pub(super) flat: Option<Array<AtomicU32>>,
    pub(super) cells: Array<AtomicU32>,
    pub(super) lines: Array<AtomicU16>,
    /// For each deep block, its first step and their number.
    pub(super) deep: Array<AtomicU64>,
    /// Two numbers each: an address from which on the answer beside it holds.
    pub(super) steps: Array<AtomicU64>,
    pub(super) answers: Array<AtomicU16>,
}

/// The entry of a /32, or of a cell of one. `x` is bits 32..48 of an address.
///
/// ```text
/// bit 31 clear   an answer in 16 bits: 0, a next hop, or a deep block
/// bits 31,30 10  the line at base + the first K bits of x
/// bits 31,30 11  the cell at base + the first K bits of x, which is an answer or a line
/// ```
///
/// K is in bits 26..30, base in bits 0..26, which count modulo 2^26. Answer 0: no prefix longer than
/// /16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u32);

const LINE_KIND: u32 = 0b10 << 30;
const CELL_KIND: u32 = 0b11 << 30;
const BASE: u32 = (1 << 26) - 1;

impl Entry {
    pub(super) fn answer(answer: u16) -> Self {
        Self(answer.into())
    }

    /// Lines from `base` on, for the `2^bits` parts of a /32 from part `from` on.
    pub(super) fn lines(base: u32, bits: u32, from: u32) -> Self {
        Self(LINE_KIND | bits << 26 | (base.wrapping_sub(from) & BASE))
    }

    pub(super) fn cells(base: u32, bits: u32) -> Self {
        Self(CELL_KIND | bits << 26 | base)
    }

    #[inline(always)]
    pub(super) fn is_answer(self) -> bool {
        self.0 < LINE_KIND
    }

    #[inline(always)]
    pub(super) fn is_cells(self) -> bool {
        self.0 >= CELL_KIND
    }

    /// The number of bits of `x` that choose the line or cell.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0 >> 26 & 15
    }

    /// A cell by its number.
    pub(super) fn cell_of_part(self, part: u32) -> u32 {
        (self.0 & BASE) + part
    }

    /// The line or the cell for `x`.
    #[inline(always)]
    pub(super) fn target(self, x: u32) -> u32 {
        self.0.wrapping_add(x << self.bits() >> 16) & BASE
    }
}

impl Trie {
    pub(super) fn new(
        flat: bool,
        capacity: &Capacity6,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let flat = flat.then(|| array(memory, capacity.flat()));
        Ok(Self {
            short: array(memory, capacity.short())?,
            version: array(memory, capacity.version())?,
            page_of: array(memory, capacity.page_of())?,
            pages: array(memory, capacity.pages())?,
            flat: flat.transpose()?,
            cells: array(memory, capacity.cells())?,
            lines: array(memory, capacity.lines())?,
            deep: array(memory, capacity.deep())?,
            steps: array(memory, capacity.steps())?,
            answers: array(memory, capacity.answers())?,
        })
    }

    /// The slot of a /32's entry. The slot of an absent page is read, never written.
    #[inline(always)]
    pub(super) fn slot(&self, slash32: u32) -> &AtomicU32 {
        match &self.flat {
            Some(flat) if slash32 >> 29 == 1 => &flat[slash32 as usize % FLAT],
            _ => self.paged(slash32),
        }
    }

    #[inline(always)]
    pub(super) fn paged(&self, slash32: u32) -> &AtomicU32 {
        let page = self.page_of[slash32 as usize >> 12].load(Ordering::Relaxed);
        &self.pages[page as usize * PAGE + slash32 as usize % PAGE]
    }

    pub(super) fn cell(&self, at: u32) -> Entry {
        Entry(self.cells[at as usize].load(Ordering::Relaxed))
    }

    pub(super) fn line(&self, at: u32) -> &[AtomicU16] {
        &self.lines[at as usize * LINE..][..LINE]
    }

    /// The version of `short`. It has to be read before the entry of an address.
    pub(super) fn version(&self) -> u64 {
        self.version[0].load(Ordering::Acquire)
    }

    /// Changes `short`.
    pub(super) fn change_short(&self, change: impl FnOnce(&[AtomicU16])) {
        let version = self.version[0].load(Ordering::Relaxed);
        self.version[0].store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change(&self.short);
        self.version[0].store(version + 2, Ordering::Release);
    }

    /// The answer where entries and lines have found `answer`, which is none or a deep block's.
    #[cold]
    pub(super) fn resolve(&self, address: [u8; 16], answer: u16, version: u64) -> u16 {
        // The entry that leads here was written after this block.
        fence(Ordering::Acquire);
        let address = u128::from_be_bytes(address);
        let (mut answer, mut version) = (answer, version);
        loop {
            if answer & DEEP_BIT != 0 {
                answer = self.deep_answer(usize::from(answer ^ DEEP_BIT), address);
            }
            if answer != NO_ROUTE {
                return answer;
            }
            let short = self.short[(address >> 112) as usize].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            // In one version either `short` stays as it is, or all else does: then there was a
            // moment at which both were as they were read.
            if self.version[0].load(Ordering::Relaxed) == version {
                return short;
            }
            version = self.version();
            answer = self.found(address);
        }
    }

    /// The answer that entries and lines have for one address.
    fn found(&self, address: u128) -> u16 {
        let x = (address >> 80) as u32 & 0xffff;
        let mut entry = Entry(self.slot((address >> 96) as u32).load(Ordering::Acquire));
        if entry.is_cells() {
            entry = Entry(self.cells[entry.target(x) as usize].load(Ordering::Acquire));
        }
        if entry.is_answer() {
            return entry.0 as u16;
        }
        let (lines, _) = self.lines.as_chunks();
        lines::answer(&lines[entry.target(x) as usize], x as u16)
    }

    /// The first step of a deep block and their number.
    pub(super) fn deep_block(&self, block: usize) -> (usize, usize) {
        let block = self.deep[block].load(Ordering::Acquire);
        ((block >> 32) as usize, (block & 0xffff_ffff) as usize)
    }

    /// From `from` on, up to the next step of its block, `answer` holds.
    pub(super) fn write_step(&self, at: usize, from: u128, answer: u16) {
        self.steps[2 * at].store((from >> 64) as u64, Ordering::Relaxed);
        self.steps[2 * at + 1].store(from as u64, Ordering::Relaxed);
        self.answers[at].store(answer, Ordering::Relaxed);
    }

    fn deep_answer(&self, block: usize, address: u128) -> u16 {
        let (start, len) = self.deep_block(block);
        let from = |at: usize| {
            let half = |at: usize| u128::from(self.steps[at].load(Ordering::Relaxed));
            half(2 * at) << 64 | half(2 * at + 1)
        };
        let (mut low, mut high) = (start, start + len);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if from(middle) <= address {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.answers[low].load(Ordering::Relaxed)
    }
}
