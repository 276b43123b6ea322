//! Lookup in batches: each stage runs over the whole batch and prefetches for the next, so that
//! cache misses overlap.
//!
//! For each root in order of its best rule: hash and load entries (`front`), go down nodes, test
//! lines. A packet leaves the batch when no later root can beat its match.

#![expect(
    clippy::cast_possible_truncation,
    reason = "halves of entries, and packets of a batch"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod front;
#[cfg(target_arch = "x86_64")]
mod front_avx512;
mod portable;
mod scan_live;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::with_simd;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::with_simd;
pub(crate) use scan_live::first_live;

use crate::Simd;
use crate::address::Address;
use crate::line::Line;
use crate::region::lane;
use crate::rule::{Key, NONE};
use crate::table::{BOUND_WORDS, FANOUT, LINE_BITS, LINE_MASK, NODE, Node, Table, kind};

/// Packets in a batch.
pub const BATCH: usize = 256;

/// The operations that differ between instruction sets.
trait Operations<A: Address> {
    /// The bits of a word that a mask names, moved together.
    fn extract(word: u64, mask: u64) -> u64;
    /// [`Line::first`].
    fn first(line: &A::Line, key: &A::Words) -> u32;
    /// The number of bounds, four to a word, that are at most `value`.
    fn count_reached(bounds: &[u64; BOUND_WORDS], value: u16) -> u32;
}

/// The state of a batch.
struct Work<A: Address> {
    keys: [A::Words; BATCH],
    /// The order of the best rule found for each packet.
    best: [u32; BATCH + 16],
    leaves: List,
    nodes: List,
    /// Places of the entries to read next.
    places: [u32; BATCH],
}

/// Packets by their number, and what to look at for each.
struct List {
    packets: [u32; BATCH + 16],
    references: [u32; BATCH + 16],
    len: usize,
}

impl List {
    const fn new() -> Self {
        Self {
            packets: [0; BATCH + 16],
            references: [0; BATCH + 16],
            len: 0,
        }
    }

    /// Writes behind the end, which is `len` (a register's, not memory's, in a loop); the element
    /// counts if `keep`.
    #[inline(always)]
    fn push(&mut self, len: &mut usize, packet: u32, reference: u32, keep: bool) {
        self.packets[*len % BATCH] = packet;
        self.references[*len % BATCH] = reference;
        *len += usize::from(keep);
    }
}

impl<A: Address> Work<A> {
    fn new() -> Self {
        Self {
            keys: [A::Words::default(); BATCH],
            best: [NONE; BATCH + 16],
            leaves: List::new(),
            nodes: List::new(),
            places: [0; BATCH],
        }
    }
}

/// Writes the order of each key's first rule, or [`NONE`]. `simd` must be present.
///
/// # Panics
/// When the slices differ in length.
pub(crate) fn classify<A: Address>(
    table: &Table<A>,
    simd: Simd,
    keys: &[Key<A>],
    found: &mut [u32],
) {
    assert!(keys.len() == found.len(), "one answer for each key");
    match simd {
        Simd::Portable => portable::classify(table, keys, found),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => avx2::classify(table, keys, found),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => A::classify_avx512(table, keys, found),
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable::classify(table, keys, found),
    }
}

/// The whole of a lookup, for instruction sets without a front of their own.
#[inline(always)]
fn all_batches<A: Address, O: Operations<A>>(table: &Table<A>, keys: &[Key<A>], found: &mut [u32]) {
    let mut work = Work::<A>::new();
    for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
        front::batch::<A, O>(table, &mut work, keys);
        found.copy_from_slice(&work.best[..keys.len()]);
    }
}

/// Asks for a cache line that will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// An element that the build says is there.
#[inline(always)]
fn at<T>(array: &[T], index: usize) -> &T {
    debug_assert!(index < array.len(), "{index} of {}", array.len());
    // SAFETY: indices come from roots, nodes, entries and references, which the build fills with
    // places it got from the same array; nothing shrinks.
    unsafe { array.get_unchecked(index) }
}

