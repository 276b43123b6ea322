//! The capacity of a table: its arrays and their lengths.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};

use super::Layout4;
use super::dir24::{BLOCKS, GROUP, PAD, SLASH16};
use super::entry::Entry;
use crate::Rib;
use crate::memory::Section;

/// Maximum number of /24s with longer prefixes.
const MAX_GROUPS: usize = 1 << 20;

/// How many /24s with prefixes longer than /24 a table can hold (groups of 256 entries), and how many
/// /16s can have such /24s (pages of 256 numbers of 4 bytes). Both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity4 {
    groups: usize,
    pages: usize,
}

impl Default for Capacity4 {
    /// 2^20 groups and a page for each /16: address space, of which what is used becomes memory.
    fn default() -> Self {
        Self {
            groups: MAX_GROUPS,
            pages: SLASH16,
        }
    }
}

impl Capacity4 {
    /// Rounds up to powers of two; no more than by default.
    pub fn new(groups: usize, pages: usize) -> Self {
        Self {
            groups: groups.clamp(1, MAX_GROUPS).next_power_of_two(),
            pages: pages.clamp(1, SLASH16).next_power_of_two(),
        }
    }

    /// At least `times` what the prefixes need.
    pub fn of(rib: &Rib<u32>, times: usize) -> Self {
        let long = rib.iter().filter(|(prefix, _)| prefix.len() > 24);
        let mut blocks: Vec<_> = long.map(|(prefix, _)| prefix.first() >> 8).collect();
        blocks.dedup();
        let groups = blocks.len();
        blocks.dedup_by_key(|block| *block >> 8);
        Self::new(
            groups.saturating_mul(times),
            blocks.len().saturating_mul(times),
        )
    }

    /// Maximum number of groups.
    pub fn group_count(&self) -> usize {
        self.groups
    }

    /// Maximum number of pages.
    pub fn page_count(&self) -> usize {
        self.pages
    }

    /// The arrays of a table, all of which have to be there:
    ///
    /// * `first`: of each /24 an entry of one byte or two (by the layout), and 4 bytes or words of
    ///   padding. An entry is a next hop, 0 for none, or all ones: see the group. A table of `Mixed` has
    ///   entries of two bytes, and in `projection` one byte each, all ones for "see `first`".
    /// * `page_of`: of each /16, two bytes, the number of its page.
    /// * `pages`: 256 numbers of four bytes each: of each /24 of the page's /16, its group.
    /// * `groups`: 256 entries each: of each address of the group's /24.
    pub fn sections(&self, layout: Layout4) -> Vec<Section> {
        let [first, groups] = match layout {
            Layout4::Bytes => [self.first::<u8>(), self.groups::<u8>()],
            Layout4::Mixed | Layout4::Words => [self.first::<u16>(), self.groups::<u16>()],
        };
        let mut all = vec![first, self.page_of(), self.pages(), groups];
        if layout == Layout4::Mixed {
            all.push(self.projection());
        }
        all
    }

    pub(super) fn first<E: Entry>(&self) -> Section {
        Section::of::<E::Cell>("first", BLOCKS + PAD).huge()
    }

    pub(super) fn projection(&self) -> Section {
        Section::of::<AtomicU8>("projection", BLOCKS + PAD).huge()
    }

    pub(super) fn page_of(&self) -> Section {
        Section::of::<AtomicU16>("page_of", SLASH16)
    }

    pub(super) fn pages(&self) -> Section {
        Section::of::<AtomicU32>("pages", self.pages * GROUP)
    }

    pub(super) fn groups<E: Entry>(&self) -> Section {
        Section::of::<E::Cell>("groups", self.groups * GROUP)
    }
}
