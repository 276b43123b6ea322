//! Keeps the tables equal to the prefixes: what one prefix changes, in an order in which readers see
//! each address's answer change once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rcu::{GracePeriod, Reader, Reclaimer};

use super::BYTE_MAX;
use super::capacity::Capacity4;
use super::dir24::{BLOCKS, Dir24, GROUP, SLASH16};
use super::entry::Entry;
use super::restore::{Source, check_hop};
use crate::memory::{Content, Contents, Provider};
use crate::rib::{Removal, Subtree};
use crate::{Error, NextHop, Prefix4, Rib};

#[derive(Debug)]
pub(super) struct Writer<E: Entry> {
    tables: Arc<Dir24<E>>,
    /// For each group, the number of prefixes longer than /24 that it holds.
    counts: Vec<u16>,
    /// Groups without prefixes that no reader looks at.
    free: Vec<u32>,
    /// Groups without prefixes that a reader may still look at.
    reclaimer: Reclaimer<u32>,
    /// Whether a /16 has a page.
    paged: Vec<bool>,
    pages: u32,
}

impl<E: Entry> Writer<E> {
    /// A table without prefixes.
    fn new(
        projected: bool,
        capacity: &Capacity4,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        Ok(Self {
            tables: Arc::new(Dir24::new(projected, capacity, memory)?),
            counts: Vec::new(),
            free: Vec::new(),
            reclaimer: Reclaimer::new(),
            paged: vec![false; SLASH16],
            pages: 0,
        })
    }

    pub(super) fn build(
        rib: &Rib<u32>,
        projected: bool,
        capacity: &Capacity4,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let mut writer = Self::new(projected, capacity, memory)?;
        // Shorter prefixes come first, so that longer ones overwrite their part.
        for (prefix, hop) in rib {
            let entry = entry::<E>(hop)?;
            if prefix.len() > 24 {
                let (group, new) = writer.group_for(prefix)?;
                writer.counts[group as usize] += 1;
                E::fill(writer.cells(group, prefix.first(), prefix.last()), entry);
                if new {
                    writer.publish(block(prefix.first()), group);
                }
            } else {
                writer.fill(block(prefix.first()), block(prefix.last()), entry);
            }
        }
        Ok(writer)
    }

    pub(super) fn insert(
        &mut self,
        rib: &mut Rib<u32>,
        prefix: Prefix4,
        hop: NextHop,
    ) -> Result<Option<NextHop>, Error> {
        let entry = entry(hop)?;
        if prefix.len() <= 24 {
            let change = rib.insert_route(prefix, hop);
            self.paint(rib, prefix, change.subtree, entry);
            return Ok(change.before);
        }
        let (group, new) = self.group_for(prefix)?;
        let change = rib.insert_route(prefix, hop);
        self.counts[group as usize] += u16::from(change.before.is_none());
        self.paint_group(rib, group, prefix, change.subtree, entry);
        if new {
            self.publish(block(prefix.first()), group);
        }
        Ok(change.before)
    }

    pub(super) fn remove(&mut self, rib: &mut Rib<u32>, prefix: Prefix4) -> Option<NextHop> {
        let Removal {
            before,
            above,
            subtree,
        } = rib.remove_route(prefix)?;
        let entry =
            E::of(NextHop::code(above.map(|(_, hop)| hop))).expect("checked when it was inserted");
        if prefix.len() <= 24 {
            self.paint(rib, prefix, subtree, entry);
            return before;
        }
        let block = block(prefix.first());
        let group = self.group(block);
        self.counts[group as usize] -= 1;
        self.paint_group(rib, group, prefix, subtree, entry);
        if self.counts[group as usize] == 0 {
            self.fill(block, block, entry);
            self.reclaimer.retire(group);
        }
        before
    }

    pub(super) fn tables(&self) -> Arc<Dir24<E>> {
        Arc::clone(&self.tables)
    }

    pub(super) fn reader(&self) -> Reader {
        self.reclaimer.reader()
    }

    pub(super) fn set_grace_period(&mut self, grace: GracePeriod) {
        self.reclaimer.set_grace_period(grace);
    }

