//! From a record to its rows: which arms are paired with which baseline, over which blocks.
//! Judging a pair is `stats`' work; wording and drawing come after.

use std::collections::{BTreeMap, BTreeSet};

use stats::{Block, Comparison, Estimate, Flags, Verdict, holm};

use crate::journal::Record;
use crate::record::{Metric, Question, Skip};
use crate::values::{ADDED_PREFIX, ByBlock, Series, Values};

/// The arm that measures the bare link.
pub const FLOOR: &str = "floor";

/// A record and all its comparisons.
#[derive(Debug)]
pub struct Analysis<'a> {
    pub record: &'a Record,
    pub rows: Vec<Row<'a>>,
    measured: TrialValues<'a>,
    /// Arms of which a trial ran in an emulated machine.
    emulated: BTreeSet<&'a str>,
}

/// One metric of one arm against one baseline under one load.
#[derive(Debug)]
pub struct Row<'a> {
    pub metric: &'a Metric,
    pub load: &'a str,
    /// The arm's label: `xdp`, or `recv''` for the baseline judged against itself.
    pub arm: String,
    pub baseline: &'a str,
    /// None for an arm that this machine cannot run.
    pub comparison: Option<Comparison>,
    /// Why there is no comparison.
    pub skip: Option<&'a Skip>,
    /// Why the arm ran in the first blocks alone.
    pub given_up: Option<&'a Skip>,
    /// Whether one of the two ran in an emulated machine: nothing is then claimed of them.
    pub emulated: bool,
    /// p after Holm's correction over the experiment's non-primary rows; as it was for primary ones.
    pub adjusted_p: Option<f64>,
}

/// The values of a record's trials, and the flagged trials.
#[derive(Debug)]
struct TrialValues<'a> {
    /// Of each trial's first attempt.
    first: Values<'a>,
    /// Of its last.
    last: Values<'a>,
    /// Trials whose last attempt is flagged: load, label, block.
    flagged: BTreeSet<(&'a str, String, usize)>,
    /// Over all attempts.
    flags: BTreeMap<Series<'a>, Flags>,
}

impl<'a> Analysis<'a> {
    pub fn new(record: &'a Record) -> Self {
        let measured = TrialValues::of(record);
        let emulated = record.trials.iter().filter(|trial| trial.is_emulated());
        let emulated: BTreeSet<&str> = emulated.map(|trial| trial.arm.as_str()).collect();
        let mut rows = Vec::new();
        for metric in &record.header.metrics {
            for load in &record.header.loads {
                rows.extend(measured.rows(record, metric, load));
                rows.extend(skipped(record, &measured.last, metric, load));
            }
        }
        for row in &mut rows {
            row.emulated = [row.baseline, plain(&row.arm)]
                .iter()
                .any(|arm| emulated.contains(arm));
        }
        adjust(&mut rows);
        Self {
            record,
            rows,
            measured,
            emulated,
        }
    }

    /// Whether an arm, or a repeat of one, ran in an emulated machine.
    pub fn is_emulated(&self, label: &str) -> bool {
        self.emulated.contains(plain(label))
    }

    /// An arm's label for display: an emulated arm has a warning.
    pub fn display_label(&self, label: &str) -> String {
        match self.is_emulated(label) {
            true => format!("{label} EMULATED"),
            false => label.to_owned(),
        }
    }

    /// The values of a metric by block, flagged blocks included.
    pub fn values(&self, metric: &str, load: &str, label: &str) -> Option<&ByBlock> {
        self.measured.last.get(metric, load, label)
    }

    /// Whether a series' trial in a block is flagged.
    fn is_flagged(&self, load: &str, label: &str, block: usize) -> bool {
        self.measured.is_flagged(load, label, block)
    }

    /// Whether any trial of a block under a load is flagged.
    pub fn has_flags(&self, load: &str, block: usize) -> bool {
        let mut flagged = self.measured.flagged.iter();
        flagged.any(|(at, _, number)| *at == load && *number == block)
    }

    /// Values of the trials that are not flagged.
    pub fn clean_values(&self, metric: &str, load: &str, label: &str) -> Vec<f64> {
        self.values(metric, load, label)
            .into_iter()
            .flatten()
            .filter(|(block, _)| !self.is_flagged(load, label, **block))
            .map(|(_, value)| *value)
            .collect()
    }

    /// Median over clean blocks of one arm less another, paired in the block.
    pub fn paired_difference(
        &self,
        metric: &str,
        load: &str,
        arm: &str,
        other: &str,
    ) -> Option<f64> {
        if self.is_emulated(arm) || self.is_emulated(other) {
            return None;
        }
        let others = self.values(metric, load, other)?;
        let differences: Vec<f64> = self
            .values(metric, load, arm)?
            .iter()
            .filter(|(block, _)| {
                let flagged = |label| self.is_flagged(load, label, **block);
                !flagged(arm) && !flagged(other)
            })
            .filter_map(|(block, value)| Some(value - others.get(block)?))
            .collect();
        stats::median(&differences)
    }

