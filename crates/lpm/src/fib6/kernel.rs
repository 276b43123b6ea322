//! The lookup of a batch, step by step for many addresses at a time, so that their misses overlap.
//! Only the search of a line is left to the instruction set.

use std::sync::atomic::{AtomicU16, Ordering};

use super::trie::{Entry, LINE, LINES, Trie};

/// Addresses taken through each step together.
const BLOCK: usize = 128;

/// `answer` finds bits 32..48 of an address in a line, `prefetch` asks for a line.
#[inline(always)]
pub(super) fn look_up(
    trie: &Trie,
    addresses: &[[u8; 16]],
    hops: &mut [u16],
    answer: impl Fn(&[AtomicU16; LINE], u16) -> u16,
    prefetch: impl Fn(&[AtomicU16; LINE]),
) {
    for (addresses, hops) in addresses.chunks(BLOCK).zip(hops.chunks_mut(BLOCK)) {
        let version = trie.version();
        block(trie, addresses, hops, &answer, &prefetch);
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
    prefetch: &impl Fn(&[AtomicU16; LINE]),
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
    // Lists in place of branches, which random addresses would make unpredictable.
    let mut list = [(0u32, 0u16); BLOCK];
    let mut count = 0;
    for (at, (entry, x)) in entries.iter().zip(&xs).enumerate().take(addresses.len()) {
        list[count] = (entry.target((*x).into()), at as u16);
        count += usize::from(entry.is_cells());
    }
    for &(cell, at) in &list[..count] {
        entries[usize::from(at)] = trie.cell(cell);
    }
    let (lines, _) = trie.lines.as_chunks::<LINE>();
    count = 0;
    for (at, ((entry, x), hop)) in entries.iter().zip(&xs).zip(hops.iter_mut()).enumerate() {
        let line = entry.target((*x).into());
        prefetch(&lines[line as usize % LINES]);
        // Right where it is an answer; others are overwritten below.
        *hop = entry.0 as u16;
        list[count] = (line, at as u16);
        count += usize::from(!entry.is_answer());
    }
    for &(line, at) in &list[..count] {
        let at = usize::from(at);
        hops[at] = answer(&lines[line as usize % LINES], xs[at]);
    }
}
