//! A hash table of chains: one writer, any number of readers, no locks. Nothing in it moves or is
//! freed before all of it; what leaves a chain still leads those who stand on it back to the chain.

#![expect(
    clippy::cast_possible_truncation,
    reason = "places below a capacity that fits"
)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::array::Array;
use crate::error::Error;
use crate::rule::NONE;

/// log2 of the chains.
const HEAD_BITS: u32 = 18;

/// Places in memory that is reserved at once and touched as it fills.
#[derive(Debug)]
pub(super) struct Chains<T> {
    /// Places one higher than they are, so that zeroed memory is empty chains.
    heads: Vec<AtomicU32>,
    /// A bit for each chain that has links: small enough to stay in a near cache.
    filled: Vec<AtomicU64>,
    links: Array<UnsafeCell<MaybeUninit<Link<T>>>>,
    len: AtomicUsize,
    capacity: usize,
}

#[derive(Debug)]
struct Link<T> {
    item: T,
    /// The next in the chain, else [`NONE`].
    next: AtomicU32,
}

/// The one writer of all chains. It cannot be cloned.
#[derive(Debug)]
pub(super) struct ChainWriter<T> {
    chains: Arc<Chains<T>>,
}

// SAFETY: a link is written once, before its place is published with release order, and but for
// atomics only read after that; see `ChainWriter::push` and `Chains::get`.
unsafe impl<T: Send + Sync> Sync for Chains<T> {}

impl<T> ChainWriter<T> {
    pub(super) fn new(capacity: usize) -> Result<Self, Error> {
        let heads = (0..1 << HEAD_BITS).map(|_| AtomicU32::new(0)).collect();
        let filled = (0..1 << (HEAD_BITS - 6))
            .map(|_| AtomicU64::new(0))
            .collect();
        let chains = Arc::new(Chains {
            heads,
            filled,
            links: Array::reserve(capacity)?,
            len: AtomicUsize::new(0),
            capacity,
        });
        Ok(Self { chains })
    }

    /// For readers.
    pub(super) fn chains(&self) -> &Arc<Chains<T>> {
        &self.chains
    }

    /// Puts an item at the front of a chain; `None` when there is no room.
    pub(super) fn push(&mut self, hash: u32, item: T) -> Option<u32> {
        let chains = &*self.chains;
        let at = chains.len.load(Ordering::Relaxed);
        if at >= chains.capacity {
            return None;
        }
        let chain = chain(hash);
        let head = &chains.heads[chain];
        let next = AtomicU32::new(head.load(Ordering::Relaxed).wrapping_sub(1));
        let link = Link { item, next };
        // SAFETY: the place is within the reservation, no reader sees it before it is published, and
        // there is only one writer, which is borrowed exclusively.
        unsafe { (*(*chains.links.as_ptr().add(at)).get()).write(link) };
        chains.len.store(at + 1, Ordering::Release);
        head.store(at as u32 + 1, Ordering::Release);
        chains.filled[chain / 64].fetch_or(1 << (chain % 64), Ordering::Release);
        Some(at as u32)
    }

    /// Takes a link out of its chain: who comes to the chain from now on does not see it.
    pub(super) fn unlink(&mut self, hash: u32, at: u32) {
        let chains = &*self.chains;
        let chain = chain(hash);
        let next = chains.next(at);
        let mut before = chains.head(hash);
        if before == at {
            chains.heads[chain].store(next.wrapping_add(1), Ordering::Release);
            if next == NONE {
                chains.filled[chain / 64].fetch_and(!(1 << (chain % 64)), Ordering::Release);
            }
            return;
        }
        while before != NONE {
            let after = chains.next(before);
            if after == at {
                chains.link(before).next.store(next, Ordering::Release);
                return;
            }
            before = after;
        }
    }
}

impl<T> Chains<T> {
    /// Links that ever were.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether a chain has links.
    #[inline]
    pub(super) fn any(&self, hash: u32) -> bool {
        let chain = chain(hash);
        self.filled[chain / 64].load(Ordering::Acquire) >> (chain % 64) & 1 == 1
    }

    /// The first link of a chain, else [`NONE`].
    #[inline]
    pub(super) fn head(&self, hash: u32) -> u32 {
        self.heads[chain(hash)]
            .load(Ordering::Acquire)
            .wrapping_sub(1)
    }

    /// The link after one, else [`NONE`].
    #[inline]
    pub(super) fn next(&self, at: u32) -> u32 {
        self.link(at).next.load(Ordering::Acquire)
    }

    /// The item of a published link.
    #[inline]
    pub(super) fn get(&self, at: u32) -> &T {
        &self.link(at).item
    }

    #[inline]
    fn link(&self, at: u32) -> &Link<T> {
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

/// The number of a hash's chain.
#[inline]
fn chain(hash: u32) -> usize {
    (hash >> (32 - HEAD_BITS)) as usize
}