    /// What is claimed of one arm against another under a load.
    pub fn judge(&self, metric: &Metric, load: &str, arm: &str, other: &str) -> Option<Verdict> {
        if self.is_emulated(arm) || self.is_emulated(other) {
            return Some(Verdict::Emulated);
        }
        let compared = self.measured.compare(self.record, metric, load, arm, other);
        Some(compared?.verdict)
    }

    /// The metric that answers a question under a load: the first that was measured there of those in the unit of
    /// its first one. A question about several tests names one of each.
    pub fn answering(&self, question: &Question, load: &str) -> Option<&'a Metric> {
        let header = &self.record.header;
        let named = question.metrics.iter();
        let mut named = named.filter_map(|name| header.metric(name)).peekable();
        let first = *named.peek()?;
        let measured = |metric: &&Metric| {
            let loads = self.measured.last.loads(&metric.name);
            metric.unit == first.unit && loads.contains(&load)
        };
        named.find(measured).or(Some(first))
    }

    /// The rows of a metric from which a question's sentences are made.
    pub fn question_rows<'s>(
        &'s self,
        question: &'s Question,
        metric: &'s str,
        load: &'s str,
    ) -> impl Iterator<Item = &'s Row<'a>> {
        self.rows.iter().filter(move |row| {
            row.metric.name == metric
                && row.load == load
                && row.skip.is_none()
                && question.asks_about(&row.arm)
                && (row.baseline == self.record.header.baseline
                    || question.against.iter().any(|other| other == row.baseline))
        })
    }
}

/// The arm that a label is of.
fn plain(label: &str) -> &str {
    label.trim_end_matches('\'')
}

impl Row<'_> {
    /// What is known of one against the other, where anything may be said.
    pub fn clean(&self) -> Option<&Estimate> {
        let comparison = self.comparison.as_ref().filter(|_| !self.emulated)?;
        comparison.clean.as_ref()
    }

    pub fn verdict(&self) -> Verdict {
        match &self.comparison {
            None => Verdict::Skipped,
            Some(_) if self.emulated => Verdict::Emulated,
            Some(comparison) => comparison.verdict,
        }
    }

    /// Whether this is the baseline judged against itself.
    pub fn is_honesty_check(&self) -> bool {
        self.arm.strip_suffix("''") == Some(self.baseline)
    }
}

impl<'a> TrialValues<'a> {
    fn of(record: &'a Record) -> Self {
        let trials = || record.trials.iter();
        let mut measured = Self {
            first: Values::of(&record.header, &trials().filter(|trial| trial.attempt == 0)),
            last: Values::of(&record.header, &trials()),
            flagged: BTreeSet::new(),
            flags: BTreeMap::new(),
        };
        for trial in trials() {
            let series = (trial.load.as_str(), trial.label());
            let place = (trial.load.as_str(), trial.label(), trial.block);
            let count = measured.flags.entry(series).or_default();
            count.trials += 1;
            if trial.flags.is_empty() {
                measured.flagged.remove(&place);
            } else {
                count.flagged += 1;
                measured.flagged.insert(place);
            }
        }
        measured
    }

    fn is_flagged(&self, load: &str, label: &str, block: usize) -> bool {
        let mut flagged = self.flagged.iter();
        flagged.any(|(at, series, number)| (*at, series.as_str(), *number) == (load, label, block))
    }

    fn rows(&self, record: &'a Record, metric: &'a Metric, load: &'a str) -> Vec<Row<'a>> {
        let baseline = record.header.baseline.as_str();
        let third = format!("{baseline}''");
        let mut pairs: Vec<(String, &str)> = record
            .header
            .arms
            .iter()
            .filter(|arm| *arm != baseline)
            .map(|arm| (arm.clone(), baseline))
            .collect();
        pairs.push((third, baseline));
        pairs.extend(further_pairs(record, metric));
        pairs
            .into_iter()
            .filter_map(|(arm, other)| {
                let comparison = self.compare(record, metric, load, &arm, other)?;
                Some(Row {
                    metric,
                    load,
                    baseline: other,
                    adjusted_p: comparison.p,
                    comparison: Some(comparison),
                    skip: None,
                    given_up: [plain(&arm), other]
                        .iter()
                        .find_map(|arm| record.header.given_up(arm)),
                    arm,
                    emulated: false,
                })
            })
            .collect()
    }

    /// None where one of the two never measured the metric under this load.
    fn compare(
        &self,
        record: &Record,
        metric: &Metric,
        load: &str,
        arm: &str,
        other: &str,
    ) -> Option<Comparison> {
        let baseline = &record.header.baseline;
        let again = format!("{baseline}'");
        // The trials that the comparison rests on: others of the block say nothing of it.
        let mut used = vec![arm, other, baseline, &again];
        used.extend(metric.name.starts_with(ADDED_PREFIX).then_some(FLOOR));
        let pair = |values: &Values<'_>| {
            let of = |label: &str| values.get(&metric.name, load, label);
            let (first, second) = (of(baseline), of(&again));
            let (arms, others) = (of(arm)?, of(other)?);
            let blocks = arms.iter().filter_map(|(number, &value)| {
                let at = |series: Option<&ByBlock>| series?.get(number).copied();
                let block = Block {
                    arm: value,
                    baseline: *others.get(number)?,
                    aa: at(first).zip(at(second)),
                };
                Some((*number, block))
            });
            Some(blocks.collect::<BTreeMap<usize, Block>>())
        };
        let all: Vec<Block> = pair(&self.first)?.into_values().collect();
        let clean = pair(&self.last)?.into_iter().filter(|(number, _)| {
            let flagged = |label: &&str| self.is_flagged(load, label, *number);
            !used.iter().any(flagged)
        });
        let clean: Vec<Block> = clean.map(|(_, block)| block).collect();
        let gap = self.flags_of(load, arm).gap(self.flags_of(load, other));
        let (effect, better) = (metric.effect, metric.better);
        Some(Comparison::new(effect, better, &clean, &all, gap))
    }

