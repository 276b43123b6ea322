//! A line of record.jsonl: one trial, everything that was set, and everything that was seen.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use stats::Histogram;
pub use stats::{Better, Effect};

use crate::presentation::Presentation;

/// How often the baseline runs in a block: B, B' and B''.
pub const BASELINE_RUNS: u8 = 3;

/// The first line of record.jsonl: what was planned, on which machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub schema: u32,
    pub experiment: String,
    pub job: String,
    /// Where the device under test ran.
    #[serde(default = "native")]
    pub environment: String,
    /// The experiment's questions, in the order the report answers them.
    pub questions: Vec<Question>,
    pub seed: u64,
    pub quick: bool,
    pub blocks: usize,
    pub baseline: String,
    pub arms: Vec<String>,
    /// `load` strings in the order they run.
    pub loads: Vec<String>,
    /// How trials under each load are measured. Records from before it was kept have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub methods: BTreeMap<String, Method>,
    /// How the CPUs are kept from sleeping deeply, as experiment files name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// How often a trial is tried that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u8>,
    pub metrics: Vec<Metric>,
    pub machine: BTreeMap<String, serde_json::Value>,
    /// Arms that do not run, here or under some load, with the reason and the remedy; when read, those too
    /// that ran until they kept failing.
    pub skipped: Vec<Skip>,
    /// The exact command that repeats this run.
    pub command: String,
    /// RFC 3339.
    pub started: String,
    /// Published figures of the work this experiment reproduces.
    pub origin: Vec<String>,
    /// Arms that are other machines, and where their servers are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, String>,
    /// Arms that are builds of `lowroad` of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, Build>,
    /// Arms that are external programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, Program>,
    /// Records from before it was kept have none.
    #[serde(default, skip_serializing_if = "Presentation::is_empty")]
    pub presentation: Presentation,
}

/// Where every record was from before there was a choice.
fn native() -> String {
    "native".to_owned()
}

/// A build of `lowroad` that is an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub path: String,
    /// The output of `--version`.
    pub version: String,
    pub bytes: u64,
    /// XXH64 of the file, hexadecimal.
    pub hash: String,
    /// The job's arm that it ran.
    pub arm: String,
}

/// An external program that is an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The file that states it, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its set-up and its command, with their placeholders.
    pub command: String,
}

/// How a load is measured, as far as its name leaves it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// The measure, as experiment files name it.
    pub measure: String,
    /// For how long: `600ms`.
    pub duration: String,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.measure, self.duration)
    }
}

/// A question the report answers with one sentence per comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub text: String,
    /// Metric names this question is answered by; the first one makes the sentence.
    pub metrics: Vec<String>,
    /// Arms to compare with besides the experiment's baseline, each of them as a baseline of its own
    /// rows: how `xdp` stands against `busy` where the baseline is `recv`.
    #[serde(default)]
    pub against: Vec<String>,
    /// The arms the question is about: they get the sentences, and the rows of `against`. All of them
    /// when empty.
    #[serde(default)]
    pub arms: Vec<String>,
    /// Classes of loads for each of which the arm to take is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
    /// Numbers in the loads' names, such as `batch`, along which it is asked from where on an arm is better.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub along: Vec<String>,
    /// How far an arm may be from what it is compared with to agree with it, in per cent of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_pct: Option<f64>,
    /// The answer in words that anyone understands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Headline>,
}

/// How a question's answer reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// The arm that it is about, against the experiment's baseline.
    pub arm: String,
    /// A sentence without its full stop. `{ratio}` stands for the ratio of the two, or `{difference}` for their
    /// difference in the metric's unit.
    pub text: String,
}

impl Question {
    /// Whether it is about the arm.
    pub fn asks_about(&self, arm: &str) -> bool {
        self.arms.is_empty() || self.arms.iter().any(|asked| asked == arm)
    }

    /// Whether figures of it have the arm: one that it is about, or that those are compared with.
    pub(crate) fn shows(&self, arm: &str, baseline: &str) -> bool {
        self.asks_about(arm) || arm == baseline || self.against.iter().any(|other| other == arm)
    }
}

/// Loads that are one choice to whoever runs the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    pub name: String,
    /// As records name them.
    pub loads: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    pub name: String,
    pub unit: String,
    pub better: Better,
    pub primary: bool,
    pub effect: Effect,
    /// How far a value may be from what was measured, as a share of it: half a bucket of the histogram that it comes
    /// from. 0 for values that are counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resolution: f64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skip {
    pub arm: String,
    /// The load under which it does not run; none named: under no load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    pub reason: String,
    pub remedy: String,
}

