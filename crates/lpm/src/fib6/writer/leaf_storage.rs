//! The structures below a /32: lines, cells and blocks of prefixes longer than /48, built from the
//! prefixes there in separate space.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

use std::sync::atomic::Ordering;

use super::SHORT;
use crate::fib6::buddy::BuddyAllocator;
use crate::fib6::lines::{self, Mark, min_bits, parts};
use crate::fib6::sweep::{Step, sweep};
use crate::fib6::trie::{ANSWERS, DEEP, DEEP_BIT, Entry, LINE, Trie};
use crate::{Error, NextHop, Prefix6, Rib};

/// Prefixes longer than this are in deep blocks.
const LINE_BITS: u8 = 48;
/// Maximum number of deep blocks of a /32 or a cell. One that would need more is a single block.
const MAX_DEEP_BLOCKS: usize = 64;
/// Maximum number of bits that choose a cell.
const MAX_CELL_BITS: u32 = 12;
/// Bytes of a step, its answer included.
const STEP: usize = 18;

/// Allocates the arrays' space.
#[derive(Debug)]
pub(super) struct LeafStorage {
    pub(super) lines: BuddyAllocator,
    pub(super) cells: BuddyAllocator,
    pub(super) steps: BuddyAllocator,
    /// Numbers of deep blocks not in use.
    deep: Vec<u16>,
    /// Pieces allocated for an entry that is not complete yet.
    uncommitted: Vec<Piece>,
}

/// Something that a reader may still look at after it was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Lines { base: u32, order: u32 },
    Cells { base: u32, order: u32 },
    Deep(u16),
}

/// A part of a /32: the `part`th of `2^bits`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slash32: u32,
    pub(super) bits: u32,
    pub(super) part: u32,
}

impl Place {
    pub(super) fn whole(slash32: u32) -> Self {
        Self {
            slash32,
            bits: 0,
            part: 0,
        }
    }

    /// Bits 32..48 of its first address.
    pub(super) fn x(self) -> u32 {
        self.part << (16 - self.bits)
    }

    fn prefix(self) -> Prefix6 {
        let first = u128::from(self.slash32) << 96 | u128::from(self.x()) << 80;
        // At most 12 bits.
        Prefix6::cut(first, 32 + self.bits as u8)
    }
}

impl LeafStorage {
    pub(super) fn new(trie: &Trie) -> Self {
        Self {
            lines: BuddyAllocator::new("lines", trie.lines.len() / LINE),
            cells: BuddyAllocator::new("cells", trie.cells.len()),
            steps: BuddyAllocator::new("prefixes longer than /48", trie.answers.len()),
            deep: (0..DEEP as u16).rev().collect(),
            uncommitted: Vec::new(),
        }
    }

    /// The entry of a /32 and, where it is made of cells, how many marks it was made for.
    pub(super) fn slash32(
        &mut self,
        trie: &Trie,
        rib: &Rib<u128>,
        slash32: u32,
    ) -> Result<(Entry, usize), Error> {
        let place = Place::whole(slash32);
        let made = self.marks(trie, rib, place).and_then(|marks| {
            let entry = if is_crowded(&marks) {
                self.cells(trie, &marks, slash32)?
            } else {
                self.lines(trie, &marks, place)?
            };
            Ok((entry, marks.len()))
        });
        self.complete(trie, made)
    }

    /// The entries of cells, one after the other.
    pub(super) fn parts(
        &mut self,
        trie: &Trie,
        rib: &Rib<u128>,
        places: impl Iterator<Item = Place>,
    ) -> Result<Vec<Entry>, Error> {
        let entries = places.map(|place| {
            let marks = self.marks(trie, rib, place)?;
            self.lines(trie, &marks, place)
        });
        let made = entries.collect();
        self.complete(trie, made)
    }

