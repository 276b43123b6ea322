//! Two runs side by side: whether they can be compared at all, and if so each arm then and now.
//! The runs share no blocks, so nothing is paired and no difference is claimed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use stats::{Effect, Interval, median, median_interval};
use units::format::quantity;

use crate::analysis::Analysis;
use crate::journal::Record;
use crate::record::{Header, Metric};
use crate::words::range;

/// Facts that must be the same on both machines, if both records have them.
const ALIKE: [&str; 8] = [
    "kernel",
    "cpu",
    "cpus",
    "cpu_model",
    "clocksource",
    "hypervisor",
    "config",
    "mitigations",
];

/// Why two runs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these runs cannot be compared: {}", .reasons.join("; "))]
pub struct Incomparable {
    pub reasons: Vec<String>,
}

/// One arm under one load in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub metric: String,
    pub load: String,
    pub arm: String,
    /// Medians over the blocks of each run.
    pub medians: [f64; 2],
    /// Second run over first, or second less first where the metric's effect is a difference. None of an arm that
    /// was emulated in either run: what it took is the emulator's time.
    pub effect: Option<f64>,
    /// From the interval of each median by itself: covers with at least 90 % where each covers with
    /// 95 %. None with fewer than six blocks in either run.
    pub interval: Option<[f64; 2]>,
}

/// Compares the second run with the first.
///
/// # Errors
/// When they are of different experiments, machines, kernels, guests or loads, or were measured otherwise.
pub fn pair(first: &Analysis<'_>, second: &Analysis<'_>) -> Result<Vec<Change>, Incomparable> {
    let (a, b) = (&first.record.header, &second.record.header);
    let mut reasons = obstacles(a, b);
    reasons.extend(other_guests(first.record, second.record));
    if !reasons.is_empty() {
        return Err(Incomparable { reasons });
    }
    let mut changes = Vec::new();
    for metric in a.metrics.iter().filter(|metric| b.metrics.contains(metric)) {
        for load in a.loads.iter().filter(|load| b.loads.contains(load)) {
            for arm in a.arms.iter().filter(|arm| b.arms.contains(arm)) {
                let values = [first, second].map(|run| run.first_values(&metric.name, load, arm));
                let mut change = change(metric, load, arm, &values);
                if let Some(change) = &mut change
                    && [first, second].iter().any(|run| run.is_emulated(arm))
                {
                    (change.effect, change.interval) = (None, None);
                }
                changes.extend(change);
            }
        }
    }
    Ok(changes)
}

pub(crate) fn obstacles(a: &Header, b: &Header) -> Vec<String> {
    let mut reasons = Vec::new();
    if a.experiment != b.experiment {
        reasons.push(format!("experiments {} and {}", a.experiment, b.experiment));
    }
    for key in ALIKE {
        if let (Some(then), Some(now)) = (a.machine.get(key), b.machine.get(key))
            && then != now
        {
            reasons.push(format!("{key} {then} and {now}"));
        }
    }
    if !a.loads.iter().any(|load| b.loads.contains(load)) {
        reasons.push("no load in common".to_owned());
    }
    reasons.extend(other_methods(a, b));
    reasons
}

/// In what their trials were measured otherwise, where both records say it.
fn other_methods(a: &Header, b: &Header) -> Vec<String> {
    let mut reasons = Vec::new();
    if let (Some(then), Some(now)) = (&a.idle, &b.idle)
        && then != now
    {
        reasons.push(format!("idle {then} and {now}"));
    }
    for load in a.loads.iter().filter(|load| b.loads.contains(load)) {
        if let (Some(then), Some(now)) = (a.methods.get(load), b.methods.get(load))
            && then != now
        {
            reasons.push(format!("{load}: {then} and {now}"));
        }
    }
    reasons
}

/// The ending of a fact that only a guest's host has: its accelerator.
const ACCELERATOR: &str = ".accelerator";

/// Arms whose guests were others.
pub(crate) fn other_guests(first: &Record, second: &Record) -> Vec<String> {
    let (then, now) = (guests(first), guests(second));
    let both = then
        .iter()
        .filter_map(|(fact, then)| Some((fact, then, now.get(fact)?)));
    let differing = both.filter(|(_, then, now)| then != now);
    let told = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(", ");
    let words = differing
        .map(|((arm, name), then, now)| format!("{arm}: {name} {} and {}", told(then), told(now)));
    words.collect()
}

/// The accelerators of each arm's guests, and their kernels.
fn guests(record: &Record) -> BTreeMap<(&str, String), BTreeSet<String>> {
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for trial in &record.trials {
        let facts = trial.environment.keys();
        for host in facts.filter_map(|name| name.strip_suffix(ACCELERATOR)) {
            for name in [format!("{host}{ACCELERATOR}"), format!("{host}.kernel")] {
                if let Some(value) = trial.environment.get(&name) {
                    let of_arm = found.entry((trial.arm.as_str(), name)).or_default();
                    of_arm.insert(value.to_string());
                }
            }
        }
    }
    found
}

fn change(metric: &Metric, load: &str, arm: &str, values: &[Vec<f64>; 2]) -> Option<Change> {
    let medians = [median(&values[0])?, median(&values[1])?];
    let intervals = median_interval(&values[0]).zip(median_interval(&values[1]));
    let apply = |second: f64, first: f64| match metric.effect {
        Effect::Ratio => second / first,
        Effect::Difference => second - first,
    };
    Some(Change {
        metric: metric.name.clone(),
        load: load.to_owned(),
        arm: arm.to_owned(),
        medians,
        effect: Some(apply(medians[1], medians[0])),
        interval: intervals.map(|(first, second): (Interval, Interval)| {
            [
                apply(second.lower, first.upper),
                apply(second.upper, first.lower),
            ]
        }),
    })
}

/// Both runs as text, a table for each metric and load.
pub fn side_by_side(first: &Analysis<'_>, changes: &[Change]) -> String {
    let mut text = String::new();
    let mut last = None;
    for change in changes {
        let Some(metric) = first.record.header.metric(&change.metric) else {
            continue;
        };
        let head = (&change.metric, &change.load);
        if last != Some(head) {
            let effect = match metric.effect {
                Effect::Ratio => "second / first",
                Effect::Difference => "second - first",
            };
            line(&mut text, &format!("{}   {}", change.metric, change.load));
            line(
                &mut text,
                &format!(
                    "  {:<10}{:>14}{:>14}{effect:>18}   interval",
                    "arm", "first", "second"
                ),
            );
            last = Some(head);
        }
        let interval = change
            .interval
            .map_or_else(|| "-".to_owned(), |[low, high]| range(low, high));
        let [then, now] = change.medians.map(|value| quantity(value, &metric.unit));
        let effect = match change.effect {
            Some(effect) => units::format::digits(effect),
            None => "EMULATED".to_owned(),
        };
        line(
            &mut text,
            &format!(
                "  {:<10}{then:>14}{now:>14}{effect:>18}   {interval}",
                change.arm
            ),
        );
    }
    if changes.is_empty() {
        text.push_str("no arm was measured in both runs: there is nothing to compare\n");
        return text;
    }
    line(
        &mut text,
        "unpaired: the runs share no blocks and no A/A band, so nothing is claimed; intervals cover \
         with at least 90 %",
    );
    text
}

fn line(text: &mut String, words: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "{}", words.trim_end());
}
