//! The host's prefix tables in the form that a device gets them: one piece of memory with the arrays of both
//! families, each from a chunk boundary on. gpu/lpm.h of this crate is the twin.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6, Rib, Section};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sys::huge::{Array, Region};

use super::Error;
use crate::forward::Family;
use crate::image::ImageFile;
use crate::shape::Shape;

/// Alignment of arrays, in bytes.
pub(super) const CHUNK: usize = 4096;
const WORD: usize = size_of::<u64>();

/// Arrays in the order of the first chunk's entries, which say in which chunk each begins. Before these
/// entries is IPv4's layout.
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
/// The first arrays, which have an entry for each /24.
const BY_BLOCK: usize = 2;

#[derive(Debug)]
pub(super) struct HostTables {
    v4: Fib4,
    v6: Fib6,
    mapped: Vec<MappedArray>,
    /// The content of the device's copies after their next update.
    bytes: Vec<u8>,
    changed: DirtyRanges,
}

/// A second mapping of an array of the tables.
#[derive(Debug)]
struct MappedArray {
    /// Its offset in the copies.
    start: usize,
    cells: Array<AtomicU64>,
    /// Bytes of an entry, if the array has one for each /24.
    by_block: Option<usize>,
    family: Family,
}

/// The parts of tables that changed since the last refresh.
#[derive(Debug, Default)]
struct DirtyRanges {
    /// Ranges of /24s.
    blocks: Vec<Range<usize>>,
    v4: bool,
    v6: bool,
}

/// Provides memory for arrays, and collects their offsets and mappings.
struct ArrayProvider {
    header: Vec<u32>,
    mapped: Vec<MappedArray>,
    next: usize,
}

impl HostTables {
    pub(super) fn build(
        shape: &Shape,
        (v4, v6): (Rib<u32>, Rib<u128>),
        image: Option<&ImageFile>,
    ) -> Result<Self, Error> {
        let mut arrays = ArrayProvider {
            header: vec![0; 1 + ARRAYS.len()],
            mapped: Vec::new(),
            next: CHUNK,
        };
        arrays.header[0] = match shape.layout4 {
            Layout4::Bytes => 0,
            Layout4::Mixed => 1,
            Layout4::Words => 2,
        };
        let (layout4, room4, room6) = (shape.layout4, &shape.room4, &shape.room6);
        let v4 = {
            let memory = &mut |section: &Section| arrays.provide(Family::V4, section);
            match image {
                Some(image) => Fib4::restore(v4, layout4, room4, memory, &|name: &str| {
                    image.array(Family::V4, name)
                })
                .map_err(|error| image.blame(error))?,
                None => Fib4::build_in(v4, layout4, room4, memory)?,
            }
        };
        let v6 = {
            let memory = &mut |section: &Section| arrays.provide(Family::V6, section);
            match image {
                Some(image) => Fib6::restore(v6, Layout6::Paged, room6, memory, &|name: &str| {
                    image.array(Family::V6, name)
                })
                .map_err(|error| image.blame(error))?,
                None => Fib6::build_in(v6, Layout6::Paged, room6, memory)?,
            }
        };
        let mut tables = Self {
            v4,
            v6,
            mapped: arrays.mapped,
            bytes: vec![0; arrays.next],
            changed: DirtyRanges::default(),
        };
        let header = arrays.header.iter().flat_map(|number| number.to_le_bytes());
        tables
            .bytes
            .iter_mut()
            .zip(header)
            .for_each(|(to, from)| *to = from);
        for mapped in &tables.mapped {
            let all = 0..mapped.cells.len() * WORD;
            mapped.differing(all, &mut tables.bytes, &mut Vec::new());
        }
        Ok(tables)
    }

    /// The content that copies should have.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that lookups can reach, without spare capacity.
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

    /// Copies the current tables into `bytes`. Returns the chunks that changed.
    pub(super) fn refresh(&mut self) -> Vec<usize> {
        let mut chunks = Vec::new();
        let DirtyRanges { blocks, v4, v6 } = std::mem::take(&mut self.changed);
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

impl ArrayProvider {
    fn provide(&mut self, family: Family, section: &Section) -> io::Result<Region> {
        let file = File::from(memfd_create(c"lowroad-table", MFdFlags::MFD_CLOEXEC)?);
        let bytes = section.bytes.next_multiple_of(CHUNK);
        file.set_len(bytes as u64)?;
        let known = ARRAYS
            .iter()
            .position(|known| *known == (family, section.name));
        if let Some(place) = known {
            self.header[1 + place] = u32::try_from(self.next / CHUNK).unwrap_or(u32::MAX);
            self.mapped.push(MappedArray {
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

impl MappedArray {
    /// Copies the array's chunks that overlap a range into `bytes`, and adds those that changed to `chunks`.
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
