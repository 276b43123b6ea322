//! Keeps the tables equal to the prefixes. What changes below a /32 is made anew in unused space and
//! then put in place by one store.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

mod in_place;
mod leaf_storage;
mod restore;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::{HashMap, HashMapExt};
use rcu::{GracePeriod, Reader, Reclaimer};

use super::buddy::BuddyAllocator;
use super::capacity::Capacity6;
use super::trie::{ANSWERS, DEEP_BIT, Entry, FLAT, LINE, PAGE, SLASH20, Trie};
use crate::memory::{Content, Contents, Provider};
use crate::rib::Subtree;
use crate::{Error, NextHop, Prefix6, Rib};
use in_place::Part;
use leaf_storage::{LeafStorage, Piece, Place};
use restore::{Source, next_hop};

/// Prefixes up to this length are in the table by the first 16 bits.
const SHORT: u8 = 16;
/// The maximum number of bits that choose a cell or a line.
const MAX_BITS: u32 = 12;
/// /32s of one huge page of the flat array.
const HUGE: usize = (2 << 20) / size_of::<u32>();
/// The minimum number of changes to cells before their number is decided again.
const MIN_CHANGES: usize = 64;
/// Withdrawals from a /32 after which it is rebuilt, because withdrawn prefixes leave bounds in its lines.
const MAX_WITHDRAWALS: u32 = 64;
/// Retired pieces after which the readers' epochs are read.
const RECLAIM_BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Writer {
    trie: Arc<Trie>,
    storage: LeafStorage,
    /// Pages in use, the one without prefixes included.
    pages: usize,
    reclaimer: Reclaimer<Piece>,
    /// For each /32 that is made of cells, the changes until their number is decided again.
    changes: HashMap<u32, usize>,
    /// For each /32, the withdrawals since it was built.
    withdrawals: HashMap<u32, u32>,
    /// Whether a huge page of the flat array was written.
    touched: Vec<bool>,
    /// The addresses that only the prefix being changed covers. It is a field to reuse its memory.
    exclusive: ExclusiveRanges,
}

/// The addresses of a prefix that no longer prefix within it covers.
#[derive(Debug, Default)]
struct ExclusiveRanges {
    /// Whole /32s.
    whole: Vec<RangeInclusive<u32>>,
    /// Parts of /32s.
    parts: Vec<Part>,
    /// /32s that have to be rebuilt because their answers cannot be changed in place, ascending.
    rebuild: Vec<u32>,
}

impl Writer {
    /// A table without prefixes.
    fn new(flat: bool, capacity: &Capacity6, memory: &mut Provider<'_>) -> Result<Self, Error> {
        let trie = Trie::new(flat, capacity, memory)?;
        Ok(Self {
            storage: LeafStorage::new(&trie),
            trie: Arc::new(trie),
            pages: 1,
            reclaimer: Reclaimer::new(),
            changes: HashMap::new(),
            withdrawals: HashMap::new(),
            touched: vec![false; FLAT / HUGE],
            exclusive: ExclusiveRanges::default(),
        })
    }

    pub(super) fn build(
        rib: &Rib<u128>,
        flat: bool,
        capacity: &Capacity6,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let mut writer = Self::new(flat, capacity, memory)?;
        // Shorter prefixes come first, so that longer ones overwrite their part.
        let mut divided = None;
        for (prefix, hop) in rib {
            let slash32 = slash32(prefix.first());
            if prefix.len() <= SHORT {
                let all = slash16(prefix.first())..=slash16(prefix.last());
                for cell in &writer.trie.short[all] {
                    cell.store(hop.get(), Ordering::Relaxed);
                }
            } else if prefix.len() <= 32 {
                writer.make_pages(prefix)?;
                writer.fill(slash32..=last32(prefix), Entry::answer(hop.get()));
            } else if divided.replace(slash32) != Some(slash32) {
                writer.make_pages(prefix)?;
                let entry = writer.make(rib, slash32)?;
                writer.fill(slash32..=slash32, entry);
            }
        }
        Ok(writer)
    }