/// One trial: one arm under one load in a fresh topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub arm: String,
    /// 0 for an arm; the baseline runs three times a block: 0, 1 and 2.
    pub repeat: u8,
    pub load: String,
    pub block: usize,
    /// Position in the block.
    pub order: usize,
    /// 0 for the first; a trial that failed is tried again at once. Schema 1 also tried disturbed trials again.
    #[serde(default)]
    pub attempt: u8,
    pub seed: u64,
    /// The disturbances and faults of this trial. Empty when it is clean.
    pub flags: Vec<String>,
    /// Accounts that do not add up: the trial has no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    pub environment: BTreeMap<String, serde_json::Value>,
    /// Metric name to value, in the metric's unit. Two names go beyond the header's metrics:
    /// `ps_cpu_pct`, what `ps` shows for the datapath's process, and `added_NAME`, which the report
    /// derives (NAME less NAME of the floor in the same block, unless one of the two alone was emulated) where the
    /// trial does not hold it.
    pub values: BTreeMap<String, f64>,
    /// Exact counts: sent, due (to all subscribers), received, unique, duplicates, missing, foreign,
    /// reordered, negative_delays, drops.NAME (deliveries lost, by what counted them).
    pub counts: BTreeMap<String, u64>,
    /// Histograms by name, in nanoseconds: `delay`, `lateness`.
    pub histograms: BTreeMap<String, Histogram>,
    /// CPU states in nanoseconds over all CPUs: `user`, `syscall`, `softirq.net_rx`, `idle`, ...
    pub cpu: BTreeMap<String, f64>,
    /// Hottest functions, when stacks were sampled.
    pub stacks: Option<Stacks>,
    /// For a device: the stages of one batch, by the device's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    pub noise: BTreeMap<String, f64>,
    /// Seconds since the experiment started.
    pub at_s: f64,
}

/// The end of the name of the fact that a host was emulated, for example `host.server.emulated`.
const EMULATION_SUFFIX: &str = ".emulated";

/// From when to when something of a batch went on, in microseconds from the batch's beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The batch's part, each of which has a queue of its own.
    pub stream: u32,
    /// `copy in`, `kernel` or `copy out`.
    pub part: String,
    pub start_us: f64,
    pub end_us: f64,
}

/// Stack samples of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stacks {
    pub obtained: u64,
    pub expected: u64,
    /// `root;caller;leaf` to samples.
    pub folded: BTreeMap<String, u64>,
}

/// A line of record.jsonl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "a record has one header, and its lines are not kept"
)]
pub enum Line {
    Header(Header),
    Trial(Trial),
    /// An arm of the header's that runs no further.
    Skip(Skip),
}

impl Skip {
    /// The arm or load that did not run: `xdp`, or `xdp under 1200B 4kpps N=1 fec`.
    pub fn what(&self) -> String {
        match &self.load {
            Some(load) => format!("{} under {load}", self.arm),
            None => self.arm.clone(),
        }
    }
}

impl Header {
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// The arm that measures the bare link.
    pub(crate) fn floor(&self) -> Option<&str> {
        self.presentation.floor.as_deref()
    }

    pub(crate) fn is_floor(&self, arm: &str) -> bool {
        self.floor() == Some(arm)
    }

    /// Why an arm that ran runs no further.
    pub fn given_up(&self, arm: &str) -> Option<&Skip> {
        let ran = self.arms.iter().any(|known| known == arm);
        let mut skips = self.skipped.iter();
        skips.find(|skip| ran && skip.arm == arm && skip.load.is_none())
    }

    /// The trials that a complete block has under a load: arms, and how many runs of each.
    pub fn runs<'a>(&'a self, load: &'a str) -> impl Iterator<Item = (&'a str, u8)> {
        let applies = move |arm: &&String| {
            let mut skips = self.skipped.iter();
            !skips.any(|skip| skip.arm == **arm && skip.load.as_deref() == Some(load))
        };
        let arms = self.arms.iter().filter(applies);
        arms.map(|arm| {
            let baseline = *arm == self.baseline;
            (arm.as_str(), if baseline { BASELINE_RUNS } else { 1 })
        })
    }
}

impl Trial {
    /// Whether nothing disturbed it and nothing was wrong with it.
    pub fn is_clean(&self) -> bool {
        self.flags.is_empty() && self.violations.is_empty()
    }

    /// Whether it has no result: it ended with an error, or its accounts do not add up.
    pub fn has_failed(&self) -> bool {
        !self.violations.is_empty() || (self.values.is_empty() && !self.flags.is_empty())
    }

    /// Whether something disturbed it, and it has a result.
    pub fn is_disturbed(&self) -> bool {
        !self.is_clean() && !self.has_failed()
    }

    /// Whether an emulated machine had a part in it: what it took is then the emulator's time.
    pub fn is_emulated(&self) -> bool {
        let mut facts = self.environment.iter();
        facts.any(|(name, value)| name.ends_with(EMULATION_SUFFIX) && *value == true)
    }

    /// The name of the arm as results print it: `recv`, and `recv'`, `recv''` for its repeats.
    pub fn label(&self) -> String {
        self.arm.clone() + &"'".repeat(usize::from(self.repeat))
    }
}
