//! Where an arm's trials spent the machine's time, as shares of all CPUs.

use std::collections::BTreeMap;

use crate::analysis::Analysis;
use crate::palette::STATES;

/// Percent of all CPUs by state, in the order of `palette::STATES`; idle is what is left of 100.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) arm: String,
    /// In an emulated machine.
    pub(crate) emulated: bool,
    pub(crate) states: [f64; STATES.len()],
    /// Share spent in what other states already hold: BPF programs, probes.
    pub(crate) of_which: BTreeMap<String, f64>,
}

impl Usage {
    pub(crate) fn busy(&self) -> f64 {
        self.states.iter().sum()
    }
}

/// Arms with accounting under a load, medians over their trials.
pub(crate) fn usages(analysis: &Analysis<'_>, load: &str) -> Vec<Usage> {
    let arms = &analysis.record.header.arms;
    arms.iter()
        .filter_map(|arm| usage(analysis, load, arm))
        .collect()
}

fn usage(analysis: &Analysis<'_>, load: &str, arm: &str) -> Option<Usage> {
    let mut shares: BTreeMap<Part, Vec<f64>> = BTreeMap::new();
    for trial in analysis.first_trials() {
        let wanted = trial.arm == arm && trial.repeat == 0 && trial.load == load;
        if !wanted || trial.cpu.is_empty() {
            continue;
        }
        for (part, share) in parts(&trial.cpu) {
            shares.entry(part).or_default().push(share);
        }
    }
    let mut usage = Usage {
        arm: arm.to_owned(),
        emulated: analysis.is_emulated(arm),
        states: [0.0; STATES.len()],
        of_which: BTreeMap::new(),
    };
    for (part, values) in &shares {
        let share = stats::median(values).unwrap_or(0.0);
        match part {
            Part::State(state) => usage.states[*state] = share,
            Part::OfWhich(name) => {
                usage.of_which.insert(name.clone(), share);
            }
            Part::Idle => {}
        }
    }
    (!shares.is_empty()).then_some(usage)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    State(usize),
    Idle,
    OfWhich(String),
}

/// Shares of one trial, in percent of the time of all its states.
fn parts(cpu: &BTreeMap<String, f64>) -> BTreeMap<Part, f64> {
    let mut parts = BTreeMap::new();
    let mut total = 0.0;
    for (name, ns) in cpu {
        let part = part(name);
        if !matches!(part, Part::OfWhich(_)) {
            total += ns;
        }
        *parts.entry(part).or_insert(0.0) += ns;
    }
    parts
        .into_iter()
        .map(|(part, ns)| (part, if total > 0.0 { 100.0 * ns / total } else { 0.0 }))
        .collect()
}

fn part(name: &str) -> Part {
    let state = match name {
        "idle" => return Part::Idle,
        "ksoftirqd" => "kthread",
        "softirq.net_rx" => "softirq net_rx",
        "softirq.net_tx" => "softirq net_tx",
        softirq if softirq.starts_with("softirq") => "softirq other",
        inside if inside.starts_with("bpf") || inside.starts_with("probe") => {
            return Part::OfWhich(inside.to_owned());
        }
        other => other,
    };
    let last = STATES.len() - 1;
    let at = STATES.iter().position(|(known, ..)| *known == state);
    Part::State(at.unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_inside_a_state_is_not_counted_twice() {
        let cpu = [
            ("user", 10.0),
            ("softirq.net_rx", 20.0),
            ("softirq.rcu", 4.0),
            ("softirq.timer", 1.0),
            ("bpf", 15.0),
            ("idle", 65.0),
        ];
        let cpu = cpu.map(|(name, ns)| (name.to_owned(), ns)).into();
        let parts = parts(&cpu);
        assert_eq!(parts[&Part::State(0)], 10.0);
        assert_eq!(parts[&Part::State(4)], 5.0);
        assert_eq!(parts[&Part::OfWhich("bpf".to_owned())], 15.0);
        assert_eq!(parts[&Part::Idle], 65.0);
    }
}