    pub(super) fn contents(&self) -> Vec<Content<'_>> {
        let tables = &self.tables;
        vec![
            Content::new("first", E::numbers(&tables.first[..BLOCKS])),
            Content::new("page_of", &tables.page_of[..]),
            Content::new("pages", &tables.pages[..self.pages as usize * GROUP]),
            Content::new(
                "groups",
                E::numbers(&tables.groups[..self.counts.len() * GROUP]),
            ),
        ]
    }

    pub(super) fn bytes(&self) -> usize {
        let projection = self.tables.projection.as_ref().map_or(0, |_| BLOCKS);
        let groups = self.counts.len() * GROUP * size_of::<E>();
        let pages = self.pages as usize * GROUP * size_of::<u32>();
        BLOCKS * size_of::<E>() + projection + SLASH16 * size_of::<u16>() + pages + groups
    }

    /// Gives `entry` to all addresses of `prefix` that none of the prefixes within holds.
    fn paint(&self, rib: &Rib<u32>, prefix: Prefix4, subtree: Subtree, entry: E) {
        let mut next = u64::from(prefix.first());
        rib.outermost(subtree, prefix.len() + 1..=32, &mut |inner| {
            self.range(next, u64::from(inner.first()), entry);
            next = u64::from(inner.last()) + 1;
        });
        self.range(next, u64::from(prefix.last()) + 1, entry);
    }

    /// Writes to addresses `from..to`; a part of a /24 has a group.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "blocks of 32-bit addresses"
    )]
    fn range(&self, from: u64, to: u64, entry: E) {
        const MASK: u64 = GROUP as u64 - 1;
        let (first, end) = (from.div_ceil(GROUP as u64), to / GROUP as u64);
        if first > end {
            return self.part(from as u32, (to - 1) as u32, entry);
        }
        if from & MASK != 0 {
            self.part(from as u32, from as u32 | MASK as u32, entry);
        }
        if first < end {
            self.fill(first as u32, (end - 1) as u32, entry);
        }
        if to & MASK != 0 {
            self.part((to & !MASK) as u32, (to - 1) as u32, entry);
        }
    }

    fn part(&self, first: u32, last: u32, entry: E) {
        E::fill(self.cells(self.group(block(first)), first, last), entry);
    }

    /// As `paint`, of a prefix longer than /24 whose group readers may not know yet.
    fn paint_group(&self, rib: &Rib<u32>, group: u32, prefix: Prefix4, subtree: Subtree, entry: E) {
        let mut next = prefix.first();
        let mut done = false;
        rib.outermost(subtree, prefix.len() + 1..=32, &mut |inner| {
            if next < inner.first() {
                E::fill(self.cells(group, next, inner.first() - 1), entry);
            }
            done = inner.last() == prefix.last();
            next = inner.last().wrapping_add(1);
        });
        if !done {
            E::fill(self.cells(group, next, prefix.last()), entry);
        }
    }

    /// Writes to /24s `first..=last`, which lose their groups if they had any.
    fn fill(&self, first: u32, last: u32, entry: E) {
        let range = first as usize..=last as usize;
        E::fill(&self.tables.first[range.clone()], entry);
        // After the words: an escape found here leads to the word that it stands for.
        if let Some(bytes) = &self.tables.projection {
            let byte = u8::of(entry.code()).unwrap_or(u8::ESCAPE);
            u8::fill(&bytes[range], byte);
        }
    }

    fn publish(&self, block: u32, group: u32) {
        self.tables
            .page_entry(block)
            .store(group, Ordering::Release);
        self.fill(block, block, E::ESCAPE);
    }

    /// The group of a prefix longer than /24, and whether it is a new one: that one is filled with
    /// the answer so far, and no reader knows it before `publish`.
    fn group_for(&mut self, prefix: Prefix4) -> Result<(u32, bool), Error> {
        let block = block(prefix.first());
        let before = E::load(&self.tables.first[block as usize]);
        if before == E::ESCAPE {
            return Ok((self.group(block), false));
        }
        self.make_page(block)?;
        let group = self.allocate()?;
        E::fill(self.cells(group, 0, u8::MAX.into()), before);
        Ok((group, true))
    }

    /// Sees to it that the /16 of a /24 has a page.
    fn make_page(&mut self, block: u32) -> Result<(), Error> {
        let slash16 = block as usize >> 8;
        if self.paged[slash16] {
            return Ok(());
        }
        let limit = self.tables.pages.len() / GROUP;
        let page = u16::try_from(self.pages)
            .ok()
            .filter(|&page| usize::from(page) < limit);
        let page = page.ok_or(Error::Pages { limit })?;
        self.tables.page_of[slash16].store(page, Ordering::Release);
        self.paged[slash16] = true;
        self.pages += 1;
        Ok(())
    }

    /// A group that no reader looks at.
    fn allocate(&mut self) -> Result<u32, Error> {
        let limit = self.tables.groups.len() / GROUP;
        let (free, counts) = (&mut self.free, &mut self.counts);
        self.reclaimer.reclaim(|group| free.push(group));
        if free.is_empty() && counts.len() == limit {
            self.reclaimer.wait(|group| free.push(group));
        }
        if let Some(group) = free.pop() {
            return Ok(group);
        }
        let group = u32::try_from(counts.len())
            .ok()
            .filter(|_| counts.len() < limit);
        let group = group.ok_or(Error::Groups { limit })?;
        counts.push(0);
        Ok(group)
    }

    /// The group of a /24 whose entry is an escape.
    fn group(&self, block: u32) -> u32 {
        self.tables.page_entry(block).load(Ordering::Relaxed)
    }

    /// The cells of a group for addresses `first..=last` of its /24.
    fn cells(&self, group: u32, first: u32, last: u32) -> &[E::Cell] {
        let start = group as usize * GROUP;
        let (first, last) = (first as usize % GROUP, last as usize % GROUP);
        &self.tables.groups[start + first..=start + last]
    }

    /// The table of `contents`, whose prefixes are those of `rib`. Groups and pages are numbered anew.
    pub(super) fn restore(
        rib: &Rib<u32>,
        projected: bool,
        capacity: &Capacity4,
        memory: &mut Provider<'_>,
        contents: &Contents<'_>,
    ) -> Result<Self, Error> {
        let source = Source::of::<E>(contents)?;
        let mut writer = Self::new(projected, capacity, memory)?;
        let mut groups = vec![false; source.groups.len() / source.width / GROUP];
        for block in 0..1 << 24 {
            // As many as there are blocks: see `Source::of`.
            let entry = source.entry::<E>(source.first, block as usize);
            if entry != E::ESCAPE {
                writer.put(block, check_hop(entry, "first")?);
                continue;
            }
            let group = source.group(block)?;
            let new = groups.get_mut(group).filter(|used| !**used);
            *new.ok_or_else(|| Error::content("pages", "names a group twice, or none"))? = true;
            writer.copy(&source, block, group)?;
        }
        writer.project();
        writer.count(rib)?;
        Ok(writer)
    }

    fn copy(&mut self, source: &Source<'_>, block: u32, group: usize) -> Result<(), Error> {
        self.make_page(block)?;
        let new = self.allocate()?;
        for (at, cell) in self.cells(new, 0, u8::MAX.into()).iter().enumerate() {
            let entry = source.entry::<E>(source.groups, group * GROUP + at);
            E::store(cell, check_hop(entry, "groups")?);
        }
        let page_entry = self.tables.page_entry(block);
        page_entry.store(new, Ordering::Relaxed);
        self.put(block, E::ESCAPE);
        Ok(())
    }

    fn put(&self, block: u32, entry: E) {
        E::store(&self.tables.first[block as usize], entry);
    }

    /// Makes the table of bytes, if there is one, from the first table.
    fn project(&self) {
        let Some(bytes) = &self.tables.projection else {
            return;
        };
        for (byte, cell) in bytes.iter().zip(&self.tables.first[..BLOCKS]) {
            let entry = u8::of(E::load(cell).code()).unwrap_or(u8::ESCAPE);
            u8::store(byte, entry);
        }
    }

    /// Counts the prefixes of each group: prefixes longer than /24 are in groups, and all groups are
    /// theirs.
    fn count(&mut self, rib: &Rib<u32>) -> Result<(), Error> {
        for (prefix, hop) in rib {
            entry::<E>(hop)?;
            if prefix.len() <= 24 {
                continue;
            }
            let block = block(prefix.first());
            if E::load(&self.tables.first[block as usize]) != E::ESCAPE {
                return Err(Error::content("first", "lacks prefixes longer than /24"));
            }
            let group = self.group(block);
            self.counts[group as usize] += 1;
        }
        if self.counts.contains(&0) {
            return Err(Error::content("groups", "has one without prefixes"));
        }
        Ok(())
    }
}

fn entry<E: Entry>(hop: NextHop) -> Result<E, Error> {
    E::of(hop.get()).ok_or_else(|| Error::NextHop {
        next_hop: hop.get(),
        limit: BYTE_MAX,
    })
}

/// The /24 of an address.
fn block(address: u32) -> u32 {
    address >> 8
}
