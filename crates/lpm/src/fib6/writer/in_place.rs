//! Changes answers in place, one by one: those that belong to one prefix, if the lines there have
//! bounds at both of its ends. Each address sees its answer change once.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::ExclusiveRanges;
use super::leaf_storage::Place;
use crate::fib6::trie::{ANSWERS, BOUNDS, DEEP_BIT, Entry, Trie};
use crate::rib::Subtree;
use crate::{Prefix6, Rib};

/// Addresses of a /32 whose bits 32..48 are in `first..=last`; not all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) slash32: u32,
    first: u32,
    last: u32,
}

/// The place of an answer.
enum Slot<'a> {
    Line(&'a AtomicU16),
    Cell(&'a AtomicU32),
}

impl ExclusiveRanges {
    /// Finds the answers of `prefix` itself, which is at most a /48, without those of the prefixes within.
    pub(super) fn find(&mut self, rib: &Rib<u128>, prefix: Prefix6, subtree: Subtree, trie: &Trie) {
        self.whole.clear();
        self.parts.clear();
        self.rebuild.clear();
        // Numbers of /48s.
        let mut next = slash48(prefix.first());
        rib.outermost(subtree, prefix.len() + 1..=128, &mut |inner| {
            let first = slash48(inner.first());
            if first > next {
                self.add(next, first - 1, trie);
            }
            if inner.len() > 48 {
                self.renew((first >> 16) as u32);
            }
            next = next.max(slash48(inner.last()) + 1);
        });
        let last = slash48(prefix.last());
        if next <= last {
            self.add(next, last, trie);
        }
    }

    /// Takes /48s `first..=last` in.
    fn add(&mut self, first: u64, last: u64, trie: &Trie) {
        const MASK: u64 = 0xffff;
        let whole = first.div_ceil(MASK + 1)..(last + 1) >> 16;
        if whole.start > whole.end {
            return self.add_part(first, last, trie);
        }
        if first & MASK != 0 {
            self.add_part(first, first | MASK, trie);
        }
        if !whole.is_empty() {
            self.whole.push(whole.start as u32..=(whole.end - 1) as u32);
        }
        if last & MASK != MASK {
            self.add_part(last & !MASK, last, trie);
        }
    }

    fn add_part(&mut self, first: u64, last: u64, trie: &Trie) {
        let part = Part {
            slash32: (first >> 16) as u32,
            first: first as u32 & 0xffff,
            last: last as u32 & 0xffff,
        };
        if part.fits(trie) {
            self.parts.push(part);
        } else {
            self.renew(part.slash32);
        }
    }

    fn renew(&mut self, slash32: u32) {
        if self.rebuild.last() != Some(&slash32) {
            self.rebuild.push(slash32);
        }
    }
}

impl Part {
    /// Whether its answers are those of no other addresses.
    fn fits(&self, trie: &Trie) -> bool {
        self.each(trie, |_| ())
    }

    /// Changes the answers of what `fits`.
    pub(super) fn write(&self, trie: &Trie, answer: u16) {
        self.each(trie, |slot| match slot {
            Slot::Line(slot) => slot.store(answer, Ordering::Release),
            Slot::Cell(slot) => slot.store(Entry::answer(answer).0, Ordering::Release),
        });
    }

    /// Calls `visit` with each of its answers, until one belongs to other addresses as well.
    fn each(&self, trie: &Trie, mut visit: impl FnMut(Slot<'_>)) -> bool {
        let entry = Entry(trie.slot(self.slash32).load(Ordering::Relaxed));
        if entry.is_answer() {
            return false;
        }
        if !entry.is_cells() {
            return self.each_of_lines(trie, entry, &mut visit);
        }
        let width = 16 - entry.bits();
        (self.first >> width..=self.last >> width).all(|part| {
            let cell = Place {
                slash32: self.slash32,
                bits: entry.bits(),
                part,
            };
            let start = cell.x();
            let inside = Self {
                first: self.first.max(start),
                last: self.last.min(start | ((1 << width) - 1)),
                ..*self
            };
            let at = entry.target(start) as usize;
            let entry = trie.cell(at as u32);
            if !entry.is_answer() {
                return inside.each_of_lines(trie, entry, &mut visit);
            }
            let all = inside.last - inside.first == (1 << width) - 1;
            visit(Slot::Cell(&trie.cells[at]));
            all && entry.0 & u32::from(DEEP_BIT) == 0
        })
    }

    /// As `each`, in lines chosen by bits of the address.
    fn each_of_lines(&self, trie: &Trie, entry: Entry, visit: &mut impl FnMut(Slot<'_>)) -> bool {
        let width = 16 - entry.bits();
        (self.first >> width..=self.last >> width).all(|part| {
            let (start, end) = (part << width, (part << width) | ((1 << width) - 1));
            let (first, last) = (self.first.max(start), self.last.min(end));
            let line = trie.line(entry.target(start));
            let bound = |at: usize| u32::from(line[at].load(Ordering::Relaxed));
            // A bound is the last number of its answer.
            let place = |x: u32| (0..BOUNDS).filter(|&at| bound(at) < x).count();
            let (from, to) = (place(first), place(last));
            let begins = first == start || from > 0 && bound(from - 1) + 1 == first;
            let ends = last == end || to < BOUNDS && bound(to) == last;
            begins
                && ends
                && line[ANSWERS + from..=ANSWERS + to].iter().all(|slot| {
                    visit(Slot::Line(slot));
                    slot.load(Ordering::Relaxed) & DEEP_BIT == 0
                })
        })
    }
}

fn slash48(address: u128) -> u64 {
    (address >> 80) as u64
}
