//! The tables that readers see, as flat arrays without pointers, and the lookup that every machine
//! can do.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering, fence};

use sys::huge::Array;

use super::capacity::Capacity4;
use super::entry::Entry;
use crate::Error;
use crate::memory::{Provider, array};

/// Entries of the first table: one for each /24.
pub(super) const BLOCKS: usize = 1 << 24;
/// A gather of four bytes at the last entry reads up to three more.
pub(super) const PAD: usize = 4;
/// Entries of a group: one for each address of a /24. As many pages' entries: one for each /24 of a
/// /16.
pub(super) const GROUP: usize = 256;
/// /16s.
pub(super) const SLASH16: usize = 1 << 16;

/// An escape in `first` leads by the address's /16 to a page, by its /24 to a group, and by its last
/// byte to the answer.
#[derive(Debug)]
pub(super) struct Dir24<E: Entry> {
    pub(super) first: Array<E::Cell>,
    /// `first` in bytes, where all that does not fit a byte is an escape to `first`.
    pub(super) projection: Option<Array<AtomicU8>>,
    /// For each /16 with a group, its page.
    pub(super) page_of: Array<AtomicU16>,
    /// Pages of 256 numbers of groups.
    pub(super) pages: Array<AtomicU32>,
    pub(super) groups: Array<E::Cell>,
}

/// An address as a caller has it.
pub(super) trait Key: Copy {
    /// Whether the bytes are in network order.
    #[cfg(target_arch = "x86_64")]
    const IS_NETWORK_ORDER: bool;
    /// In host order.
    fn address(self) -> u32;
}

impl Key for u32 {
    #[cfg(target_arch = "x86_64")]
    const IS_NETWORK_ORDER: bool = false;

    #[inline(always)]
    fn address(self) -> u32 {
        self
    }
}

impl Key for [u8; 4] {
    #[cfg(target_arch = "x86_64")]
    const IS_NETWORK_ORDER: bool = true;

    #[inline(always)]
    fn address(self) -> u32 {
        u32::from_be_bytes(self)
    }
}

impl<E: Entry> Dir24<E> {
    pub(super) fn new(
        projected: bool,
        capacity: &Capacity4,
        memory: &mut Provider<'_>,
    ) -> Result<Self, Error> {
        let projection = projected.then(|| array(memory, capacity.projection()));
        Ok(Self {
            first: array(memory, capacity.first::<E>())?,
            projection: projection.transpose()?,
            page_of: array(memory, capacity.page_of())?,
            pages: array(memory, capacity.pages())?,
            groups: array(memory, capacity.groups::<E>())?,
        })
    }

    pub(super) fn projection(&self) -> Option<&Array<AtomicU8>> {
        self.projection.as_ref()
    }

    pub(super) fn lookup_batch<K: Key>(&self, keys: &[K], hops: &mut [u16]) {
        by_blocks::<E, K>(&self.first, keys, hops, |address| {
            self.resolve_group(address)
        });
    }

    /// As `lookup_batch`, by the table of bytes first.
    pub(super) fn lookup_batch_by<K: Key>(&self, bytes: &[AtomicU8], keys: &[K], hops: &mut [u16]) {
        by_blocks::<u8, K>(bytes, keys, hops, |address| self.resolve_word(address));
    }

    /// The answer where the byte of an address is an escape.
    pub(super) fn resolve_word(&self, address: u32) -> u16 {
        fence(Ordering::Acquire);
        let entry = E::load(&self.first[(address >> 8) as usize]);
        if entry == E::ESCAPE {
            return self.resolve_group(address);
        }
        entry.code()
    }

    /// The answer where the first table's entry is an escape.
    #[cold]
    pub(super) fn resolve_group(&self, address: u32) -> u16 {
        // The block behind the escape was written before it.
        fence(Ordering::Acquire);
        let group = self.page_entry(address >> 8).load(Ordering::Acquire) as usize;
        E::load(&self.groups[group * GROUP + (address as usize & (GROUP - 1))]).code()
    }

    /// The cell with the group of a /24, which lies in a /16 that has a page.
    pub(super) fn page_entry(&self, block: u32) -> &AtomicU32 {
        let page = self.page_of[block as usize >> 8].load(Ordering::Relaxed);
        &self.pages[usize::from(page) * GROUP + (block as usize & (GROUP - 1))]
    }
}

/// Addresses looked up before the first answer is looked at.
const BLOCK: usize = 64;

/// A block's entries are stored as they are and looked at afterwards: so few instructions lie
/// between two reads of the table that their misses overlap, and the rest is done in vectors.
#[inline(always)]
fn by_blocks<E: Entry, K: Key>(
    table: &[E::Cell],
    keys: &[K],
    hops: &mut [u16],
    resolve_group: impl Fn(u32) -> u16,
) {
    let table: &[E::Cell; BLOCKS] = table.first_chunk().expect("a table of all /24s");
    let read = |key: K| E::load(&table[(key.address() >> 8) as usize]);
    let (keys, rest) = keys.as_chunks::<BLOCK>();
    let (hops, rest_hops) = hops.as_chunks_mut::<BLOCK>();
    let mut entries = [E::ESCAPE; BLOCK];
    for (keys, hops) in keys.iter().zip(hops) {
        for (key, entry) in keys.iter().zip(&mut entries) {
            *entry = read(*key);
        }
        // All of them, that the compiler may compare a vector at a time.
        let any = entries
            .iter()
            .fold(false, |any, &entry| any | (entry == E::ESCAPE));
        for (entry, hop) in entries.iter().zip(hops.iter_mut()) {
            *hop = entry.code();
        }
        if any {
            resolve(keys, hops, E::ESCAPE.code(), &resolve_group);
        }
    }
    for (key, hop) in rest.iter().zip(rest_hops.iter_mut()) {
        *hop = read(*key).code();
    }
    resolve(rest, rest_hops, E::ESCAPE.code(), &resolve_group);
}

#[cold]
fn resolve<K: Key>(keys: &[K], hops: &mut [u16], escape: u16, resolve_group: &impl Fn(u32) -> u16) {
    for (key, hop) in keys.iter().zip(hops) {
        if *hop == escape {
            *hop = resolve_group(key.address());
        }
    }
}