    /// Frees a piece that no reader can reach any more.
    pub(super) fn free(&mut self, trie: &Trie, piece: Piece) {
        match piece {
            Piece::Lines { base, order } => self.lines.free(base, order),
            Piece::Cells { base, order } => self.cells.free(base, order),
            Piece::Deep(block) => {
                let (start, len) = trie.deep_block(block.into());
                // The size that was allocated for them: see `deep`.
                self.steps.free(start as u32, order(len));
                self.deep.push(block);
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let deep = (DEEP - self.deep.len()) * size_of::<u64>();
        let lines = self.lines.used() * LINE * size_of::<u16>();
        lines + self.cells.used() * size_of::<u32>() + self.steps.used() * STEP + deep
    }

    /// Frees the pieces allocated for an entry that could not be completed.
    fn complete<T>(&mut self, trie: &Trie, made: Result<T, Error>) -> Result<T, Error> {
        for piece in std::mem::take(&mut self.uncommitted) {
            if made.is_err() {
                self.free(trie, piece);
            }
        }
        made
    }

    /// The answers in a place by bits 32..48.
    fn marks(&mut self, trie: &Trie, rib: &Rib<u128>, place: Place) -> Result<Vec<Mark>, Error> {
        let region = place.prefix();
        let outside = rib.parent(region).map_or(0, answer);
        let routes: Vec<_> = rib.covered(region).collect();
        let groups = routes.chunk_by(|&(a, _), &(b, _)| {
            let deep = a.len() > LINE_BITS && b.len() > LINE_BITS;
            deep && slash48(a) == slash48(b)
        });
        let deep = groups
            .clone()
            .filter(|group| group[0].0.len() > LINE_BITS)
            .count();
        let mut prefixes = Vec::with_capacity(routes.len());
        if deep > MAX_DEEP_BLOCKS {
            prefixes.push((region, self.deep(trie, region, outside, &routes)?));
        } else {
            for group in groups {
                let (first, hop) = group[0];
                if first.len() <= LINE_BITS {
                    prefixes.push((first, hop.get()));
                    continue;
                }
                let around = slash48(first);
                let outside = rib.get(around).map(NextHop::get);
                let outside = outside.or_else(|| rib.parent(around).map(answer));
                let block = self.deep(trie, around, outside.unwrap_or_default(), group)?;
                prefixes.push((around, block));
            }
        }
        let mut steps = Vec::new();
        sweep(region, outside, prefixes.into_iter(), &mut steps);
        Ok(steps.iter().map(|&step| mark(step)).collect())
    }

    /// The lines, or the one answer, of a place.
    fn lines(&mut self, trie: &Trie, marks: &[Mark], place: Place) -> Result<Entry, Error> {
        if let [mark] = marks {
            return Ok(Entry::answer(mark.answer));
        }
        let bits = min_bits(marks, place.bits);
        let order = bits - place.bits;
        let base = self.lines.allocate(order)?;
        self.uncommitted.push(Piece::Lines { base, order });
        let from = place.part << order;
        for (at, part) in (base..).zip(parts(marks, bits, from, 1 << order)) {
            lines::write(trie.line(at), &part);
        }
        Ok(Entry::lines(base, bits, from))
    }

    fn cells(&mut self, trie: &Trie, marks: &[Mark], slash32: u32) -> Result<Entry, Error> {
        let bits = cheapest(marks);
        let base = self.cells.allocate(bits)?;
        self.uncommitted.push(Piece::Cells { base, order: bits });
        for (part, cell) in (0..).zip(parts(marks, bits, 0, 1 << bits)) {
            let place = Place {
                slash32,
                bits,
                part,
            };
            let mut marks = vec![Mark {
                x: place.x(),
                answer: cell.first,
            }];
            marks.extend(cell.bounds);
            let entry = self.lines(trie, &marks, place)?;
            trie.cells[(base + part) as usize].store(entry.0, Ordering::Relaxed);
        }
        Ok(Entry::cells(base, bits))
    }

    /// A block that is searched step by step; returns it as an answer.
    fn deep(
        &mut self,
        trie: &Trie,
        region: Prefix6,
        outside: u16,
        routes: &[(Prefix6, NextHop)],
    ) -> Result<u16, Error> {
        let mut steps = Vec::new();
        let prefixes = routes.iter().map(|&(prefix, hop)| (prefix, hop.get()));
        sweep(region, outside, prefixes, &mut steps);
        let block = self.block(trie, steps.len())?;
        self.uncommitted.push(Piece::Deep(block));
        let (start, _) = trie.deep_block(block.into());
        for (at, &(from, answer)) in (start..).zip(&steps) {
            trie.write_step(at, from, answer);
        }
        Ok(DEEP_BIT | block)
    }

    /// A deep block with room for `steps` steps, which are not written yet.
    pub(super) fn block(&mut self, trie: &Trie, steps: usize) -> Result<u16, Error> {
        let Some(&block) = self.deep.last() else {
            return Err(Error::Full {
                what: "/48s with prefixes longer than /48",
            });
        };
        let start = self.steps.allocate(order(steps))?;
        self.deep.pop();
        let range = u64::from(start) << 32 | steps as u64;
        trie.deep[usize::from(block)].store(range, Ordering::Release);
        Ok(block)
    }

    /// The number of deep blocks that were ever in use.
    pub(super) fn blocks(&self) -> usize {
        // The numbers not in use are the largest ones until some are given back.
        let used = (0..).zip(self.deep.iter());
        DEEP - used
            .take_while(|&(at, &block)| usize::from(block) == DEEP - 1 - at)
            .count()
    }
}

/// All that an entry leads to.
pub(super) fn pieces(trie: &Trie, entry: Entry, place: Place, visit: &mut impl FnMut(Piece)) {
    if entry.is_answer() {
        return deep_piece(entry.0 as u16, visit);
    }
    let bits = entry.bits();
    let base = entry.target(place.x());
    let order = bits - place.bits;
    if entry.is_cells() {
        visit(Piece::Cells { base, order });
        for part in 0..1 << bits {
            let cell = Place {
                bits,
                part,
                ..place
            };
            pieces(trie, trie.cell(base + part), cell, visit);
        }
        return;
    }
    visit(Piece::Lines { base, order });
    for line in base..base + (1 << order) {
        for answer in &trie.line(line)[ANSWERS..] {
            deep_piece(answer.load(Ordering::Relaxed), visit);
        }
    }
}

fn deep_piece(answer: u16, visit: &mut impl FnMut(Piece)) {
    if answer & DEEP_BIT != 0 {
        visit(Piece::Deep(answer ^ DEEP_BIT));
    }
}

/// Whether lines chosen by bits of the address would be mostly empty.
fn is_crowded(marks: &[Mark]) -> bool {
    let lines = 1 << min_bits(marks, 0);
    let full = marks.len().div_ceil(16);
    lines > 1 && lines > 3 * full
}

/// The bits for which cells and lines take the least space. A line counts as 64 cells: few lookups
/// should need both.
fn cheapest(marks: &[Mark]) -> u32 {
    let cost = |bits: &u32| {
        let cells = parts(marks, *bits, 0, 1 << bits).enumerate();
        let lines = cells
            .filter(|(_, cell)| !cell.bounds.is_empty())
            .map(|(part, cell)| {
                let first = Mark {
                    x: (part as u32) << (16 - bits),
                    answer: cell.first,
                };
                let marks: Vec<_> = std::iter::once(first)
                    .chain(cell.bounds.iter().copied())
                    .collect();
                64 << (min_bits(&marks, *bits) - bits)
            });
        (1 << bits) + lines.sum::<usize>()
    };
    (1..=MAX_CELL_BITS)
        .min_by_key(cost)
        .unwrap_or(MAX_CELL_BITS)
}

/// The answer outside of a region: prefixes of at most /16 are in another table.
fn answer((prefix, hop): (Prefix6, NextHop)) -> u16 {
    if prefix.len() > SHORT { hop.get() } else { 0 }
}

fn mark((at, answer): Step) -> Mark {
    Mark {
        x: (at >> 80) as u32 & 0xffff,
        answer,
    }
}

fn slash48(prefix: Prefix6) -> Prefix6 {
    Prefix6::cut(prefix.first(), LINE_BITS)
}

/// The logarithm of the size of the smallest run that holds `len` items.
fn order(len: usize) -> u32 {
    len.next_power_of_two().trailing_zeros()
}