    pub(super) fn insert(
        &mut self,
        rib: &mut Rib<u128>,
        prefix: Prefix6,
        hop: NextHop,
    ) -> Result<Option<NextHop>, Error> {
        if prefix.len() > SHORT {
            self.make_pages(prefix)?;
        }
        let change = rib.insert_route(prefix, hop);
        if change.before == Some(hop) {
            return Ok(change.before);
        }
        if let Err(error) = self.apply(rib, prefix, change.subtree, hop.get()) {
            match change.before {
                Some(before) => rib.insert_route(prefix, before).before,
                None => rib.remove(prefix),
            };
            return Err(error);
        }
        Ok(change.before)
    }

    pub(super) fn remove(
        &mut self,
        rib: &mut Rib<u128>,
        prefix: Prefix6,
    ) -> Result<Option<NextHop>, Error> {
        let Some(change) = rib.remove_route(prefix) else {
            return Ok(None);
        };
        let same_table = |&(len, _): &(u8, NextHop)| prefix.len() <= SHORT || len > SHORT;
        let above = change.above.filter(same_table).map(|(_, hop)| hop);
        if let Err(error) = self.apply(rib, prefix, change.subtree, NextHop::code(above)) {
            if let Some(before) = change.before {
                rib.insert(prefix, before);
            }
            return Err(error);
        }
        Ok(change.before)
    }

    pub(super) fn trie(&self) -> Arc<Trie> {
        Arc::clone(&self.trie)
    }

    pub(super) fn reader(&self) -> Reader {
        self.reclaimer.reader()
    }

    pub(super) fn set_grace_period(&mut self, grace: GracePeriod) {
        self.reclaimer.set_grace_period(grace);
    }

    /// The largest numbers of pages, cells, lines and steps in use so far.
    pub(super) fn high_water_marks(&self) -> [usize; 4] {
        let storage = &self.storage;
        let [cells, lines, steps] =
            [&storage.cells, &storage.lines, &storage.steps].map(BuddyAllocator::high_water_mark);
        [self.pages, cells, lines, steps]
    }

    pub(super) fn bytes(&self) -> usize {
        let flat = self.touched.iter().filter(|&&touched| touched).count() * HUGE;
        let entries = SLASH20 + self.pages * PAGE + flat;
        (size_of::<u16>() << SHORT) + entries * size_of::<u32>() + self.storage.bytes()
    }

    /// Makes the tables equal to the prefixes after a change, at a second try with all that was retired.
    fn apply(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        subtree: Subtree,
        answer: u16,
    ) -> Result<(), Error> {
        let (trie, storage) = (&self.trie, &mut self.storage);
        if self.reclaimer.pending() >= RECLAIM_BATCH {
            self.reclaimer.reclaim(|piece| storage.free(trie, piece));
        }
        let made = self.change(rib, prefix, subtree, answer);
        if made.is_ok() || self.reclaimer.pending() == 0 {
            return made;
        }
        let (trie, storage) = (&self.trie, &mut self.storage);
        self.reclaimer.wait(|piece| storage.free(trie, piece));
        self.change(rib, prefix, subtree, answer)
    }

    fn change(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        subtree: Subtree,
        answer: u16,
    ) -> Result<(), Error> {
        match prefix.len() {
            0..=SHORT => self.paint_short(rib, prefix, subtree, answer),
            17..=48 => self.paint(rib, prefix, subtree, answer)?,
            _ => self.divide(rib, prefix)?,
        }
        Ok(())
    }

    /// Gives `answer` to the /16s of `prefix` that none of the prefixes within holds.
    fn paint_short(&self, rib: &Rib<u128>, prefix: Prefix6, subtree: Subtree, answer: u16) {
        self.trie.change_short(|short| {
            let fill = |range: Range<usize>| {
                short[range]
                    .iter()
                    .for_each(|cell| cell.store(answer, Ordering::Relaxed));
            };
            let mut next = slash16(prefix.first());
            rib.outermost(subtree, prefix.len() + 1..=SHORT, &mut |inner| {
                fill(next..slash16(inner.first()));
                next = slash16(inner.last()) + 1;
            });
            fill(next..slash16(prefix.last()) + 1);
        });
    }

    /// Gives `answer` to the addresses of `prefix` that none of the prefixes within holds. /32s where that
    /// cannot be done in place are made anew, before anything is changed.
    fn paint(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        subtree: Subtree,
        answer: u16,
    ) -> Result<(), Error> {
        let mut exclusive = std::mem::take(&mut self.exclusive);
        exclusive.find(rib, prefix, subtree, &self.trie);
        let done = self.paint_exclusive(rib, prefix, &exclusive, answer);
        self.exclusive = exclusive;
        done
    }

