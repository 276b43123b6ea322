//! The tables of prefixes as a device is to have them: one piece of memory, in which the arrays of both
//! families lie as they are, each from a chunk on. gpu/lpm.h of this crate is the twin.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6, Rib, Section};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sys::huge::{Array, Region};

use super::Error;
use crate::forward::Family;
use crate::image::Stored;
use crate::shape::Shape;

/// Arrays begin at multiples of this many bytes.
pub(super) const CHUNK: usize = 4096;
const WORD: usize = size_of::<u64>();

/// Arrays by their place in the first chunk, where it says in which chunk they begin. Before them is the
/// layout of IPv4's.
const ARRAYS: [(Family, &str); 13] = [
    (Family::V4, "first"),
    (Family::V4, "projection"),
    (Family::V4, "page_of"),
    (Family::V4, "pages"),
    (Family::V4, "groups"),
    (Family::V6, "short"),
    (Family::V6, "page_of"),
    (Family::V6, "pages"),
    (Family::V6, "cells"),
    (Family::V6, "lines"),
    (Family::V6, "deep"),
    (Family::V6, "steps"),
    (Family::V6, "answers"),
];
/// Those of them that have an entry for each /24.
const BY_BLOCK: usize = 2;

#[derive(Debug)]
pub(super) struct Original {
    v4: Fib4,
    v6: Fib6,
    mapped: Vec<Mapped>,
    /// What copies hold, or will when they have caught up.
    bytes: Vec<u8>,
    changed: Changed,
}

/// An array of the tables, mapped once more.
#[derive(Debug)]
struct Mapped {
    /// Where it begins in the copies.
    start: usize,
    cells: Array<AtomicU64>,
    /// Bytes of an entry of those that have one for each /24.
    by_block: Option<usize>,
    family: Family,
}

/// Where tables are not what copies hold.
#[derive(Debug, Default)]
struct Changed {
    /// /24s.
    blocks: Vec<Range<usize>>,
    v4: bool,
    v6: bool,
}

/// Arrays as they are asked for: where they begin, and their files.
struct Provided {
    header: Vec<u32>,
    mapped: Vec<Mapped>,
    next: usize,
}

impl Original {
    pub(super) fn build(
        shape: &Shape,
        (v4, v6): (Rib<u32>, Rib<u128>),
        image: Option<&Stored>,
    ) -> Result<Self, Error> {
        let mut provided = Provided {
            header: vec![0; 1 + ARRAYS.len()],
            mapped: Vec::new(),
            next: CHUNK,
        };
        provided.header[0] = match shape.layout4 {
            Layout4::Bytes => 0,
            Layout4::Mixed => 1,
            Layout4::Words => 2,
        };
        let (layout4, room4, room6) = (shape.layout4, &shape.room4, &shape.room6);
        let v4 = {
            let memory = &mut |section: &Section| provided.provide(Family::V4, section);
            match image {
                Some(image) => Fib4::restore(v4, layout4, room4, memory, &|name: &str| {
                    image.array(Family::V4, name)
                })
                .map_err(|error| image.blame(error))?,
                None => Fib4::build_in(v4, layout4, room4, memory)?,
            }
        };
        let v6 = {
            let memory = &mut |section: &Section| provided.provide(Family::V6, section);
            match image {
                Some(image) => Fib6::restore(v6, Layout6::Paged, room6, memory, &|name: &str| {
                    image.array(Family::V6, name)
                })
                .map_err(|error| image.blame(error))?,
                None => Fib6::build_in(v6, Layout6::Paged, room6, memory)?,
            }
        };
        let mut original = Self {
            v4,
            v6,
            mapped: provided.mapped,
            bytes: vec![0; provided.next],
            changed: Changed::default(),
        };
        let header = provided
            .header
            .iter()
            .flat_map(|number| number.to_le_bytes());
        original
            .bytes
            .iter_mut()
            .zip(header)
            .for_each(|(to, from)| *to = from);
        for mapped in &original.mapped {
            let all = 0..mapped.cells.len() * WORD;
            mapped.differing(all, &mut original.bytes, &mut Vec::new());
        }
        Ok(original)
    }

    /// What copies are to hold.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that lookups can come to: without what is left for prefixes to come.
    pub(super) fn in_use(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed.v4 || self.changed.v6
    }

    pub(super) fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.v4.insert(prefix, hop)?,
            None => self.v4.remove(prefix),
        };
        let block = |address: u32| (address >> 8) as usize;
        let blocks = block(prefix.first())..block(prefix.last()) + 1;
        self.changed.blocks.push(blocks);
        self.changed.v4 = true;
        Ok(())
    }

    pub(super) fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.v6.insert(prefix, hop)?,
            None => self.v6.remove(prefix)?,
        };
        self.changed.v6 = true;
        Ok(())
    }

    /// Has `bytes` be what the tables are now; the chunks that differ from before.
    pub(super) fn refresh(&mut self) -> Vec<usize> {
        let mut chunks = Vec::new();
        let Changed { blocks, v4, v6 } = std::mem::take(&mut self.changed);
        for mapped in &self.mapped {
            let all = 0..mapped.cells.len() * WORD;
            match (mapped.family, mapped.by_block) {
                (Family::V4, Some(width)) => {
                    for blocks in &blocks {
                        let range = blocks.start * width..blocks.end * width;
                        mapped.differing(range, &mut self.bytes, &mut chunks);
                    }
                }
                (Family::V4, None) if v4 => mapped.differing(all, &mut self.bytes, &mut chunks),
                (Family::V6, _) if v6 => mapped.differing(all, &mut self.bytes, &mut chunks),
                _ => {}
            }
        }
        chunks
    }
}

impl Provided {
    fn provide(&mut self, family: Family, section: &Section) -> io::Result<Region> {
        let file = File::from(memfd_create(c"lowroad-table", MFdFlags::MFD_CLOEXEC)?);
        let bytes = section.bytes.next_multiple_of(CHUNK);
        file.set_len(bytes as u64)?;
        let known = ARRAYS
            .iter()
            .position(|known| *known == (family, section.name));
        if let Some(place) = known {
            self.header[1 + place] = u32::try_from(self.next / CHUNK).unwrap_or(u32::MAX);
            self.mapped.push(Mapped {
                start: self.next,
                cells: Array::within(Region::shared(&file, bytes)?, bytes / WORD)?,
                by_block: (place < BY_BLOCK).then_some(section.bytes >> 24),
                family,
            });
            self.next += bytes;
        }
        Region::shared(&file, bytes)
    }
}

impl Mapped {
    /// Has the array's chunks that overlap a range be in `bytes` what they are now, and names those of
    /// `bytes` that were not.
    fn differing(&self, range: Range<usize>, bytes: &mut [u8], chunks: &mut Vec<usize>) {
        const CELLS: usize = CHUNK / WORD;
        let first = range.start / CHUNK;
        let end = range.end.div_ceil(CHUNK).min(self.cells.len() / CELLS);
        for chunk in first..end {
            let cells = &self.cells[chunk * CELLS..][..CELLS];
            let at = self.start + chunk * CHUNK;
            let (words, _) = bytes[at..at + CHUNK].as_chunks_mut::<WORD>();
            let mut differs = false;
            for (cell, word) in cells.iter().zip(words) {
                let now = cell.load(Ordering::Relaxed).to_ne_bytes();
                differs |= *word != now;
                *word = now;
            }
            if differs {
                chunks.push(at / CHUNK);
            }
        }
    }
}
