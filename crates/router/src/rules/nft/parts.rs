//! The packets that have come to a statement of a rule.

use crate::rules::region::Region;

/// A rule's packets are cut into no more regions than this.
const MOST_PARTS: usize = 1 << 16;
/// Negated concatenations cut packets into no more.
const MOST_CUT: usize = 1 << 12;

/// Packets for which the rule's next statement may be, and whether it is for certain.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) region: Region,
    pub(super) certain: bool,
}

/// The parts that are in `packets`; nothing if they are too many.
pub(super) fn hits(parts: &[Part], packets: &[Region]) -> Option<Vec<Part>> {
    if parts.len().saturating_mul(packets.len()) > MOST_PARTS {
        return None;
    }
    let within = |part: &Part| {
        let certain = part.certain;
        let both = packets
            .iter()
            .filter_map(|packets| part.region.intersect(packets));
        both.map(|region| Part { region, certain })
            .collect::<Vec<_>>()
    };
    Some(parts.iter().flat_map(within).collect())
}

/// What of the parts is not in `packets`; nothing if it is too many.
pub(super) fn misses(parts: &[Part], packets: &[Region]) -> Option<Vec<Part>> {
    let mut left = parts.to_vec();
    for packets in packets {
        let outside = |part: &Part| {
            let certain = part.certain;
            let rest = part.region.subtract(packets).into_iter();
            rest.map(move |region| Part { region, certain })
        };
        left = left.iter().flat_map(outside).collect();
        if left.len() > MOST_CUT {
            return None;
        }
    }
    Some(left)
}

pub(super) fn too_many() -> String {
    format!("comes to more than {MOST_PARTS} regions: use smaller sets of concatenations")
}