    fn paint_exclusive(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        exclusive: &ExclusiveRanges,
        answer: u16,
    ) -> Result<(), Error> {
        if prefix.len() > 32 && (!exclusive.rebuild.is_empty() || self.needs_rebuild(rib, prefix)) {
            return self.divide(rib, prefix);
        }
        let mut made = Vec::with_capacity(exclusive.rebuild.len());
        for &slash32 in &exclusive.rebuild {
            match self.make(rib, slash32) {
                Ok(entry) => made.push((slash32, entry)),
                Err(error) => {
                    made.into_iter()
                        .for_each(|(at, entry)| self.discard(entry, at));
                    return Err(error);
                }
            }
        }
        for range in &exclusive.whole {
            self.replace(range.clone(), Entry::answer(answer));
        }
        for part in &exclusive.parts {
            if exclusive.rebuild.binary_search(&part.slash32).is_err() {
                part.write(&self.trie, answer);
            }
        }
        for (slash32, entry) in made {
            self.replace(slash32..=slash32, entry);
        }
        Ok(())
    }

    /// Whether a /32 has to be made anew after a prefix longer than that was withdrawn.
    fn needs_rebuild(&mut self, rib: &Rib<u128>, prefix: Prefix6) -> bool {
        if rib.get(prefix).is_some() {
            return false;
        }
        let slash32 = slash32(prefix.first());
        let count = self.withdrawals.entry(slash32).or_default();
        *count += 1;
        *count > MAX_WITHDRAWALS || !rib.is_divided(Prefix6::cut(prefix.first(), 32))
    }

    /// Makes anew what a prefix longer than /32 touches: a few cells of its /32, or all of it.
    fn divide(&mut self, rib: &Rib<u128>, prefix: Prefix6) -> Result<(), Error> {
        let slash32 = slash32(prefix.first());
        let now = Entry(self.trie.slot(slash32).load(Ordering::Relaxed));
        if now.is_cells() && self.may_keep_cells(rib, slash32) {
            return self.divide_cells(rib, prefix, now);
        }
        let entry = self.make(rib, slash32)?;
        self.replace(slash32..=slash32, entry);
        Ok(())
    }

    /// Whether the number of cells is still a good one.
    fn may_keep_cells(&mut self, rib: &Rib<u128>, slash32: u32) -> bool {
        let left = self.changes.entry(slash32).or_default();
        *left = left.saturating_sub(1);
        *left > 0 && rib.is_divided(Prefix6::cut(u128::from(slash32) << 96, 32))
    }

    fn divide_cells(&mut self, rib: &Rib<u128>, prefix: Prefix6, now: Entry) -> Result<(), Error> {
        let bits = now.bits();
        let cell = |address: u128| ((address >> 80) as u32 % (1 << 16)) >> (16 - bits);
        let places = (cell(prefix.first())..=cell(prefix.last())).map(|part| Place {
            slash32: slash32(prefix.first()),
            bits,
            part,
        });
        let made = self.storage.parts(&self.trie, rib, places.clone())?;
        for (place, entry) in places.zip(made) {
            let at = now.cell_of_part(place.part);
            let before = self.trie.cell(at);
            self.trie.cells[at as usize].store(entry.0, Ordering::Release);
            self.retire(before, place);
        }
        Ok(())
    }

    fn make(&mut self, rib: &Rib<u128>, slash32: u32) -> Result<Entry, Error> {
        let (entry, marks) = self.storage.slash32(&self.trie, rib, slash32)?;
        if entry.is_cells() {
            self.changes.insert(slash32, marks.max(MIN_CHANGES));
        } else {
            self.changes.remove(&slash32);
        }
        self.withdrawals.remove(&slash32);
        Ok(entry)
    }

    /// Puts `entry` in place of those of some /32s, which have pages.
    fn replace(&mut self, range: RangeInclusive<u32>, entry: Entry) {
        for slash32 in range.clone() {
            let before = Entry(self.trie.slot(slash32).load(Ordering::Relaxed));
            self.trie.slot(slash32).store(entry.0, Ordering::Release);
            self.retire(before, Place::whole(slash32));
        }
        self.touch(range);
    }

