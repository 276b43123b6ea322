//! A table made from the content of another one, of which nothing is believed.

use std::sync::atomic::Ordering;

use super::leaf_storage::Place;
use super::{SHORT, Writer};
use crate::fib6::capacity::Capacity6;
use crate::fib6::trie::{ANSWERS, DEEP_BIT, Entry, LINE, PAGE, SLASH20};
use crate::memory::{Contents, Provider, numbers};
use crate::{Error, NextHop, Rib};

/// Maximum number of bits that choose a cell or a line.
const MAX_BITS: u32 = 12;

/// The content of another table.
struct Source<'a> {
    short: &'a [[u8; 2]],
    page_of: &'a [[u8; 4]],
    pages: &'a [[u8; 4]],
    cells: &'a [[u8; 4]],
    lines: &'a [[u8; 2]],
    deep: &'a [[u8; 8]],
    steps: &'a [[u8; 8]],
    answers: &'a [[u8; 2]],
}

impl Writer {
    /// The table of `contents`, whose prefixes are those of `rib`. All that an entry leads to gets another
    /// place.
    pub(in crate::fib6) fn restore(
        rib: &Rib<u128>,
        flat: bool,
        capacity: &Capacity6,
        memory: &mut Provider<'_>,
        contents: &Contents<'_>,
    ) -> Result<Self, Error> {
        let source = Source::of(contents)?;
        let mut writer = Self::new(flat, capacity, memory)?;
        for (cell, &number) in writer.trie.short.iter().zip(source.short) {
            let answer = next_hop(u16::from_le_bytes(number), "short")?;
            cell.store(answer, Ordering::Relaxed);
        }
        let long = rib.iter().filter(|(prefix, _)| prefix.len() > SHORT);
        for (prefix, _) in long {
            writer.make_pages(prefix)?;
        }
        let mut used = vec![false; source.pages.len() / PAGE];
        for (slash20, &page) in (0..).zip(source.page_of) {
            let page = u32::from_le_bytes(page) as usize;
            if page == 0 {
                continue;
            }
            let new = used.get_mut(page).filter(|used| !**used);
            *new.ok_or_else(|| Error::content("page_of", "names a page twice, or none"))? = true;
            writer.copy_page(&source, slash20, page)?;
        }
        Ok(writer)
    }

    fn copy_page(&mut self, source: &Source<'_>, slash20: u32, page: usize) -> Result<(), Error> {
        let entries = &source.pages[page * PAGE..][..PAGE];
        for (slash32, &entry) in (slash20 << 12..).zip(entries) {
            let entry = Entry(u32::from_le_bytes(entry));
            if entry == Entry::answer(0) {
                continue;
            }
            self.make_page(slash20)?;
            let entry = self.copy(source, entry, Place::whole(slash32))?;
            self.fill(slash32..=slash32, entry);
        }
        Ok(())
    }

    fn copy(&mut self, source: &Source<'_>, entry: Entry, place: Place) -> Result<Entry, Error> {
        if entry.is_answer() {
            let answer = u16::try_from(entry.0)
                .map_err(|_| Error::content("pages", "holds an entry of no kind"))?;
            return Ok(Entry::answer(self.copy_answer(source, answer)?));
        }
        let bits = entry.bits();
        if bits > MAX_BITS || bits < place.bits {
            return Err(Error::content("pages", "holds an entry of too many parts"));
        }
        if !entry.is_cells() {
            return self.copy_lines(source, entry, place);
        }
        if place.bits > 0 {
            return Err(Error::content("cells", "leads to other cells"));
        }
        let base = self.storage.cells.allocate(bits)?;
        if self.storage.cells.used() > source.cells.len() {
            return Err(Error::content("cells", "is used twice"));
        }
        for part in 0..1 << bits {
            let cell = Place {
                bits,
                part,
                ..place
            };
            let from = source.cells.get(entry.target(cell.x()) as usize);
            let from =
                from.ok_or_else(|| Error::content("pages", "names a cell that is not there"))?;
            let made = self.copy(source, Entry(u32::from_le_bytes(*from)), cell)?;
            self.trie.cells[(base + part) as usize].store(made.0, Ordering::Relaxed);
        }
        Ok(Entry::cells(base, bits))
    }

