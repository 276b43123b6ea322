//! Shows an experiment's progress: a bar on a terminal, else one plain line a block.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};

use experiment::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::record::{Header, Skip, Trial};

use crate::print;

/// Progress of one experiment on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    blocks: usize,
    /// How long the rest takes, and what disturbed the last block.
    status: String,
    /// The metrics of which a trial's first is shown beside the bar, and their units.
    shown: Vec<(String, String)>,
    latest: BTreeMap<String, String>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let plain = !stderr().is_terminal();
        let target = if plain {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        Self {
            bar: ProgressBar::with_draw_target(None, target),
            plain,
            blocks: 0,
            status: String::new(),
            shown: Vec::new(),
            latest: BTreeMap::new(),
        }
    }

    fn line(&self, text: &str) {
        if self.plain {
            print::note(format_args!("{text}"));
        } else {
            self.bar.println(text);
        }
    }

    fn show(&self, block: usize) {
        let shown: Vec<_> = self
            .latest
            .iter()
            .map(|(arm, value)| format!("{arm} {value}"))
            .collect();
        self.bar.set_message(format!(
            "block {block}/{}{}   {}",
            self.blocks,
            self.status,
            shown.join("   ")
        ));
    }
}

impl Watch for Progress {
    fn begin(&mut self, header: &Header, trials: usize, seconds: f64) {
        self.blocks = header.blocks;
        self.shown = metrics_by_rank(header);
        self.line(&format!(
            "{}  {} arms x {} loads x {} blocks   this takes about {}   seed {}",
            header.experiment,
            header.arms.len(),
            header.loads.len(),
            header.blocks,
            span(seconds),
            header.seed
        ));
        for skip in &header.skipped {
            self.line(&format!("  {}", skip_line(skip)));
        }
        self.bar.set_length(trials as u64);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {wide_msg}") {
            self.bar.set_style(style.progress_chars("##."));
        }
    }

    fn skip(&mut self, skip: &Skip) {
        self.latest.remove(&skip.arm);
        let Skip {
            arm,
            reason,
            remedy,
            ..
        } = skip;
        self.line(&format!("{arm} runs no further: {reason}   {remedy}"));
    }

    fn trial(&mut self, trial: &Trial, done: usize) {
        let mut shown = self.shown.iter();
        if let Some((value, unit)) =
            shown.find_map(|(name, unit)| Some((trial.values.get(name)?, unit)))
        {
            let emulated = if trial.is_emulated() { " EMULATED" } else { "" };
            self.latest
                .insert(trial.arm.clone(), format!("{value:.1} {unit}{emulated}"));
        }
        self.bar.set_position(done as u64);
        self.show(trial.block + 1);
    }

    fn block(&mut self, block: &[Trial], complete: usize, seconds_left: f64) {
        self.status = format!(", {} left{}", span(seconds_left), disturbance(block));
        if self.plain {
            let number = block.first().map_or(complete, |trial| trial.block + 1);
            self.line(&format!("block {number}/{}{}", self.blocks, self.status));
        }
        self.show(complete);
    }
}

/// The disturbance in a block: `, CPU stolen 6 %`, or nothing.
fn disturbance(block: &[Trial]) -> String {
    const MIN_PCT: f64 = 1.0;
    let kinds = [
        ("tsc_lost_pct", "CPU stolen"),
        ("foreign_cpu_pct", "other processes"),
    ];
    let words = kinds.into_iter().filter_map(|(name, words)| {
        let values: Vec<f64> = block
            .iter()
            .filter_map(|trial| trial.noise.get(name).copied())
            .collect();
        let percent = stats::median(&values).filter(|percent| *percent >= MIN_PCT)?;
        Some(format!(", {words} {percent:.0} %"))
    });
    words.collect()
}

/// Names and units of all metrics: first those of the questions, then the primary ones, then all.
fn metrics_by_rank(header: &Header) -> Vec<(String, String)> {
    let asked = header.questions.iter().flat_map(|asked| &asked.metrics);
    let asked = asked.filter_map(|name| header.metric(name));
    let primary = header.metrics.iter().filter(|metric| metric.primary);
    let all = asked.chain(primary).chain(&header.metrics);
    all.map(|metric| (metric.name.clone(), metric.unit.clone()))
        .collect()
}

/// The line for an arm or a load that does not run, with the reason and the remedy.
pub(crate) fn skip_line(skip: &Skip) -> String {
    format!("skipped {}: {}   {}", skip.what(), skip.reason, skip.remedy)
}

/// Seconds as people say them.
pub(crate) fn span(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use experiment::{catalog, metrics};

    use super::*;

    /// The value that the bar shows after a trial of the experiment with this value.
    fn latest_value(experiment: &str, metric: &str, value: f64) -> Option<String> {
        let plan = catalog::find(experiment).unwrap();
        let mut metrics: Vec<_> = metrics::all().collect();
        for metric in &mut metrics {
            metric.primary = plan.primary.contains(&metric.name);
        }
        let header = serde_json::json!({
            "schema": 1, "experiment": plan.name, "job": plan.job, "questions": plan.questions,
            "seed": 1, "quick": false, "blocks": 1, "baseline": plan.baseline, "arms": plan.arms,
            "loads": [], "metrics": metrics, "machine": {}, "skipped": [], "command": "",
            "started": "", "origin": [],
        });
        let trial = serde_json::json!({
            "arm": "one", "repeat": 0, "load": "l", "block": 0, "order": 0, "seed": 1, "flags": [],
            "environment": {}, "values": { metric: value, "ps_cpu_pct": 1.0 }, "counts": {},
            "histograms": {}, "cpu": {}, "stacks": null, "noise": {}, "at_s": 1.0,
        });
        let mut progress = Progress::new();
        progress.begin(&serde_json::from_value(header).unwrap(), 1, 1.0);
        progress.trial(&serde_json::from_value(trial).unwrap(), 1);
        progress.latest.remove("one")
    }

    #[test]
    fn progress_shows_every_jobs_metric() {
        for (experiment, metric, unit) in [
            ("relay-delay", "delay_p50", "us"),
            ("netbench-matrix", "tcp_rr_us_p50", "us"),
            ("netbench-matrix", "udp_rate_mbps", "Mb/s"),
            ("router-lpm4", "ns_per_lookup", "ns"),
            ("replicate-overhead", "request_ms_mean", "ms"),
            ("features-rate", "cpu_ns_per_packet", "ns"),
        ] {
            let shown = latest_value(experiment, metric, 12.34);
            assert_eq!(shown, Some(format!("12.3 {unit}")), "{experiment}");
        }
    }
}
