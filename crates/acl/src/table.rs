//! The classifier's memory: four flat arrays that name each other's elements by index only.
//!
//! Roots are hash tables of entries, without stored keys: a leaf tests the whole rule. An entry is
//! a bound on what lies below it and a reference to a node, which has more entries, or to the lines
//! of a leaf.

use sys::huge::Zeroable;

use crate::address::Address;
use crate::array::Array;
use crate::error::Error;
use crate::line::{Line4, Line6};

// SAFETY: integers.
unsafe impl Zeroable for Line4 {}
// SAFETY: integers.
unsafe impl Zeroable for Line6 {}

/// log2 of a map's words.
pub(crate) const MAP_WORD_BITS: u32 = 6;

/// A bit for each value of a hash's first eleven bits that a root's rules have.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Map(pub(crate) [u32; 1 << MAP_WORD_BITS]);

impl Map {
    pub(crate) fn of(hashes: impl Iterator<Item = u32>) -> Self {
        let mut map = Self([0; 1 << MAP_WORD_BITS]);
        for hash in hashes {
            map.0[(hash >> (32 - MAP_WORD_BITS)) as usize] |= Self::bit(hash);
        }
        map
    }

    pub(crate) fn contains(&self, hash: u32) -> bool {
        self.0[(hash >> (32 - MAP_WORD_BITS)) as usize] & Self::bit(hash) != 0
    }

    fn bit(hash: u32) -> u32 {
        1 << (hash >> (32 - MAP_WORD_BITS - 5) & 31)
    }
}

/// One hash table: every rule in it has at least these many bits in its prefixes.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// The prefix lengths of the source and the destination address.
    pub(crate) lengths: (u8, u8),
    /// log2 of its entries.
    pub(crate) bits: u8,
    pub(crate) base: u32,
    /// The lowest order in it.
    pub(crate) best: u32,
    /// A map, if it rules out enough packets to be worth its time.
    pub(crate) map: Option<Box<Map>>,
}

/// Bits of the low word of an entry that hold a filter of the rules' hashes.
pub(crate) const FILTER_BITS: u32 = 8;
/// Bits of a leaf's reference that name its first line; those above count its lines.
pub(crate) const LINE_BITS: u32 = 26;
pub(crate) const LINE_MASK: u32 = (1 << LINE_BITS) - 1;
/// Set in a reference to a node.
pub(crate) const NODE: u32 = 1 << 31;
/// Lines of the longest leaf that an entry can name.
pub(crate) const MAX_LEAF_LINES: usize = (1 << (31 - LINE_BITS)) - 1;

/// A reference, its lowest order (rounded down to 24 bits), and one bit for each hash below.
/// Zero is an empty entry: its filter lets nothing pass.
pub(crate) fn entry(best: u32, shift: u8, filter: u8, reference: u32) -> u64 {
    let best = (best >> shift).min(u32::MAX >> FILTER_BITS);
    u64::from(best << FILTER_BITS | u32::from(filter)) | u64::from(reference) << 32
}

/// The bit of a filter that stands for a hash.
#[inline(always)]
pub(crate) fn filter(hash: u32) -> u32 {
    1 << (hash >> 4 & 7)
}

/// The kinds of inner nodes.
pub(crate) mod kind {
    /// Chosen bits of two words of the key number the child.
    pub(crate) const CUT: u8 = 0;
    /// The place of one lane's value among 63 bounds numbers the child.
    pub(crate) const SPLIT: u8 = 1;
    /// A leaf that is too long for an entry to name.
    pub(crate) const LONG: u8 = 2;
}

/// Half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Node {
    /// Bits of the two words; of a long leaf, the first is its number of lines.
    pub(crate) masks: [u64; 2],
    /// The first child, the first bound, or the first line.
    pub(crate) base: u32,
    pub(crate) kind: u8,
    /// The two words, or the lane.
    pub(crate) words: [u8; 2],
    /// Bits set in the first mask.
    pub(crate) shift: u8,
}

// SAFETY: integers.
unsafe impl Zeroable for Node {}

/// Children of a split, and words that its bounds take.
pub(crate) const FANOUT: usize = 64;
pub(crate) const BOUND_WORDS: usize = FANOUT / 4;

#[derive(Debug)]
pub struct Table<A: Address> {
    /// In ascending order of their best rules.
    pub(crate) roots: Vec<Root>,
    pub(crate) entries: Array<u64>,
    pub(crate) nodes: Array<Node>,
    pub(crate) lines: Array<A::Line>,
    /// Bits that an entry's bound leaves out.
    pub(crate) shift: u8,
}

impl<A: Address> Table<A> {
    /// Room for what `regions` boxes can need at most.
    pub(crate) fn reserve(regions: usize, highest: u32) -> Result<Self, Error> {
        let entries = Array::reserve(128 * regions + (1 << 20))?;
        let nodes = Array::reserve(8 * regions + (1 << 16))?;
        let lines = Array::reserve((96 * regions + (1 << 20)).min(LINE_MASK as usize))?;
        if regions > 4096 {
            entries.prefer_huge();
            nodes.prefer_huge();
            lines.prefer_huge();
        }
        let mut shift = 0;
        while highest >> shift >= u32::MAX >> FILTER_BITS {
            shift += 1;
        }
        Ok(Self {
            roots: Vec::new(),
            entries,
            nodes,
            lines,
            shift,
        })
    }

    /// Whether what is left of a list should do without further nodes: there is still room for its lines.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.entries.is_half_full() || self.nodes.is_half_full() || self.lines.is_half_full()
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        let roots = self.roots.len() * size_of::<Root>();
        roots + self.entries.bytes() + self.nodes.bytes() + self.lines.bytes()
    }
}
