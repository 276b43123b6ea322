//! Keeps the tables equal to the prefixes. What changes below a /32 is made anew in unused space and
//! then put in place by one store.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

mod content;
mod detail;
mod in_place;
mod restore;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::{HashMap, HashMapExt};

use super::room::Room6;
use super::runs::Runs;
use super::trie::{Entry, FLAT, PAGE, SLASH20, Trie};
use crate::epoch::{Entrance, Epochs, Grace};
use crate::memory::Provider;
use crate::rib::Within;
use crate::{Error, NextHop, Prefix6, Rib};
use detail::{Detail, Piece, Place};
use in_place::Part;

/// Prefixes up to this length are in the table by the first 16 bits.
const SHORT: u8 = 16;
/// /32s of one huge page of the flat array.
const HUGE: usize = (2 << 20) / size_of::<u32>();
/// Changes to cells, at least, before their number is decided again.
const CHANGES: usize = 64;
/// Withdrawals from a /32 after which it is made anew: what was withdrawn left its bounds there.
const WITHDRAWALS: u32 = 64;
/// Retired pieces that are worth a look at what readers do.
const MANY: usize = 64;

#[derive(Debug)]
pub(super) struct Writer {
    trie: Arc<Trie>,
    detail: Detail,
    /// Pages in use, the one without prefixes included.
    pages: usize,
    epochs: Epochs<Piece>,
    /// Of each /32 that is made of cells, the changes until their number is decided again.
    changes: HashMap<u32, usize>,
    /// Of each /32, the withdrawals since it was made.
    withdrawals: HashMap<u32, u32>,
    /// Whether a huge page of the flat array was written.
    touched: Vec<bool>,
    /// What the prefix being changed holds alone: kept, so that its memory is.
    own: Own,
}

/// What a prefix holds that none of the prefixes within does.
#[derive(Debug, Default)]
struct Own {
    /// Whole /32s.
    whole: Vec<RangeInclusive<u32>>,
    /// Parts of /32s.
    parts: Vec<Part>,
    /// /32s in which it holds more than answers that could be changed where they are, ascending.
    anew: Vec<u32>,
}

impl Writer {
    /// A table without prefixes.
    fn new(flat: bool, room: &Room6, memory: &mut Provider<'_>) -> Result<Self, Error> {
        let trie = Trie::new(flat, room, memory)?;
        Ok(Self {
            detail: Detail::new(&trie),
            trie: Arc::new(trie),
            pages: 1,
            epochs: Epochs::new(),
            changes: HashMap::new(),
            withdrawals: HashMap::new(),
            touched: vec![false; FLAT / HUGE],
            own: Own::default(),
        })
    }

