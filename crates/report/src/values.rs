//! Measured values by metric, load, label and block.

use std::collections::BTreeMap;

use crate::record::{Header, Trial};

/// The prefix of metrics that are another metric minus the floor's.
pub(crate) const ADDED_PREFIX: &str = "added_";

/// A series of trials: an arm's label under a load.
pub(crate) type Series<'a> = (&'a str, String);

pub(crate) type ByBlock = BTreeMap<usize, f64>;

/// Values by metric, load, label and block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values<'a>(BTreeMap<&'a str, BTreeMap<&'a str, BTreeMap<String, ByBlock>>>);

impl<'a> Values<'a> {
    /// The values of trials in the order they ran: the last of several trials at one place in a block counts.
    pub(crate) fn of(
        header: &'a Header,
        trials: &(impl Iterator<Item = &'a Trial> + Clone),
    ) -> Self {
        let mut values = Self::default();
        for trial in trials.clone() {
            for (metric, &value) in &trial.values {
                let series = (trial.load.as_str(), trial.label());
                values.insert(metric, series, trial.block, value);
            }
        }
        values.derive_added(header, trials);
        values.drop_selected();
        values
    }

    fn insert(&mut self, metric: &'a str, (load, label): Series<'a>, block: usize, value: f64) {
        self.0
            .entry(metric)
            .or_default()
            .entry(load)
            .or_default()
            .entry(label)
            .or_default()
            .insert(block, value);
    }

    /// Fills in `added_NAME`: NAME less that of the floor in the same block, where both were emulated or neither was.
    fn derive_added(
        &mut self,
        header: &'a Header,
        trials: &(impl Iterator<Item = &'a Trial> + Clone),
    ) {
        let Some(floor_arm) = header.floor() else {
            return;
        };
        let floors = trials.clone().filter(|trial| trial.arm == floor_arm);
        let emulated: BTreeMap<(&str, usize), bool> = floors
            .map(|floor| ((floor.load.as_str(), floor.block), floor.is_emulated()))
            .collect();
        for metric in &header.metrics {
            let Some(plain) = metric.name.strip_prefix(ADDED_PREFIX) else {
                continue;
            };
            for trial in trials.clone().filter(|trial| trial.arm != floor_arm) {
                // An emulator's time and a real floor have no difference that means anything.
                let floor = emulated.get(&(trial.load.as_str(), trial.block));
                if floor == Some(&trial.is_emulated())
                    && let Some(added) = self.added(trial, floor_arm, plain, &metric.name)
                {
                    let series = (trial.load.as_str(), trial.label());
                    self.insert(&metric.name, series, trial.block, added);
                }
            }
        }
    }

    /// A high percentile that trials have only with transactions enough: where some of a series have none, the others are
    /// those that were fast.
    fn drop_selected(&mut self) {
        let others = self.0.clone();
        for (metric, loads) in &mut self.0 {
            let of_all = metric.strip_suffix("_p99").map(|of| format!("{of}_p50"));
            let Some(of_all) = of_all.and_then(|of_all| others.get(of_all.as_str())) else {
                continue;
            };
            for (load, labels) in loads {
                labels.retain(|label, blocks| {
                    let all = of_all.get(load).and_then(|labels| labels.get(label));
                    all.is_none_or(|all| all.keys().all(|block| blocks.contains_key(block)))
                });
            }
        }
    }

    fn added(&self, trial: &Trial, floor: &str, plain: &str, name: &str) -> Option<f64> {
        if trial.values.contains_key(name) {
            return None;
        }
        let floor = self.get(plain, &trial.load, floor)?.get(&trial.block)?;
        Some(trial.values.get(plain)? - floor)
    }

    pub(crate) fn get(&self, metric: &str, load: &str, label: &str) -> Option<&ByBlock> {
        self.0.get(metric)?.get(load)?.get(label)
    }

    /// The loads under which a metric was measured.
    pub(crate) fn loads(&self, metric: &str) -> Vec<&'a str> {
        let loads = self.0.get(metric).into_iter().flatten();
        loads.map(|(load, _)| *load).collect()
    }
}