    fn copy_lines(
        &mut self,
        source: &Source<'_>,
        entry: Entry,
        place: Place,
    ) -> Result<Entry, Error> {
        let order = entry.bits() - place.bits;
        let from = entry.target(place.x()) as usize;
        let base = self.storage.lines.allocate(order)?;
        if self.storage.lines.used() > source.lines.len() / LINE {
            return Err(Error::content("lines", "is used twice"));
        }
        let lines = source.lines.get(from * LINE..(from + (1 << order)) * LINE);
        let lines =
            lines.ok_or_else(|| Error::content("pages", "names a line that is not there"))?;
        for (to, line) in (base..).zip(lines.chunks_exact(LINE)) {
            for (at, &number) in line.iter().enumerate() {
                let mut number = u16::from_le_bytes(number);
                if at >= ANSWERS {
                    number = self.copy_answer(source, number)?;
                }
                self.trie.line(to)[at].store(number, Ordering::Relaxed);
            }
        }
        Ok(Entry::lines(base, entry.bits(), place.part << order))
    }

    fn copy_answer(&mut self, source: &Source<'_>, answer: u16) -> Result<u16, Error> {
        if answer & DEEP_BIT == 0 {
            return Ok(answer);
        }
        let steps = source.block(answer ^ DEEP_BIT)?;
        let block = self.storage.block(&self.trie, steps.len())?;
        if self.storage.steps.used() > source.answers.len() {
            return Err(Error::content("steps", "is used twice"));
        }
        let (start, _) = self.trie.deep_block(block.into());
        for (at, (from, answer)) in (start..).zip(steps) {
            let answer = next_hop(answer, "answers")?;
            self.trie.write_step(at, from, answer);
        }
        Ok(DEEP_BIT | block)
    }
}

impl<'a> Source<'a> {
    fn of(contents: &Contents<'a>) -> Result<Self, Error> {
        let source = Self {
            short: numbers(contents, "short")?,
            page_of: numbers(contents, "page_of")?,
            pages: numbers(contents, "pages")?,
            cells: numbers(contents, "cells")?,
            lines: numbers(contents, "lines")?,
            deep: numbers(contents, "deep")?,
            steps: numbers(contents, "steps")?,
            answers: numbers(contents, "answers")?,
        };
        if source.short.len() != 1 << SHORT {
            return Err(Error::content("short", "has not a number for each /16"));
        }
        if source.page_of.len() != SLASH20 {
            return Err(Error::content("page_of", "has not a number for each /20"));
        }
        Ok(source)
    }

    /// The steps of a deep block.
    fn block(
        &self,
        block: u16,
    ) -> Result<impl ExactSizeIterator<Item = (u128, u16)> + use<'a>, Error> {
        let range = self.deep.get(usize::from(block)).map(|&range| {
            let range = u64::from_le_bytes(range);
            let start = (range >> 32) as usize;
            start..start + (range & 0xffff_ffff) as usize
        });
        let found = range.filter(|range| !range.is_empty()).and_then(|range| {
            let steps = self.steps.as_chunks::<2>().0.get(range.clone())?;
            Some(steps.iter().zip(self.answers.get(range)?))
        });
        let found =
            found.ok_or_else(|| Error::content("deep", "names steps that are not there"))?;
        Ok(found.map(|(&[high, low], &answer)| {
            let [high, low] = [high, low].map(|half| u128::from(u64::from_le_bytes(half)));
            (high << 64 | low, u16::from_le_bytes(answer))
        }))
    }
}

/// A next hop's number, or none.
fn next_hop(number: u16, section: &'static str) -> Result<u16, Error> {
    if number > NextHop::MAX {
        return Err(Error::content(
            section,
            "holds a number that is not a next hop",
        ));
    }
    Ok(number)
}
