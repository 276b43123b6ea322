//! Compares and hashes the bytes of files in blocks of 64 KiB. Holes are skipped.

use super::BLOCK;
use super::hash::{Content, Hash, leaf};
use super::side::{Fault, Side};

const STEP: u64 = BLOCK as u64;
/// How many ranges of one file are listed.
const MAX_RANGES: usize = 1000;

/// A file on one side.
#[derive(Debug)]
pub(super) struct Half<'a, S: Side> {
    pub(super) side: &'a mut S,
    pub(super) found: &'a mut S::Lookup,
    pub(super) size: u64,
}

/// The result for the bytes of one file or two.
#[derive(Debug, Default)]
pub(super) struct ContentDifference {
    /// The ranges that differ: offset and length, in whole blocks.
    pub(super) ranges: Vec<(u64, u64)>,
    /// Blocks of zeros that only one of the files has allocated.
    pub(super) holes: u64,
}

/// A block on one side.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    hash: Option<Hash>,
    /// No part of the block is allocated.
    hole: bool,
}

/// The hash of a file's bytes. `read` is called with the size of each block.
pub(super) fn alone<S: Side>(
    mut half: Half<'_, S>,
    read: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Hash, Fault> {
    let (mut content, mut at, mut block) = (Content::default(), 0, Block::new());
    while at < half.size {
        let next = half.next(at)?;
        pass(&mut content, at, next, half.size);
        at = next;
        if at < half.size {
            block.read(&mut half, at)?;
            read(block.bytes.len() as u64)?;
            content.push(leaf(&block.bytes));
            at += STEP;
        }
    }
    Ok(content.finish())
}

/// The hashes of the bytes of two files, and the ranges that differ up to the end of the shorter
/// one.
pub(super) fn both<A: Side, B: Side>(
    mut a: Half<'_, A>,
    mut b: Half<'_, B>,
    read: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<(Hash, Hash, ContentDifference), Fault> {
    let mut compared = ContentDifference::default();
    let mut contents = [Content::default(), Content::default()];
    let (mut ours, mut theirs) = (Block::new(), Block::new());
    let (mut at, end) = (0, a.size.max(b.size));
    while at < end {
        let next = a.next(at)?.min(b.next(at)?);
        let [one, other] = &mut contents;
        pass(one, at, next, a.size);
        pass(other, at, next, b.size);
        at = next;
        if at >= end {
            break;
        }
        ours.read(&mut a, at)?;
        theirs.read(&mut b, at)?;
        read(theirs.bytes.len() as u64)?;
        let common = ours.bytes.len().min(theirs.bytes.len());
        let same = ours.bytes.get(..common) == theirs.bytes.get(..common);
        if !same {
            compared.add(at, common as u64);
        } else if ours.hole != theirs.hole {
            compared.holes += 1;
        }
        if at < a.size {
            one.push(ours.hash());
        }
        if at < b.size {
            // Equal bytes have the same hash.
            let whole = same && ours.bytes.len() == theirs.bytes.len();
            theirs.hash = ours.hash.filter(|_| whole);
            other.push(theirs.hash());
        }
        at += STEP;
    }
    let [one, other] = contents;
    Ok((one.finish(), other.finish(), compared))
}

/// Adds zeros from one block to another, up to the end of the file.
fn pass(content: &mut Content, at: u64, to: u64, size: u64) {
    let length = to.min(size).saturating_sub(at);
    content.zeros(length / STEP);
    let rest = length % STEP;
    if rest > 0 {
        content.push(leaf(&vec![0; usize::try_from(rest).unwrap_or(BLOCK)]));
    }
}

impl<S: Side> Half<'_, S> {
    /// The next block with data. If there is none, the end of the file or an offset after it.
    fn next(&mut self, at: u64) -> Result<u64, Fault> {
        let end = self.size.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        if at >= self.size {
            return Ok(u64::MAX);
        }
        let data = self.side.data_from(self.found, at)?;
        let data = data.filter(|data| *data < self.size);
        Ok(data.map_or(end, |data| data - data % STEP))
    }
}

impl Block {
    fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(BLOCK),
            hash: None,
            hole: false,
        }
    }

    fn read<S: Side>(&mut self, half: &mut Half<'_, S>, at: u64) -> Result<(), Fault> {
        let length = half.size.saturating_sub(at).min(STEP);
        self.bytes.clear();
        self.bytes
            .resize(usize::try_from(length).unwrap_or(BLOCK), 0);
        self.hash = None;
        self.hole = half.next(at)? > at;
        if !self.hole {
            half.side.read(half.found, at, &mut self.bytes)?;
        }
        Ok(())
    }

    fn hash(&mut self) -> Hash {
        let bytes = &self.bytes;
        *self.hash.get_or_insert_with(|| leaf(bytes))
    }
}

impl ContentDifference {
    fn add(&mut self, at: u64, length: u64) {
        if let Some((from, before)) = self.ranges.last_mut()
            && *from + *before == at
        {
            *before += length;
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push((at, length));
        }
    }
}