/// Takes the packets of `nodes` down to leaves, which it adds to `leaves`.
#[inline(always)]
fn descend<A: Address, O: Operations<A>>(table: &Table<A>, work: &mut Work<A>) {
    let (nodes, entries) = (table.nodes.as_slice(), table.entries.as_slice());
    while work.nodes.len > 0 {
        let count = std::mem::take(&mut work.nodes.len);
        for &reference in &work.nodes.references[..count] {
            prefetch(&raw const *at(nodes, (reference & !NODE) as usize));
        }
        let mut going = 0;
        for number in 0..count {
            let packet = work.nodes.packets[number];
            let node = at(nodes, (work.nodes.references[number] & !NODE) as usize);
            let key = &work.keys[packet as usize % BATCH];
            let child = if node.kind == kind::CUT {
                cut::<A, O>(node, key)
            } else if node.kind == kind::SPLIT {
                split::<A, O>(entries, node, key)
            } else {
                let best = &mut work.best[packet as usize % BATCH];
                long_leaf::<A, O>(table, node, key, best);
                continue;
            };
            prefetch(&raw const *at(entries, child as usize));
            work.nodes.packets[going % BATCH] = packet;
            work.places[going % BATCH] = child;
            going += 1;
        }
        let (mut leaves, mut inner_nodes) = (work.leaves.len, 0);
        for number in 0..going {
            let packet = work.nodes.packets[number];
            let entry = *at(entries, work.places[number] as usize);
            let reference = (entry >> 32) as u32;
            let open = beats(table.shift, entry, work.best[packet as usize % BATCH]);
            let inner = reference & NODE != 0;
            let (to_leaves, to_nodes) = (open & !inner, open & inner);
            work.leaves.push(&mut leaves, packet, reference, to_leaves);
            work.nodes
                .push(&mut inner_nodes, packet, reference, to_nodes);
        }
        work.leaves.len = leaves;
        work.nodes.len = inner_nodes;
    }
}

/// Whether something below the entry can come before the order `best`.
#[inline(always)]
fn beats(shift: u8, entry: u64, best: u32) -> bool {
    let bound = (entry as u32 >> crate::table::FILTER_BITS) << (shift & 31);
    (entry != 0) & (bound < best)
}

#[inline(always)]
fn cut<A: Address, O: Operations<A>>(node: &Node, key: &A::Words) -> u32 {
    let key = key.as_ref();
    let first = O::extract(*at(key, usize::from(node.words[0])), node.masks[0]);
    let second = O::extract(*at(key, usize::from(node.words[1])), node.masks[1]);
    node.base + (first | second << (node.shift & 63)) as u32
}

#[inline(always)]
fn split<A: Address, O: Operations<A>>(entries: &[u64], node: &Node, key: &A::Words) -> u32 {
    let value = lane(key.as_ref(), usize::from(node.words[0]));
    // SAFETY: a split's node names the first of its bounds, all of which are entries.
    let bounds = unsafe { &*entries.as_ptr().add(node.base as usize).cast() };
    let place = O::count_reached(bounds, value);
    debug_assert!((1..=FANOUT as u32).contains(&place));
    node.base + BOUND_WORDS as u32 + place - 1
}

/// Line after line until one matches or none can come first any more.
#[inline(always)]
fn long_leaf<A: Address, O: Operations<A>>(
    table: &Table<A>,
    node: &Node,
    key: &A::Words,
    best: &mut u32,
) {
    let lines = table.lines.as_slice();
    let start = node.base as usize;
    for index in start..start + node.masks[0] as usize {
        let line = at(lines, index);
        if line.order(0) >= *best {
            return;
        }
        let order = O::first(line, key);
        if order != NONE {
            *best = order.min(*best);
            return;
        }
    }
}

/// Tests the packets of `leaves`, one line of each in a round.
#[inline(always)]
fn test<A: Address, O: Operations<A>>(table: &Table<A>, work: &mut Work<A>) {
    let lines = table.lines.as_slice();
    let leaves = &mut work.leaves;
    for &reference in &leaves.references[..leaves.len] {
        prefetch(&raw const *at(lines, (reference & LINE_MASK) as usize));
    }
    let mut left = leaves.len;
    while left > 0 {
        let count = std::mem::take(&mut left);
        for number in 0..count {
            let (packet, reference) = (leaves.packets[number], leaves.references[number]);
            let line = at(lines, (reference & LINE_MASK) as usize);
            let order = O::first(line, &work.keys[packet as usize % BATCH]);
            let best = &mut work.best[packet as usize % BATCH];
            *best = order.min(*best);
            let next = reference.wrapping_add(1).wrapping_sub(1 << LINE_BITS);
            prefetch(lines.as_ptr().wrapping_add((next & LINE_MASK) as usize));
            let more = (order == NONE) & (next >> LINE_BITS != 0);
            leaves.push(&mut left, packet, next, more);
        }
    }
}
