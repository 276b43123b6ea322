//! Identities the counters of a trial must keep, whatever the datapath did.

use std::collections::BTreeMap;

use crate::record::Trial;

/// How an identity fared over many trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) words: &'static str,
    /// Trials that hold its counters.
    pub(crate) checked: usize,
    pub(crate) broken: usize,
}

type Counts = BTreeMap<String, u64>;

/// None where a counter is absent.
type Holds = fn(&Counts) -> Option<bool>;

const IDENTITIES: [(&str, Holds); 5] = [
    ("received = unique + duplicates + foreign", |counts| {
        let sum = counts.get("unique")? + counts.get("duplicates")? + counts.get("foreign")?;
        Some(*counts.get("received")? == sum)
    }),
    ("unique + missing = due", |counts| {
        Some(counts.get("unique")? + counts.get("missing")? == *counts.get("due")?)
    }),
    ("missing = sum of named drops", |counts| {
        let drops = counts.iter().filter(|(name, _)| name.starts_with("drops."));
        let drops: Vec<u64> = drops.map(|(_, &count)| count).collect();
        let known = !drops.is_empty();
        known.then_some(*counts.get("missing")? == drops.iter().sum::<u64>())
    }),
    ("negative delays = 0", |counts| {
        Some(*counts.get("negative_delays")? == 0)
    }),
    ("both ends counted the same", |counts| {
        Some(*counts.get("ends_disagree")? == 0)
    }),
];

/// Every identity over all trials.
pub(crate) fn check(trials: &[Trial]) -> Vec<Identity> {
    IDENTITIES
        .iter()
        .map(|(words, holds)| {
            let held: Vec<bool> = trials
                .iter()
                .filter_map(|trial| holds(&trial.counts))
                .collect();
            Identity {
                words,
                checked: held.len(),
                broken: held.iter().filter(|held| !**held).count(),
            }
        })
        .collect()
}
