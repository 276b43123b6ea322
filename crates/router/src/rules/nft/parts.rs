//! The packets that have come to a statement of a rule.

use std::slice;

use crate::budget::{Budget, Exhaustion};
use crate::rules::region::{self, Region};

/// Negated concatenations cut packets into no more parts than this.
const MAX_PARTS: usize = 1 << 12;

/// Packets for which the rule's next statement may be, and whether it is for certain.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) region: Region,
    pub(super) certain: bool,
}

/// The parts that are in `packets`.
pub(super) fn hits(
    parts: &[Part],
    packets: &[Region],
    budget: &Budget,
) -> Result<Vec<Part>, Exhaustion> {
    let (mut hits, mut bytes) = (Vec::new(), 0);
    for part in parts {
        let certain = part.certain;
        let both = region::intersections(slice::from_ref(&part.region), packets, budget)?;
        bytes += both.iter().map(Region::bytes).sum::<usize>();
        budget.room(bytes)?;
        hits.extend(both.into_iter().map(|region| Part { region, certain }));
    }
    Ok(hits)
}

/// What of the parts is not in `packets`; nothing if it is too many.
pub(super) fn misses(
    parts: &[Part],
    packets: &[Region],
    budget: &Budget,
) -> Result<Option<Vec<Part>>, Exhaustion> {
    let mut misses = Vec::new();
    for part in parts {
        let certain = part.certain;
        let mut left = vec![part.region.clone()];
        for packets in packets {
            left = region::difference(left, slice::from_ref(packets), budget)?;
            if misses.len() + left.len() > MAX_PARTS {
                return Ok(None);
            }
        }
        misses.extend(left.into_iter().map(|region| Part { region, certain }));
    }
    Ok(Some(misses))
}
