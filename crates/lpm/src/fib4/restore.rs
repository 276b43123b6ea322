//! A table made from the content of another one, of which nothing is believed.

use std::sync::atomic::Ordering;

use super::capacity::Capacity4;
use super::dir24::{BLOCKS, GROUP, SLASH16};
use super::entry::Entry;
use super::writer::{Writer, block, entry};
use crate::memory::{Contents, Provider, numbers};
use crate::{Error, NextHop, Rib};

/// The content of another table: entries as bytes.
struct Source<'a> {
    /// Bytes of an entry, which may be fewer than the table's.
    width: usize,
    first: &'a [u8],
    page_of: &'a [[u8; 2]],
    pages: &'a [[u8; 4]],
    groups: &'a [u8],
}

impl<E: Entry> Writer<E> {
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

impl<'a> Source<'a> {
    fn of<E: Entry>(contents: &Contents<'a>) -> Result<Self, Error> {
        let first = numbers::<1>(contents, "first")?.as_flattened();
        let source = Self {
            width: if first.len() == BLOCKS {
                size_of::<u8>()
            } else {
                size_of::<E>()
            },
            first,
            page_of: numbers(contents, "page_of")?,
            pages: numbers(contents, "pages")?,
            groups: numbers::<1>(contents, "groups")?.as_flattened(),
        };
        if source.first.len() != BLOCKS * source.width || source.width > size_of::<E>() {
            return Err(Error::content("first", "has not an entry for each /24"));
        }
        if source.page_of.len() != SLASH16 {
            return Err(Error::content("page_of", "has not a number for each /16"));
        }
        Ok(source)
    }

    /// An entry as the table has it; the escape, too, where there is none.
    fn entry<E: Entry>(&self, entries: &[u8], at: usize) -> E {
        if self.width == size_of::<E>() {
            return E::read(entries, at).unwrap_or(E::ESCAPE);
        }
        let narrow = entries.get(at).filter(|entry| **entry != u8::ESCAPE);
        narrow
            .and_then(|entry| E::of(entry.code()))
            .unwrap_or(E::ESCAPE)
    }

    /// The group of a /24, which may not exist.
    fn group(&self, block: u32) -> Result<usize, Error> {
        let page = u16::from_le_bytes(self.page_of[block as usize >> 8]);
        let at = usize::from(page) * GROUP + block as usize % GROUP;
        let group = self.pages.get(at).map(|&group| u32::from_le_bytes(group));
        let group =
            group.ok_or_else(|| Error::content("page_of", "names a page that is not there"))?;
        Ok(group as usize)
    }
}

/// Checks that an entry is an answer.
fn check_hop<E: Entry>(entry: E, section: &'static str) -> Result<E, Error> {
    if entry == E::ESCAPE || entry.code() > NextHop::MAX {
        return Err(Error::content(
            section,
            "holds a number that is not a next hop",
        ));
    }
    Ok(entry)
}
