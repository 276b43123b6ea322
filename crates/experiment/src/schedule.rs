//! The order of trials in a block, from the stored seed alone.

use report::record::BASELINE_RUNS;
use splitmix::SplitMix64;

/// One trial to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Index into the plan's loads.
    pub(crate) load: usize,
    /// Index into the plan's arms.
    pub(crate) arm: usize,
    /// Which run of this arm in the block: the baseline has 0, 1 and 2.
    pub(crate) repeat: u8,
    /// Seed of everything random in the trial.
    pub(crate) seed: u64,
}

/// The trials of one block: every load, and under it every arm once and the baseline three times,
/// each in random order.
pub(crate) fn block(
    seed: u64,
    block: usize,
    loads: usize,
    arms: usize,
    baseline: usize,
) -> Vec<Slot> {
    let mut random = SplitMix64::new(seed ^ (block as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut order: Vec<usize> = (0..loads).collect();
    random.shuffle(&mut order);
    let mut slots = Vec::new();
    for load in order {
        let first = slots.len();
        for arm in 0..arms {
            let runs = if arm == baseline { BASELINE_RUNS } else { 1 };
            slots.extend((0..runs).map(|repeat| Slot {
                load,
                arm,
                repeat,
                seed: 0,
            }));
        }
        random.shuffle(&mut slots[first..]);
        for slot in &mut slots[first..] {
            slot.seed = random.next_u64();
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_block_holds_every_arm_once_and_the_baseline_three_times() {
        let slots = block(7, 3, 2, 4, 1);
        assert_eq!(slots.len(), 2 * (3 + 3));
        let kinds: BTreeSet<_> = slots.iter().map(|s| (s.load, s.arm, s.repeat)).collect();
        assert_eq!(kinds.len(), slots.len());
        assert!(kinds.contains(&(1, 1, 2)) && !kinds.contains(&(0, 0, 1)));
    }

    #[test]
    fn the_order_depends_on_seed_and_block_only() {
        assert_eq!(block(7, 3, 2, 4, 1), block(7, 3, 2, 4, 1));
        assert_ne!(block(7, 3, 2, 4, 1), block(7, 4, 2, 4, 1));
        assert_ne!(block(7, 3, 2, 4, 1), block(8, 3, 2, 4, 1));
    }

    #[test]
    fn every_position_is_reached_by_every_arm() {
        let mut seen = BTreeSet::new();
        for number in 0..200 {
            for (position, slot) in block(1, number, 1, 3, 0).iter().enumerate() {
                seen.insert((position, slot.arm));
            }
        }
        assert_eq!(seen.len(), 5 * 3);
    }
}
