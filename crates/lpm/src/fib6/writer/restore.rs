//! The content of another table, from which a table is made. Nothing of it is believed.

use super::SHORT;
use crate::fib6::trie::SLASH20;
use crate::memory::{Contents, numbers};
use crate::{Error, NextHop};

/// The content of another table.
pub(super) struct Source<'a> {
    pub(super) short: &'a [[u8; 2]],
    pub(super) page_of: &'a [[u8; 4]],
    pub(super) pages: &'a [[u8; 4]],
    pub(super) cells: &'a [[u8; 4]],
    pub(super) lines: &'a [[u8; 2]],
    deep: &'a [[u8; 8]],
    steps: &'a [[u8; 8]],
    pub(super) answers: &'a [[u8; 2]],
}

impl<'a> Source<'a> {
    pub(super) fn of(contents: &Contents<'a>) -> Result<Self, Error> {
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
    pub(super) fn block(
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
pub(super) fn next_hop(number: u16, section: &'static str) -> Result<u16, Error> {
    if number > NextHop::MAX {
        return Err(Error::content(
            section,
            "holds a number that is not a next hop",
        ));
    }
    Ok(number)
}