    pub(super) fn build(
        rib: &Rib<u128>,
        flat: bool,
        room: &Room6,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let mut writer = Self::new(flat, room, memory)?;
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
        let change = rib.place(prefix, hop);
        if change.before == Some(hop) {
            return Ok(change.before);
        }
        if let Err(error) = self.apply(rib, prefix, change.within, hop.get()) {
            match change.before {
                Some(before) => rib.place(prefix, before).before,
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
        let Some(change) = rib.displace(prefix) else {
            return Ok(None);
        };
        let same_table = |&(len, _): &(u8, NextHop)| prefix.len() <= SHORT || len > SHORT;
        let above = change.above.filter(same_table).map(|(_, hop)| hop);
        if let Err(error) = self.apply(rib, prefix, change.within, NextHop::code(above)) {
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

    pub(super) fn entrance(&self) -> Entrance {
        self.epochs.entrance()
    }

    pub(super) fn set_grace(&mut self, grace: Grace) {
        self.epochs.set_grace(grace);
    }

    /// The pages, cells, lines and steps that there had to be room for so far.
    pub(super) fn reached(&self) -> [usize; 4] {
        let detail = &self.detail;
        let [cells, lines, steps] =
            [&detail.cells, &detail.lines, &detail.steps].map(Runs::reached);
        [self.pages, cells, lines, steps]
    }

    pub(super) fn bytes(&self) -> usize {
        let flat = self.touched.iter().filter(|&&touched| touched).count() * HUGE;
        let entries = SLASH20 + self.pages * PAGE + flat;
        (size_of::<u16>() << SHORT) + entries * size_of::<u32>() + self.detail.bytes()
    }

    /// Makes the tables equal to the prefixes after a change, at a second try with all that was retired.
    fn apply(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        within: Within,
        answer: u16,
    ) -> Result<(), Error> {
        let (trie, detail) = (&self.trie, &mut self.detail);
        if self.epochs.waiting() >= MANY {
            self.epochs.reclaim(|piece| detail.give_back(trie, piece));
        }
        let made = self.change(rib, prefix, within, answer);
        if made.is_ok() || self.epochs.waiting() == 0 {
            return made;
        }
        let (trie, detail) = (&self.trie, &mut self.detail);
        self.epochs.wait(|piece| detail.give_back(trie, piece));
        self.change(rib, prefix, within, answer)
    }

    fn change(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        within: Within,
        answer: u16,
    ) -> Result<(), Error> {
        match prefix.len() {
            0..=SHORT => self.paint_short(rib, prefix, within, answer),
            17..=48 => self.paint(rib, prefix, within, answer)?,
            _ => self.divide(rib, prefix)?,
        }
        Ok(())
    }

    /// Gives `answer` to the /16s of `prefix` that none of the prefixes within holds.
    fn paint_short(&self, rib: &Rib<u128>, prefix: Prefix6, within: Within, answer: u16) {
        self.trie.change_short(|short| {
            let fill = |range: Range<usize>| {
                short[range]
                    .iter()
                    .for_each(|cell| cell.store(answer, Ordering::Relaxed));
            };
            let mut next = slash16(prefix.first());
            rib.outermost(within, prefix.len() + 1..=SHORT, &mut |inner| {
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
        within: Within,
        answer: u16,
    ) -> Result<(), Error> {
        let mut own = std::mem::take(&mut self.own);
        own.find(rib, prefix, within, &self.trie);
        let done = self.paint_own(rib, prefix, &own, answer);
        self.own = own;
        done
    }

    fn paint_own(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix6,
        own: &Own,
        answer: u16,
    ) -> Result<(), Error> {
        if prefix.len() > 32 && (!own.anew.is_empty() || self.is_worn(rib, prefix)) {
            return self.divide(rib, prefix);
        }
        let mut made = Vec::with_capacity(own.anew.len());
        for &slash32 in &own.anew {
            match self.make(rib, slash32) {
                Ok(entry) => made.push((slash32, entry)),
                Err(error) => {
                    made.into_iter()
                        .for_each(|(at, entry)| self.discard(entry, at));
                    return Err(error);
                }
            }
        }
        for range in &own.whole {
            self.replace(range.clone(), Entry::answer(answer));
        }
        for part in &own.parts {
            if own.anew.binary_search(&part.slash32).is_err() {
                part.write(&self.trie, answer);
            }
        }
        for (slash32, entry) in made {
            self.replace(slash32..=slash32, entry);
        }
        Ok(())
    }

    /// Whether a /32 has to be made anew after a prefix longer than that was withdrawn.
    fn is_worn(&mut self, rib: &Rib<u128>, prefix: Prefix6) -> bool {
        if rib.get(prefix).is_some() {
            return false;
        }
        let slash32 = slash32(prefix.first());
        let count = self.withdrawals.entry(slash32).or_default();
        *count += 1;
        *count > WITHDRAWALS || !rib.is_divided(Prefix6::cut(prefix.first(), 32))
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
        let made = self.detail.parts(&self.trie, rib, places.clone())?;
        for (place, entry) in places.zip(made) {
            let at = now.cell_of_part(place.part);
            let before = self.trie.cell(at);
            self.trie.cells[at as usize].store(entry.0, Ordering::Release);
            self.retire(before, place);
        }
        Ok(())
    }

    fn make(&mut self, rib: &Rib<u128>, slash32: u32) -> Result<Entry, Error> {
        let (entry, marks) = self.detail.slash32(&self.trie, rib, slash32)?;
        if entry.is_cells() {
            self.changes.insert(slash32, marks.max(CHANGES));
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
        let epochs = &mut self.epochs;
        detail::pieces(&self.trie, entry, place, &mut |piece| epochs.retire(piece));
    }

    fn discard(&mut self, entry: Entry, slash32: u32) {
        let (trie, detail) = (&self.trie, &mut self.detail);
        let mut give = |piece| detail.give_back(trie, piece);
        detail::pieces(trie, entry, Place::whole(slash32), &mut give);
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
        let room = self.trie.pages.len() / PAGE;
        let made = u32::try_from(self.pages).ok().filter(|_| self.pages < room);
        page.store(made.ok_or(Error::Full { what: "/20s" })?, Ordering::Release);
        self.pages += 1;
        Ok(())
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
