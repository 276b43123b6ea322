//! Stack samples of an arm, all its clean trials together: hottest functions and call tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::Analysis;
use crate::record::Stacks;

/// A function of a call tree, or the root above all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Samples this was on the stack in.
    pub(crate) total: usize,
    pub(crate) children: BTreeMap<String, Self>,
}

/// (function, samples), most first.
pub(crate) type Ranking = Vec<(String, u64)>;

impl Frame {
    pub(crate) fn of(stacks: &Stacks) -> Self {
        let mut root = Self::default();
        for (stack, &samples) in &stacks.folded {
            let samples = usize::try_from(samples).unwrap_or(usize::MAX);
            let mut frame = &mut root;
            frame.total += samples;
            for name in stack.split(';') {
                frame = frame.children.entry(name.to_owned()).or_default();
                frame.total += samples;
            }
        }
        root
    }

    /// Levels below this one of frames with at least `least` samples.
    pub(crate) fn depth(&self, least: f64) -> usize {
        self.children
            .values()
            .filter(|child| crate::svg::float(child.total) >= least)
            .map(|child| 1 + child.depth(least))
            .max()
            .unwrap_or(0)
    }
}

/// The samples of an arm's trials under a load; none where none were taken.
pub fn of_arm(analysis: &Analysis<'_>, load: &str, arm: &str) -> Option<Stacks> {
    let mut merged = Stacks::default();
    for trial in analysis.first_trials() {
        let wanted = trial.arm == arm && trial.repeat == 0 && trial.load == load;
        let Some(stacks) = &trial.stacks else {
            continue;
        };
        if wanted {
            merged.obtained += stacks.obtained;
            merged.expected += stacks.expected;
            for (stack, samples) in &stacks.folded {
                *merged.folded.entry(stack.clone()).or_insert(0) += samples;
            }
        }
    }
    (merged.obtained > 0).then_some(merged)
}

/// Functions by the samples they were running in.
pub(crate) fn flat(stacks: &Stacks) -> Ranking {
    let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in &stacks.folded {
        let leaf = stack.rsplit(';').next().unwrap_or(stack);
        *samples.entry(leaf).or_insert(0) += count;
    }
    ranked(samples)
}

/// Functions by the samples they were on the stack in, however often in each.
pub(crate) fn cumulative(stacks: &Stacks) -> Ranking {
    let mut samples: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in &stacks.folded {
        for name in stack.split(';').collect::<BTreeSet<_>>() {
            *samples.entry(name).or_insert(0) += count;
        }
    }
    ranked(samples)
}

fn ranked(samples: BTreeMap<&str, u64>) -> Ranking {
    let mut ranking: Ranking = samples
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    ranking.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranking
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> Stacks {
        Stacks {
            obtained: 10,
            expected: 10,
            folded: BTreeMap::from([
                ("main;a;b".to_owned(), 6),
                ("main;a;a".to_owned(), 3),
                ("main;c".to_owned(), 1),
            ]),
        }
    }

    fn entry(ranking: &Ranking, name: &str) -> u64 {
        ranking
            .iter()
            .find(|(at, _)| at == name)
            .map_or(0, |(_, count)| *count)
    }

    #[test]
    fn recursion_counts_once_in_the_cumulative_ranking() {
        let (flat, cumulative) = (flat(&stacks()), cumulative(&stacks()));
        assert_eq!((entry(&flat, "a"), entry(&flat, "b")), (3, 6));
        assert_eq!(
            (entry(&cumulative, "a"), entry(&cumulative, "main")),
            (9, 10)
        );
        assert_eq!(flat[0].0, "b");
    }

    #[test]
    fn a_call_tree_sums_its_children() {
        let root = Frame::of(&stacks());
        assert_eq!(root.total, 10);
        assert_eq!(root.children["main"].children["a"].total, 9);
        assert_eq!(
            (root.depth(1.0), root.depth(2.0), root.depth(7.0)),
            (3, 3, 2)
        );
    }
}
