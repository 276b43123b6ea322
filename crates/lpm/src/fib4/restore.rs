//! The content of another table, from which a table is made. Nothing of it is believed.

use super::dir24::{BLOCKS, GROUP, SLASH16};
use super::entry::Entry;
use crate::memory::{Contents, numbers};
use crate::{Error, NextHop};

/// The content of another table: entries as bytes.
pub(super) struct Source<'a> {
    /// Bytes of an entry, which may be fewer than the table's.
    pub(super) width: usize,
    pub(super) first: &'a [u8],
    page_of: &'a [[u8; 2]],
    pages: &'a [[u8; 4]],
    pub(super) groups: &'a [u8],
}

impl<'a> Source<'a> {
    pub(super) fn of<E: Entry>(contents: &Contents<'a>) -> Result<Self, Error> {
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
    pub(super) fn entry<E: Entry>(&self, entries: &[u8], at: usize) -> E {
        if self.width == size_of::<E>() {
            return E::read(entries, at).unwrap_or(E::ESCAPE);
        }
        let narrow = entries.get(at).filter(|entry| **entry != u8::ESCAPE);
        narrow
            .and_then(|entry| E::of(entry.code()))
            .unwrap_or(E::ESCAPE)
    }

    /// The group of a /24, which may not exist.
    pub(super) fn group(&self, block: u32) -> Result<usize, Error> {
        let page = u16::from_le_bytes(self.page_of[block as usize >> 8]);
        let at = usize::from(page) * GROUP + block as usize % GROUP;
        let group = self.pages.get(at).map(|&group| u32::from_le_bytes(group));
        let group =
            group.ok_or_else(|| Error::content("page_of", "names a page that is not there"))?;
        Ok(group as usize)
    }
}

/// Checks that an entry is an answer.
pub(super) fn check_hop<E: Entry>(entry: E, section: &'static str) -> Result<E, Error> {
    if entry == E::ESCAPE || entry.code() > NextHop::MAX {
        return Err(Error::content(
            section,
            "holds a number that is not a next hop",
        ));
    }
    Ok(entry)
}
