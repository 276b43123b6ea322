//! The lookup of a batch, step by step for many addresses at a time, so that their misses overlap.
//! Only the search of a line is left to the instruction set.

use std::sync::atomic::{AtomicU16, Ordering};

use super::trie::{Entry, LINE, Trie};

/// Addresses taken through each step together.
const BLOCK: usize = 64;

/// `answer` finds bits 32..48 of an address in a line.
#[inline(always)]
pub(super) fn look_up(
    trie: &Trie,
    addresses: &[[u8; 16]],
    hops: &mut [u16],
    answer: impl Fn(&[AtomicU16; LINE], u16) -> u16,
) {
    for (addresses, hops) in addresses.chunks(BLOCK).zip(hops.chunks_mut(BLOCK)) {
        let version = trie.version();
        block(trie, addresses, hops, &answer);
        let undecided = |hop: u16| hop.wrapping_sub(1) >= 0x7fff;
        if hops.iter().fold(false, |any, &hop| any | undecided(hop)) {
            for (address, hop) in addresses.iter().zip(hops) {
                if undecided(*hop) {
                    *hop = trie.resolve(*address, *hop, version);
                }
            }
        }
    }
}

#[inline(always)]
fn block(
    trie: &Trie,
    addresses: &[[u8; 16]],
    hops: &mut [u16],
    answer: &impl Fn(&[AtomicU16; LINE], u16) -> u16,
) {
    let mut entries = [Entry::answer(0); BLOCK];
    let mut xs = [0u16; BLOCK];
    for ((address, entry), x) in addresses.iter().zip(&mut entries).zip(&mut xs) {
        let [a, b, c, d, e, f, ..] = *address;
        *entry = Entry(
            trie.slot(u32::from_be_bytes([a, b, c, d]))
                .load(Ordering::Relaxed),
        );
        *x = u16::from_be_bytes([e, f]);
    }
    let mut lines = [(0u32, 0u16); BLOCK];
    let mut count = 0;
    for (at, (entry, hop)) in entries.iter().zip(hops.iter_mut()).enumerate() {
        let x = u32::from(xs[at]);
        let mut entry = *entry;
        if entry.is_cells() {
            entry = trie.cell(entry.target(x));
        }
        // Right where it is an answer; others are overwritten below.
        *hop = entry.0 as u16;
        lines[count] = (entry.target(x), at as u16);
        count += usize::from(!entry.is_answer());
    }
    let (all, _) = trie.lines.as_chunks::<LINE>();
    for &(line, at) in &lines[..count] {
        let at = usize::from(at);
        hops[at] = answer(&all[line as usize], xs[at]);
    }
}
