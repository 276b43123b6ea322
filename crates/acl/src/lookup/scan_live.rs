//! Finds the first rule for one key and skips erased rules. A batch cannot do that, and needs it while the
//! table still holds erased rules.

use super::at;
use super::portable::Portable;
use crate::address::Address;
use crate::line::Line;
use crate::plan::slot;
use crate::rule::{Key, NONE};
use crate::table::{LINE_BITS, LINE_MASK, NODE, Table, filter, kind};

/// The order of the first live rule that matches, or [`NONE`].
pub(crate) fn first_live<A: Address>(
    table: &Table<A>,
    key: &Key<A>,
    is_live: impl Fn(u32) -> bool,
) -> u32 {
    let words = key.words();
    let mut best = NONE;
    for root in &table.roots {
        if root.best >= best {
            break;
        }
        let hash = A::mix(key.source(), key.destination(), root.lengths);
        let place = root.base as usize + slot(hash, root.bits);
        let entry = *at(table.entries.as_slice(), place);
        if entry as u32 & filter(hash) != 0 {
            best = best.min(below(table, entry, &words, &is_live));
        }
    }
    best
}

/// The first in the leaf that the key comes to below an entry.
fn below<A: Address>(
    table: &Table<A>,
    mut entry: u64,
    key: &A::Words,
    is_live: &impl Fn(u32) -> bool,
) -> u32 {
    let entries = table.entries.as_slice();
    let (start, count) = loop {
        let reference = (entry >> 32) as u32;
        if reference & NODE == 0 {
            let start = reference & LINE_MASK;
            break (start as usize, (reference >> LINE_BITS) as usize);
        }
        let node = at(table.nodes.as_slice(), (reference & !NODE) as usize);
        let child = match node.kind {
            kind::CUT => super::cut::<A, Portable>(node, key),
            kind::SPLIT => super::split::<A, Portable>(entries, node, key),
            _ => break (node.base as usize, node.masks[0] as usize),
        };
        entry = *at(entries, child as usize);
    };
    let lines = &table.lines.as_slice()[start..start + count];
    let rules = lines
        .iter()
        .flat_map(|line| (0..A::Line::RULES).map(move |slot| (line, slot)));
    let mut matching = rules.filter(|(line, slot)| line.holds(*slot, key.as_ref()));
    let first = matching.find(|(line, slot)| is_live(line.order(*slot)));
    first.map_or(NONE, |(line, slot)| line.order(slot))
}