    /// An arm's flags; a baseline's runs count together.
    fn flags_of(&self, load: &str, label: &str) -> Flags {
        let of_arm = self.flags.iter().filter(|((at, series), _)| {
            *at == load && (series == label || series.trim_end_matches('\'') == label)
        });
        of_arm.fold(Flags::default(), |sum, (_, flags)| Flags {
            flagged: sum.flagged + flags.flagged,
            trials: sum.trials + flags.trials,
        })
    }
}

/// Pairs that questions ask for besides those with the experiment's baseline.
fn further_pairs<'a>(record: &'a Record, metric: &Metric) -> Vec<(String, &'a str)> {
    let mut pairs = Vec::new();
    for question in &record.header.questions {
        if !question.metrics.contains(&metric.name) {
            continue;
        }
        for other in &question.against {
            for arm in &record.header.arms {
                let pair = (arm.clone(), other.as_str());
                let further = *other != record.header.baseline && arm != other;
                if further && question.asks_about(arm) && !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
    }
    pairs
}

/// Arms that ran nowhere have every row; those that did not run under this load, the rows of what
/// the baseline measured under it.
fn skipped<'a>(
    record: &'a Record,
    values: &Values<'_>,
    metric: &'a Metric,
    load: &'a str,
) -> Vec<Row<'a>> {
    let baseline = record.header.baseline.as_str();
    let measured = values.get(&metric.name, load, baseline).is_some();
    let concerns = |skip: &&Skip| match &skip.load {
        // What it measured before it was given up has a row already.
        None if record.header.given_up(&skip.arm).is_some() => {
            measured && values.get(&metric.name, load, &skip.arm).is_none()
        }
        None => true,
        Some(at) => at == load && measured,
    };
    record
        .header
        .skipped
        .iter()
        .filter(concerns)
        .map(|skip| Row {
            metric,
            load,
            arm: skip.arm.clone(),
            baseline,
            comparison: None,
            skip: Some(skip),
            given_up: None,
            emulated: false,
            adjusted_p: None,
        })
        .collect()
}

/// Corrects the p-values of rows that were not named as primary before the run.
fn adjust(rows: &mut [Row<'_>]) {
    let mut further: Vec<&mut Row<'_>> = rows
        .iter_mut()
        .filter(|row| !row.metric.primary && !row.emulated && row.adjusted_p.is_some())
        .collect();
    let p: Vec<f64> = further.iter().filter_map(|row| row.adjusted_p).collect();
    for (row, adjusted) in further.iter_mut().zip(holm(&p)) {
        row.adjusted_p = Some(adjusted);
    }
}

/// Flags of one arm: what the report prints beside the limit of `stats::FLAG_GAP_POINTS`.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmFlags {
    pub label: String,
    /// Attempts, flagged or not.
    pub trials: usize,
    pub flagged: usize,
    /// One of the flags that differ in their numbers alone, and how many of them there are.
    pub reasons: Vec<(String, usize)>,
}

impl ArmFlags {
    /// Flagged attempts in per cent; none where there was no attempt.
    pub fn share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let share = 100.0 * self.flagged as f64 / self.trials as f64;
        (self.trials > 0).then_some(share)
    }
}

/// Flags by arm, in the header's order.
pub fn flags_by_arm(record: &Record) -> Vec<ArmFlags> {
    let labels = record.header.arms.iter().flat_map(|arm| {
        let repeats = if *arm == record.header.baseline { 3 } else { 1 };
        (0..repeats).map(move |repeat| arm.clone() + &"'".repeat(repeat))
    });
    labels
        .map(|label| {
            let of_arm = || record.trials.iter().filter(|trial| trial.label() == label);
            let mut reasons = BTreeMap::new();
            for flag in of_arm().flat_map(|trial| &trial.flags) {
                let words = flag.replace(|sign: char| sign.is_ascii_digit(), "");
                reasons.entry(words).or_insert_with(|| (flag.clone(), 0)).1 += 1;
            }
            ArmFlags {
                trials: of_arm().count(),
                flagged: of_arm().filter(|trial| !trial.flags.is_empty()).count(),
                reasons: reasons.into_values().collect(),
                label,
            }
        })
        .collect()
}
