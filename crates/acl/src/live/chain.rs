//! An append-only hash table of chains: one writer, any number of readers, no locks.

#![expect(
    clippy::cast_possible_truncation,
    reason = "places below a capacity that fits"
)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::array::Array;
use crate::error::Error;
use crate::rule::NONE;

/// log2 of the chains.
const HEAD_BITS: u32 = 18;

/// Places in memory that is reserved at once and touched as it fills.
#[derive(Debug)]
pub(super) struct Chains<T> {
    heads: Vec<AtomicU32>,
    /// A bit for each chain that has links: small enough to stay in a near cache.
    filled: Vec<AtomicU64>,
    links: Array<UnsafeCell<MaybeUninit<T>>>,
    len: AtomicUsize,
    capacity: usize,
}

// SAFETY: a link is written once, before its place is published with release order, and only read
// after that; see `push` and `get`.
unsafe impl<T: Send + Sync> Sync for Chains<T> {}

impl<T> Chains<T> {
    pub(super) fn new(capacity: usize) -> Result<Self, Error> {
        let heads = (0..1 << HEAD_BITS).map(|_| AtomicU32::new(0)).collect();
        let filled = (0..1 << (HEAD_BITS - 6))
            .map(|_| AtomicU64::new(0))
            .collect();
        Ok(Self {
            heads,
            filled,
            links: Array::reserve(capacity)?,
            len: AtomicUsize::new(0),
            capacity,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Links what `make` makes of the chain's present head, at the front of the chain; `None` when
    /// there is no room. The caller sees to it that there is one writer at a time.
    pub(super) fn push(&self, hash: u32, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let at = self.len.load(Ordering::Relaxed);
        if at >= self.capacity {
            return None;
        }
        let head = &self.heads[(hash >> (32 - HEAD_BITS)) as usize];
        let link = make(head.load(Ordering::Relaxed).wrapping_sub(1));
        // SAFETY: the place is within the reservation, and nobody reads it before it is published.
        unsafe { (*(*self.links.as_ptr().add(at)).get()).write(link) };
        self.len.store(at + 1, Ordering::Release);
        head.store(at as u32 + 1, Ordering::Release);
        let chain = (hash >> (32 - HEAD_BITS)) as usize;
        self.filled[chain / 64].fetch_or(1 << (chain % 64), Ordering::Release);
        Some(at as u32)
    }

    /// Whether a chain has links.
    #[inline]
    pub(super) fn any(&self, hash: u32) -> bool {
        let chain = (hash >> (32 - HEAD_BITS)) as usize;
        self.filled[chain / 64].load(Ordering::Acquire) >> (chain % 64) & 1 == 1
    }

    /// The first link of a chain, else [`NONE`].
    #[inline]
    pub(super) fn head(&self, hash: u32) -> u32 {
        let head = &self.heads[(hash >> (32 - HEAD_BITS)) as usize];
        // Stored one higher, so that zeroed memory is empty chains.
        head.load(Ordering::Acquire).wrapping_sub(1)
    }

    /// A link that has been published.
    #[inline]
    pub(super) fn get(&self, at: u32) -> &T {
        debug_assert!((at as usize) < self.len() && at != NONE);
        // SAFETY: places come from heads, from links or from `len`, all of which are published after
        // the link is written.
        unsafe { (*(*self.links.as_ptr().add(at as usize)).get()).assume_init_ref() }
    }

    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        crate::lookup::prefetch(self.links.as_ptr().wrapping_add(at as usize));
    }
}
