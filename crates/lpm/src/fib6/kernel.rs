//! The lookup of a batch, step by step for many addresses at a time, so that their misses overlap.
//! Only the search of a line is left to the instruction set.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of addresses and entries"
)]

use std::sync::atomic::{AtomicU16, Ordering};

use super::trie::{Entry, LINE, Trie};

/// Addresses taken through each step together.
const BLOCK: usize = 128;

/// The search of a line by one instruction set.
pub(super) trait Search {
    /// The answer of a line for bits 32..48 of an address.
    fn answer(&self, line: &[AtomicU16; LINE], x: u16) -> u16;
    /// Asks for a line that will be searched.
    fn prefetch(&self, line: &[AtomicU16; LINE]);
}

/// The state of a block between the steps, by the address's place in the block.
struct Block {
    entries: [u32; BLOCK],
    xs: [u32; BLOCK],
    answers: [u16; BLOCK],
    /// The items to read next, and the places of the addresses that they are for.
    targets: [u32; BLOCK],
    places: [u32; BLOCK],
}

#[inline(always)]
pub(super) fn look_up(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16], search: &impl Search) {
    let mut block = Block {
        entries: [0; BLOCK],
        xs: [0; BLOCK],
        answers: [0; BLOCK],
        targets: [0; BLOCK],
        places: [0; BLOCK],
    };
    for (addresses, hops) in addresses.chunks(BLOCK).zip(hops.chunks_mut(BLOCK)) {
        let version = trie.version();
        block.look_up(trie, addresses, search);
        hops.copy_from_slice(&block.answers[..hops.len()]);
        resolve(trie, addresses, hops, version);
    }
}

/// Looks further for those addresses whose answer is none or a deep block.
#[inline(always)]
pub(super) fn resolve(trie: &Trie, addresses: &[[u8; 16]], hops: &mut [u16], version: u64) {
    let undecided = |hop: u16| hop.wrapping_sub(1) >= 0x7fff;
    if !hops.iter().fold(false, |any, &hop| any | undecided(hop)) {
        return;
    }
    for (address, hop) in addresses.iter().zip(hops) {
        if undecided(*hop) {
            *hop = trie.resolve(*address, *hop, version);
        }
    }
}

impl Block {
    #[inline(always)]
    fn look_up(&mut self, trie: &Trie, addresses: &[[u8; 16]], search: &impl Search) {
        let len = addresses.len().min(BLOCK);
        for (at, address) in addresses.iter().enumerate().take(len) {
            let [a, b, c, d, e, f, ..] = *address;
            let slot = trie.slot(u32::from_be_bytes([a, b, c, d]));
            self.entries[at % BLOCK] = slot.load(Ordering::Relaxed);
            self.xs[at % BLOCK] = u16::from_be_bytes([e, f]).into();
        }
        // Lists in place of branches, which random addresses would make unpredictable.
        let cells = self.list(len, Entry::is_cells);
        for at in 0..cells {
            let (target, place) = self.entry_at(at);
            self.entries[place] = trie.cell(target).0;
        }
        for (answer, entry) in self.answers.iter_mut().zip(&self.entries).take(len) {
            // Right where it is an answer; others are overwritten below.
            *answer = *entry as u16;
        }
        let lines = self.list(len, |entry| !entry.is_answer());
        let (all, _) = trie.lines.as_chunks::<LINE>();
        for &target in &self.targets[..lines] {
            search.prefetch(&all[target as usize]);
        }
        for at in 0..lines {
            let (target, place) = self.entry_at(at);
            self.answers[place] = search.answer(&all[target as usize], self.xs[place] as u16);
        }
    }

    /// Lists the targets of the entries that are of a kind; returns how many there are.
    #[inline(always)]
    fn list(&mut self, len: usize, kind: impl Fn(Entry) -> bool) -> usize {
        let mut count = 0;
        for at in 0..len {
            let entry = Entry(self.entries[at % BLOCK]);
            self.targets[count % BLOCK] = entry.target(self.xs[at % BLOCK]);
            self.places[count % BLOCK] = at as u32;
            count += usize::from(kind(entry));
        }
        count.min(BLOCK)
    }

    #[inline(always)]
    fn entry_at(&self, at: usize) -> (u32, usize) {
        (
            self.targets[at % BLOCK],
            self.places[at % BLOCK] as usize % BLOCK,
        )
    }
}