    /// As `replace`, where there was nothing that readers had seen.
    fn fill(&mut self, range: RangeInclusive<u32>, entry: Entry) {
        for slash32 in range.clone() {
            self.trie.slot(slash32).store(entry.0, Ordering::Release);
        }
        self.touch(range);
    }

    fn touch(&mut self, range: RangeInclusive<u32>) {
        let (first, last) = (*range.start() as usize, *range.end() as usize);
        if self.trie.flat.is_some() && first / FLAT == 1 {
            self.touched[first % FLAT / HUGE..=last % FLAT / HUGE].fill(true);
        }
    }

    /// Whether a /20 may have entries.
    fn is_touched(&self, slash20: u32) -> bool {
        if self.trie.flat.is_some() && slash20 >> 17 == 1 {
            return self.touched[(slash20 as usize) * PAGE % FLAT / HUGE];
        }
        self.trie.page_of[slash20 as usize].load(Ordering::Relaxed) != 0
    }

    fn retire(&mut self, entry: Entry, place: Place) {
        let reclaimer = &mut self.reclaimer;
        let mut retire = |piece| reclaimer.retire(piece);
        leaf_storage::pieces(&self.trie, entry, place, &mut retire);
    }

    fn discard(&mut self, entry: Entry, slash32: u32) {
        let (trie, storage) = (&self.trie, &mut self.storage);
        let mut give = |piece| storage.free(trie, piece);
        leaf_storage::pieces(trie, entry, Place::whole(slash32), &mut give);
    }

    /// Sees to it that all /32s of a prefix, or the one it lies in, have an entry of their own.
    fn make_pages(&mut self, prefix: Prefix6) -> Result<(), Error> {
        let flat = self.trie.flat.is_some() && prefix.first() >> 125 == 1;
        if flat {
            return Ok(());
        }
        for slash20 in slash32(prefix.first()) >> 12..=last32(prefix) >> 12 {
            self.make_page(slash20)?;
        }
        Ok(())
    }

    fn make_page(&mut self, slash20: u32) -> Result<(), Error> {
        let page = &self.trie.page_of[slash20 as usize];
        if page.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let limit = self.trie.pages.len() / PAGE;
        let made = u32::try_from(self.pages)
            .ok()
            .filter(|_| self.pages < limit);
        page.store(made.ok_or(Error::Full { what: "/20s" })?, Ordering::Release);
        self.pages += 1;
        Ok(())
    }

    pub(super) fn contents(&self) -> Vec<Content<'_>> {
        let (trie, storage) = (&self.trie, &self.storage);
        let [page_of, pages] = self.pages();
        vec![
            Content::new("short", &trie.short[..]),
            page_of,
            pages,
            Content::new("cells", &trie.cells[..storage.cells.high_water_mark()]),
            Content::new(
                "lines",
                &trie.lines[..storage.lines.high_water_mark() * LINE],
            ),
            Content::new("deep", &trie.deep[..storage.blocks()]),
            Content::new("steps", &trie.steps[..2 * storage.steps.high_water_mark()]),
            Content::new("answers", &trie.answers[..storage.steps.high_water_mark()]),
        ]
    }

    fn pages(&self) -> [Content<'_>; 2] {
        let trie = &self.trie;
        if trie.flat.is_none() {
            let used = &trie.pages[..self.pages * PAGE];
            return [
                Content::new("page_of", &trie.page_of[..]),
                Content::new("pages", used),
            ];
        }
        let mut page_of = vec![0; SLASH20];
        let mut pages = vec![0; PAGE];
        for (slash20, page) in (0..).zip(&mut page_of) {
            if !self.is_touched(slash20) {
                continue;
            }
            let from = slash20 << 12;
            let entry = |slash32| trie.slot(slash32).load(Ordering::Relaxed);
            let entries = (from..=from | 0xfff).map(entry);
            if entries.clone().any(|entry| entry != 0) {
                *page = (pages.len() / PAGE) as u32;
                pages.extend(entries);
            }
        }
        [
            Content::new("page_of", page_of),
            Content::new("pages", pages),
        ]
    }

    /// The table of `contents`, whose prefixes are those of `rib`. All that an entry leads to gets another
    /// place.
    pub(super) fn restore(
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

fn slash16(address: u128) -> usize {
    (address >> 112) as usize
}

fn slash32(address: u128) -> u32 {
    (address >> 96) as u32
}

fn last32(prefix: Prefix6) -> u32 {
    slash32(prefix.last())
}
