//! The reading end of a BPF ring buffer: records where they lie, without a call for each.

use std::io;
use std::os::fd::AsFd;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::mmap::Region;

/// In a record's length: the program has not submitted it yet.
const BUSY_BIT: u32 = 1 << 31;
/// In a record's length: the program has thought better of it.
const DISCARD_BIT: u32 = 1 << 30;
/// A length, and a word of the kernel's own.
const HEADER: u64 = 8;

/// A mapped ring. The kernel allows one reader.
#[derive(Debug)]
pub struct Ring {
    positions: Gauge,
    page: usize,
    size: usize,
}

/// Shows how full a ring is, also to others than its reader.
#[derive(Clone, Debug)]
pub struct Gauge {
    /// The reader's position, then, in a page each, the writer's and the records, these twice in a
    /// row so that none is split.
    consumer: Arc<Region>,
    producer: Arc<Region>,
    size: u64,
}

impl Ring {
    /// Maps the ring of `size` bytes, as its map was made.
    pub fn new(map: impl AsFd, size: u32) -> io::Result<Self> {
        let page = page_size()?;
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let offset = u64::try_from(page).map_err(io::Error::other)?;
        Ok(Self {
            positions: Gauge {
                consumer: Arc::new(Region::shared(&map, page, 0)?),
                producer: Arc::new(Region::read_only(&map, page + 2 * size, offset)?),
                size: size as u64,
            },
            page,
            size,
        })
    }

    /// Hands on the records that are there.
    pub fn consume(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(record) = self.peek() {
            take(record);
            self.pop();
        }
    }

    /// The first record, if one is there.
    pub fn peek(&mut self) -> Option<&[u8]> {
        let end = self.positions.producer().load(Ordering::Acquire);
        loop {
            let position = self.position();
            if position >= end {
                return None;
            }
            let length = self.length(position).load(Ordering::Acquire);
            if length & BUSY_BIT != 0 {
                return None;
            }
            if length & DISCARD_BIT == 0 {
                return Some(self.bytes(position + HEADER, length.into()));
            }
            self.pop();
        }
    }

    /// Leaves the first record to be overwritten. There must be one: `peek` has shown it.
    pub fn pop(&mut self) {
        let position = self.position();
        let length = self.length(position).load(Ordering::Relaxed) & !DISCARD_BIT;
        let next = position + (HEADER + u64::from(length)).next_multiple_of(8);
        self.positions.consumer().store(next, Ordering::Release);
    }

    /// Bytes that are there for records.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// The start of the next record to be read. Positions only grow.
    pub fn position(&self) -> u64 {
        self.positions.consumer().load(Ordering::Relaxed)
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> u64 {
        self.positions.waiting()
    }

    /// Tells how full it is after this has been moved elsewhere, too.
    pub fn gauge(&self) -> Gauge {
        self.positions.clone()
    }

    fn length(&self, position: u64) -> &AtomicU32 {
        // SAFETY: records start at multiples of 8 within the data pages with this number, which the
        // kernel writes; it is only loaded.
        unsafe { AtomicU32::from_ptr(self.data(position).cast()) }
    }

    /// `length` bytes at a position, of a record that is submitted.
    fn bytes(&self, position: u64, length: u64) -> &[u8] {
        let length = usize::try_from(length).unwrap_or(0).min(self.size);
        // SAFETY: the data is mapped twice in a row, so that what starts in the first copy and is
        // not longer than the ring lies in the mapping; the kernel writes it no more until the
        // reader's position has passed, which needs `&mut self`.
        unsafe { slice::from_raw_parts(self.data(position), length) }
    }

    fn data(&self, position: u64) -> *mut u8 {
        let within = usize::try_from(position).unwrap_or(0) & (self.size - 1);
        // SAFETY: the offset is below a page and the ring's size, and the mapping is longer.
        unsafe { self.positions.producer.as_ptr().add(self.page + within) }
    }
}

impl Gauge {
    /// Bytes that wait.
    pub fn waiting(&self) -> u64 {
        // The reader's first: it never passes the writer's.
        let begin = self.consumer().load(Ordering::Acquire);
        self.producer().load(Ordering::Acquire) - begin
    }

    /// Bytes that are there for records.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn consumer(&self) -> &AtomicU64 {
        // SAFETY: the page starts with this number, which only the reader writes and the kernel
        // reads; the mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.consumer.as_ptr().cast()) }
    }

    fn producer(&self) -> &AtomicU64 {
        // SAFETY: the mapping starts with this number, which the kernel writes; it is only loaded.
        unsafe { AtomicU64::from_ptr(self.producer.as_ptr().cast()) }
    }
}

fn page_size() -> io::Result<usize> {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?;
    page.and_then(|page| usize::try_from(page).ok())
        .ok_or_else(|| io::Error::other("no page size"))
}
