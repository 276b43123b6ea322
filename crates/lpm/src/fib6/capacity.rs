//! The capacity of a table: its arrays and their lengths.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::trie::{DEEP, FLAT, LINE, PAGE, SLASH20};
use super::writer::Writer;
use crate::memory::Section;
use crate::{Error, Layout6, Rib};

/// Maximum number of pages. The first one has no prefixes.
const MAX_PAGES: usize = 1 << 16;
/// Maximum number of lines, of cells, and of steps of blocks of prefixes longer than /48.
const MAX_ITEMS: usize = 1 << 24;

/// How many items of each kind a table can hold. All are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity6 {
    /// Pages of 2^12 entries of 4 bytes: the /32s of a /20. One more than there are /20s with prefixes.
    pub(super) pages: usize,
    /// Cells of 4 bytes: parts of /32s with many prefixes.
    pub(super) cells: usize,
    /// Lines of 64 bytes: up to 15 bounds of 16 bits, and answers.
    pub(super) lines: usize,
    /// Steps of 18 bytes: bounds of prefixes longer than /48.
    pub(super) steps: usize,
}

impl Default for Capacity6 {
    /// 2^16 pages and 2^24 of all else: address space, of which what is used becomes memory.
    fn default() -> Self {
        Self {
            pages: MAX_PAGES,
            cells: MAX_ITEMS,
            lines: MAX_ITEMS,
            steps: MAX_ITEMS,
        }
    }
}

impl Capacity6 {
    /// Rounds up to powers of two; no more than by default.
    pub fn new(pages: usize, cells: usize, lines: usize, steps: usize) -> Self {
        let [cells, lines, steps] =
            [cells, lines, steps].map(|count| count.clamp(1, MAX_ITEMS).next_power_of_two());
        Self {
            pages: pages.clamp(2, MAX_PAGES).next_power_of_two(),
            cells,
            lines,
            steps,
        }
    }

    /// At least `times` what the prefixes need, and a minimum of each kind. Builds a table in the
    /// process's memory to find out what they need.
    ///
    /// # Errors
    /// As [`crate::Fib6::build`].
    pub fn of(rib: &Rib<u128>, times: usize) -> Result<Self, Error> {
        let writer = Writer::build(rib, false, &Self::default(), &mut Section::in_process)?;
        let [pages, cells, lines, steps] = writer.high_water_marks();
        let capacity = |used: usize, min: usize| used.saturating_mul(times).max(min);
        Ok(Self::new(
            capacity(pages, 1 << 6),
            capacity(cells, 1 << 12),
            capacity(lines, 1 << 12),
            capacity(steps, 1 << 10),
        ))
    }

    /// The arrays of a table, all of which have to be there. `x` is bits 32..48 of an address.
    ///
    /// * `short`: of each /16, two bytes, the next hop of prefixes no longer than /16, 0 for none: what
    ///   holds where nothing longer is found.
    /// * `version`: eight bytes, odd while `short` changes, another number afterwards. An answer
    ///   from `short` counts if `version` was read before the entry and is still the same and even.
    /// * `page_of`: of each /20, four bytes, its page. Page 0 has no prefixes.
    /// * `pages`: 2^12 entries of four bytes each: of each /32 of the page's /20. With bit 31 clear,
    ///   an answer: 0 for none, a next hop, or with bit 15 set the number of a deep block. With bits
    ///   31 and 30 = 10, the line, with 11 the cell, whose number is bits 0..26 of the entry plus the
    ///   first K bits of `x`, modulo 2^26, with K in bits 26..30.
    /// * `cells`: entries of four bytes, which are answers or lines.
    /// * `lines`: 32 numbers of two bytes each. As many of the first 15 as are below `x` are
    ///   the place of the answer among the last 16.
    /// * `deep`: of each deep block, eight bytes: its first step, shifted by 32, and how many there are.
    /// * `steps`: two numbers of eight bytes each, high and low half of an address, ascending: from
    ///   there on, the answer at the step's place in `answers`, of two bytes, holds.
    /// * `flat`, of `Flat` tables: of each /32 of 2000::/3 its entry, in place of a page's.
    pub fn sections(&self, layout: Layout6) -> Vec<Section> {
        let mut all = vec![
            self.short(),
            self.version(),
            self.page_of(),
            self.pages(),
            self.cells(),
            self.lines(),
            self.deep(),
            self.steps(),
            self.answers(),
        ];
        if layout == Layout6::Flat {
            all.push(self.flat());
        }
        all
    }

    pub(super) fn short(&self) -> Section {
        Section::of::<AtomicU16>("short", 1 << 16)
    }

    pub(super) fn version(&self) -> Section {
        Section::of::<AtomicU64>("version", 1)
    }

    pub(super) fn page_of(&self) -> Section {
        Section::of::<AtomicU32>("page_of", SLASH20).huge()
    }

    pub(super) fn pages(&self) -> Section {
        Section::of::<AtomicU32>("pages", self.pages * PAGE).huge()
    }

    pub(super) fn flat(&self) -> Section {
        Section::of::<AtomicU32>("flat", FLAT).huge()
    }

    pub(super) fn cells(&self) -> Section {
        Section::of::<AtomicU32>("cells", self.cells).huge()
    }

    pub(super) fn lines(&self) -> Section {
        Section::of::<AtomicU16>("lines", self.lines * LINE).huge()
    }

    pub(super) fn deep(&self) -> Section {
        Section::of::<AtomicU64>("deep", DEEP)
    }

    pub(super) fn steps(&self) -> Section {
        Section::of::<AtomicU64>("steps", 2 * self.steps)
    }

    pub(super) fn answers(&self) -> Section {
        Section::of::<AtomicU16>("answers", self.steps)
    }
}
