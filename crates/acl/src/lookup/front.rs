//! The first stage in plain Rust: one packet and one root at a time.

use super::{BATCH, Operations, Work, at, beats, descend, prefetch, test};
use crate::address::Address;
use crate::plan::slot;
use crate::rule::{Key, NONE};
use crate::table::{NODE, Table, filter};

/// Classifies at most [`BATCH`] keys into `work.best`.
#[inline(always)]
pub(super) fn batch<A: Address, O: Operations<A>>(
    table: &Table<A>,
    work: &mut Work<A>,
    keys: &[Key<A>],
) {
    let mut addresses = [(A::default(), A::default()); BATCH];
    let mut active = [0u32; BATCH];
    for (number, key) in keys.iter().enumerate().take(BATCH) {
        work.keys[number] = key.words();
        work.best[number] = NONE;
        addresses[number] = (key.source(), key.destination());
        active[number] = number as u32;
    }
    let entries = table.entries.as_slice();
    let mut hashes = [0u32; BATCH];
    let mut left = keys.len().min(BATCH);
    for root in &table.roots {
        let mut open = 0;
        for number in 0..left {
            let packet = active[number];
            active[open % BATCH] = packet;
            let (source, destination) = addresses[packet as usize % BATCH];
            let hash = A::mix(source, destination, root.lengths);
            hashes[open % BATCH] = hash;
            let place = root.base as usize + slot(hash, root.bits);
            prefetch(&raw const *at(entries, place));
            open += usize::from(root.best < work.best[packet as usize % BATCH]);
        }
        left = open;
        if left == 0 {
            return;
        }
        let (mut leaves, mut nodes) = (0, 0);
        for number in 0..left {
            let (packet, hash) = (active[number], hashes[number]);
            let entry = *at(entries, root.base as usize + slot(hash, root.bits));
            let reference = (entry >> 32) as u32;
            let passes = entry as u32 & filter(hash) != 0;
            let open = passes & beats(table.shift, entry, work.best[packet as usize % BATCH]);
            let inner = reference & NODE != 0;
            let (to_leaves, to_nodes) = (open & !inner, open & inner);
            work.leaves.push(&mut leaves, packet, reference, to_leaves);
            work.nodes.push(&mut nodes, packet, reference, to_nodes);
        }
        (work.leaves.len, work.nodes.len) = (leaves, nodes);
        descend::<A, O>(table, work);
        test::<A, O>(table, work);
    }
}
