//! From a record to its rows: which arms are paired with which baseline, over which blocks.
//! Judging a pair is `stats`' work; wording and drawing come after.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use stats::{Block, Comparison, Criteria, Effect, Estimate, Flags, Interval, Verdict};

use crate::journal::{Key, Record};
use crate::record::{Metric, Question, Skip, Trial};
use crate::second_run::{self, OtherRow};
use crate::values::{ADDED_PREFIX, ByBlock, Series, Values};

/// A record and all its comparisons.
#[derive(Debug)]
pub struct Analysis<'a> {
    pub record: &'a Record,
    pub rows: Vec<Row<'a>>,
    measured: TrialValues<'a>,
    /// Another run of the experiment, which every claim needs as well.
    pub(crate) other: Option<&'a Self>,
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
    /// The row of another run, where claims need both.
    pub other: Option<OtherRow>,
}

/// The results of a record's trials, and their disturbances.
#[derive(Debug)]
struct TrialValues<'a> {
    /// Values of the first attempt that did not fail, disturbed or not.
    first: Values<'a>,
    /// Values of the last attempt, which schema 1 repeated until it was not disturbed.
    last: Values<'a>,
    /// By series and block.
    states: BTreeMap<Series<'a>, BTreeMap<usize, TrialState>>,
    /// Over all attempts.
    flags: BTreeMap<Series<'a>, Flags>,
}

/// The outcome of the trial at one place in a block.
#[derive(Clone, Copy, Debug, Default)]
struct TrialState {
    /// No attempt has a result.
    failed: bool,
    /// The last attempt has accounts that do not add up: a fault of the instrument, which is not counted against the arm.
    invalid: bool,
    /// The first attempt with a result was disturbed.
    first_disturbed: bool,
    /// The last attempt was.
    last_disturbed: bool,
}

/// Two arms whose values of a metric under a load are compared.
#[derive(Clone, Debug)]
struct ArmPair<'a> {
    metric: &'a Metric,
    load: &'a str,
    arm: String,
    baseline: &'a str,
}

impl<'a> Analysis<'a> {
    pub fn new(record: &'a Record) -> Self {
        let measured = TrialValues::of(record);
        let emulated = record.trials.iter().filter(|trial| trial.is_emulated());
        let emulated: BTreeSet<&str> = emulated.map(|trial| trial.arm.as_str()).collect();
        let pairs = measured.pairs(record);
        let all = pairs.len();
        let primary = pairs.iter().filter(|pair| pair.metric.primary).count();
        let mut pairs = pairs.into_iter().peekable();
        let mut rows = Vec::new();
        for metric in &record.header.metrics {
            for load in &record.header.loads {
                while let Some(pair) =
                    pairs.next_if(|pair| pair.metric == metric && pair.load == load)
                {
                    // Rows that were named as primary before the run share its false claims among themselves.
                    let count = if metric.primary { primary } else { all };
                    rows.extend(measured.row(record, pair, count));
                }
                rows.extend(skipped(record, &measured.first, metric, load));
            }
        }
        for row in &mut rows {
            row.emulated = [row.baseline, plain(&row.arm)]
                .iter()
                .any(|arm| emulated.contains(arm));
        }
        Self {
            record,
            rows,
            measured,
            other: None,
            emulated,
        }
    }

    /// Has every claim need another run as well.
    pub(crate) fn joined(mut self, other: &'a Self) -> Self {
        for row in &mut self.rows {
            second_run::join_row(row, other);
        }
        self.other = Some(other);
        self
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

    /// The values of a metric by block, each trial's first attempt, disturbed or not.
    pub fn values(&self, metric: &str, load: &str, label: &str) -> Option<&ByBlock> {
        self.measured.first.get(metric, load, label)
    }

    /// Whether any trial of a block under a load was disturbed.
    pub fn has_flags(&self, load: &str, block: usize) -> bool {
        let mut states = self
            .measured
            .states
            .iter()
            .filter(|((at, _), _)| *at == load);
        states.any(|(_, blocks)| {
            let state = blocks.get(&block);
            state.is_some_and(|state| state.first_disturbed || state.failed)
        })
    }

    /// The values of all blocks, each trial's first attempt, disturbed or not.
    pub fn first_values(&self, metric: &str, load: &str, label: &str) -> Vec<f64> {
        let blocks = self.values(metric, load, label).into_iter().flatten();
        blocks.map(|(_, value)| *value).collect()
    }

    /// The first attempt of each trial that has a result.
    pub fn first_trials(&self) -> impl Iterator<Item = &'a Trial> {
        first_attempts(self.record)
    }

    /// The median over blocks of what `of` makes of one arm's value and another's, with its interval.
    pub fn paired(
        &self,
        metric: &str,
        load: &str,
        (arm, other): (&str, &str),
        of: impl Fn(f64, f64) -> f64,
    ) -> Option<(f64, Interval)> {
        if self.is_emulated(arm) || self.is_emulated(other) {
            return None;
        }
        let others = self.values(metric, load, other)?;
        let arms = self.values(metric, load, arm)?.iter();
        let pairs: Vec<f64> = arms
            .filter_map(|(block, value)| Some(of(*value, *others.get(block)?)))
            .filter(|value| value.is_finite())
            .collect();
        Some((stats::median(&pairs)?, stats::median_interval(&pairs)?))
    }

    /// The verdict on one arm against another under a load.
    pub fn judge(&self, metric: &Metric, load: &str, arm: &str, other: &str) -> Option<Verdict> {
        if self.is_emulated(arm) || self.is_emulated(other) {
            return Some(Verdict::Emulated);
        }
        let rows = self.rows.len();
        let compared = self
            .measured
            .compare(self.record, metric, load, (arm, other), rows);
        let own = compared?.verdict;
        Some(match self.other {
            Some(run) => {
                let verdict = run.judge(metric, load, arm, other);
                second_run::both(own, verdict.unwrap_or(Verdict::Skipped))
            }
            None => own,
        })
    }

    /// The metric that answers a question under a load: the first that was measured there of those in the unit of
    /// its first one. A question about several tests names one of each.
    pub fn answering(&self, question: &Question, load: &str) -> Option<&'a Metric> {
        let header = &self.record.header;
        let named = question.metrics.iter();
        let mut named = named.filter_map(|name| header.metric(name)).peekable();
        let first = *named.peek()?;
        let measured = |metric: &&Metric| {
            let loads = self.measured.first.loads(&metric.name);
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
    /// The estimate of one arm against the other, if it supports a statement.
    pub fn estimate(&self) -> Option<&Estimate> {
        let comparison = self.comparison.as_ref().filter(|_| !self.emulated)?;
        comparison.all.as_ref()
    }

    pub fn verdict(&self) -> Verdict {
        match &self.comparison {
            None => Verdict::Skipped,
            Some(_) if self.emulated => Verdict::Emulated,
            Some(comparison) => comparison.verdict,
        }
    }

    /// How far from equality a claimed effect lies; rows without a claim come last.
    pub(crate) fn strength(&self) -> f64 {
        let claimed = matches!(self.verdict(), Verdict::Better | Verdict::Worse);
        let effect = self.estimate().map_or(0.0, |all| all.effect);
        match (claimed, self.metric.effect) {
            (true, Effect::Ratio) => effect.ln().abs(),
            (true, Effect::Difference) => effect.abs(),
            (false, _) => -1.0,
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
        let has_result = |trial: &&Trial| !trial.has_failed();
        let mut measured = Self {
            first: Values::of(&record.header, &first_attempts(record)),
            last: Values::of(&record.header, &trials().filter(has_result)),
            states: BTreeMap::new(),
            flags: BTreeMap::new(),
        };
        for trial in trials() {
            let series = (trial.load.as_str(), trial.label());
            let count = measured.flags.entry(series.clone()).or_default();
            count.trials += 1;
            count.flagged += usize::from(!trial.is_clean());
            let blocks = measured.states.entry(series).or_default();
            let state = blocks.entry(trial.block).or_insert_with(|| TrialState {
                failed: true,
                ..TrialState::default()
            });
            state.invalid = !trial.violations.is_empty();
            if state.failed && !trial.has_failed() {
                state.failed = false;
                state.first_disturbed = !trial.is_clean();
            }
            state.last_disturbed = !trial.is_clean();
        }
        measured
    }

    /// The trial of a series in a block, where one ran.
    fn state(&self, load: &str, label: &str, block: usize) -> Option<TrialState> {
        let blocks = self.states.get(&(load, label.to_owned()))?;
        blocks.get(&block).copied()
    }

    /// Every pair of arms that measured a metric under a load, in the order of the metrics and loads.
    fn pairs(&self, record: &'a Record) -> Vec<ArmPair<'a>> {
        let baseline = record.header.baseline.as_str();
        let arms = record.header.arms.iter().filter(|arm| *arm != baseline);
        let mut arms: Vec<(String, &str)> = arms.map(|arm| (arm.clone(), baseline)).collect();
        arms.push((format!("{baseline}''"), baseline));
        let mut pairs = Vec::new();
        for metric in &record.header.metrics {
            let of_metric = || arms.iter().cloned().chain(further_pairs(record, metric));
            for load in &record.header.loads {
                let measured = |label: &str| self.first.get(&metric.name, load, label).is_some();
                let compared = of_metric().filter(|(arm, other)| measured(arm) && measured(other));
                pairs.extend(compared.map(|(arm, baseline)| ArmPair {
                    metric,
                    load,
                    arm,
                    baseline,
                }));
            }
        }
        pairs
    }

    /// The row of a pair, in a report of `rows` rows that can claim.
    fn row(&self, record: &'a Record, pair: ArmPair<'a>, rows: usize) -> Option<Row<'a>> {
        let ArmPair {
            metric,
            load,
            arm,
            baseline,
        } = pair;
        let comparison = self.compare(record, metric, load, (&arm, baseline), rows)?;
        Some(Row {
            metric,
            load,
            baseline,
            comparison: Some(comparison),
            skip: None,
            given_up: [plain(&arm), baseline]
                .iter()
                .find_map(|arm| record.header.given_up(arm)),
            arm,
            emulated: false,
            other: None,
        })
    }

    /// None where one of the two never measured the metric under this load.
    fn compare(
        &self,
        record: &Record,
        metric: &Metric,
        load: &str,
        (arm, other): (&str, &str),
        rows: usize,
    ) -> Option<Comparison> {
        let criteria = Criteria {
            effect: metric.effect,
            better: metric.better,
            rows,
            resolution: metric.resolution,
            offset: self.offset(record, metric, load),
            flags: [self.flags_of(load, arm), self.flags_of(load, other)],
        };
        let all = self.blocks(record, metric, load, (arm, other), &self.first)?;
        let mut clean = self.blocks(record, metric, load, (arm, other), &self.last)?;
        clean.retain(|number, block| {
            // A retried attempt may be clean where the first was not.
            let used = self.used(record, metric, (arm, other));
            let disturbed = |label: &String| {
                let state = self.state(load, label, *number);
                state.is_some_and(|state| state.last_disturbed)
            };
            block.arm.is_some() && block.baseline.is_some() && !used.iter().any(disturbed)
        });
        let values = |blocks: BTreeMap<usize, Block>| blocks.into_values().collect::<Vec<_>>();
        let mut comparison = Comparison::new(&criteria, &values(all), &values(clean));
        for (failed, label) in comparison.failed.iter_mut().zip([arm, other]) {
            *failed += self.invalid(load, label);
        }
        Some(comparison)
    }

    /// The median that was taken off the values of a metric: the floor's of `added_NAME`.
    fn offset(&self, record: &Record, metric: &Metric, load: &str) -> f64 {
        let plain = metric.name.strip_prefix(ADDED_PREFIX);
        let of_floor = plain
            .zip(record.header.floor())
            .and_then(|(plain, floor)| self.first.get(plain, load, floor));
        let values: Vec<f64> = of_floor.into_iter().flatten().map(|(_, v)| *v).collect();
        stats::median(&values).unwrap_or(0.0)
    }

    /// The number of a series' trials whose accounts do not add up: their blocks are left out.
    fn invalid(&self, load: &str, label: &str) -> usize {
        let blocks = self.states.get(&(load, label.to_owned()));
        let states = blocks.into_iter().flat_map(BTreeMap::values);
        states.filter(|state| state.failed && state.invalid).count()
    }

    /// The series that a comparison rests on: other trials of a block do not concern it.
    fn used(&self, record: &Record, metric: &Metric, (arm, other): (&str, &str)) -> Vec<String> {
        let baseline = &record.header.baseline;
        let mut used = vec![
            arm.to_owned(),
            other.to_owned(),
            baseline.clone(),
            format!("{baseline}'"),
        ];
        let floor = record.header.floor().map(str::to_owned);
        used.extend(floor.filter(|_| metric.name.starts_with(ADDED_PREFIX)));
        used
    }

    /// The blocks of two arms, with values of first or of last attempts.
    fn blocks(
        &self,
        record: &Record,
        metric: &Metric,
        load: &str,
        (arm, other): (&str, &str),
        values: &Values<'_>,
    ) -> Option<BTreeMap<usize, Block>> {
        let of = |label: &str| values.get(&metric.name, load, label);
        let baseline = &record.header.baseline;
        let (first, second) = (of(baseline), of(&format!("{baseline}'")));
        let (arms, others) = (of(arm)?, of(other)?);
        let others_used = &self.used(record, metric, (arm, other))[2..];
        let ran = |label: &str| self.states.get(&(load, label.to_owned()));
        let numbers: BTreeSet<usize> = ran(arm)
            .into_iter()
            .chain(ran(other))
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        let at = |series: Option<&ByBlock>, number| series?.get(&number).copied();
        let of_block = |number: usize| {
            let [of_arm, of_other] = [arm, other].map(|label| self.state(load, label, number));
            let value = |state: Option<TrialState>, values: &ByBlock| {
                let value = values.get(&number).copied();
                // A trial that measured something else is not a failure: the block is left out.
                let state = state?;
                (value.is_some() || (state.failed && !state.invalid)).then_some(value)
            };
            let disturbed = |state: Option<TrialState>| state.is_some_and(|s| s.first_disturbed);
            let block = Block {
                arm: value(of_arm, arms)?,
                baseline: value(of_other, others)?,
                aa: at(first, number).zip(at(second, number)),
                arm_disturbed: disturbed(of_arm),
                baseline_disturbed: disturbed(of_other),
                other_disturbed: others_used
                    .iter()
                    .any(|label| disturbed(self.state(load, label, number))),
            };
            Some((number, block))
        };
        Some(numbers.into_iter().filter_map(of_block).collect())
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
                let baseline = &record.header.baseline;
                let further = other != baseline && arm != other && question.asks_about(arm);
                // The same pair in reverse adds nothing.
                let reversed = pairs.iter().any(|(one, two)| one == other && two == arm)
                    || (arm == baseline && question.asks_about(other));
                if further && !reversed && !pairs.contains(&pair) {
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
        // The values from before it was given up have a row already.
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
            other: None,
        })
        .collect()
}

/// The first attempt of each trial that has a result, in the order they ran.
fn first_attempts(record: &Record) -> impl Iterator<Item = &Trial> + Clone {
    let mut first = BTreeMap::new();
    for (at, trial) in record.trials.iter().enumerate() {
        if !trial.has_failed() {
            first.entry(Key::of(trial)).or_insert(at);
        }
    }
    let places: BTreeSet<usize> = first.into_values().collect();
    let trials = record.trials.iter().enumerate();
    let chosen = move |(at, _): &(usize, &Trial)| places.contains(at);
    trials.filter(chosen).map(|(_, trial)| trial)
}

/// Flags of one arm: what the report prints beside the limit of `stats::FLAG_GAP_POINTS`.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmFlags {
    pub label: String,
    /// Attempts, flagged or not.
    pub trials: usize,
    pub flagged: usize,
    /// The flags, and how many of each there are. Those that differ in their numbers alone are one.
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

/// The disturbances and faults of these trials with their counts, the most frequent first. Reasons that differ only in
/// their numbers are one, with the range of each number.
pub(crate) fn reasons<'a>(trials: impl Iterator<Item = &'a Trial>) -> Vec<(String, usize)> {
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for reason in trials.flat_map(|trial| trial.flags.iter().chain(&trial.violations)) {
        let words = parts(reason).into_iter();
        let words = words.filter(|part| part.parse::<f64>().is_err());
        let alike = reasons.entry(words.collect()).or_default();
        alike.push(reason);
    }
    let reasons = reasons.into_values();
    let mut reasons: Vec<_> = reasons
        .map(|alike| (with_ranges(&alike), alike.len()))
        .collect();
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    reasons
}

/// The first of these texts, which differ in their numbers alone, with the range of each number: `5.2 to 9.1 %`.
fn with_ranges(texts: &[&str]) -> String {
    let texts: Vec<Vec<&str>> = texts.iter().map(|text| parts(text)).collect();
    let first = texts.first().into_iter().flatten().enumerate();
    let ranges = first.map(|(at, part)| {
        let of_text = |text: &Vec<&str>| text.get(at)?.parse::<f64>().ok();
        let values = || texts.iter().filter_map(of_text);
        match (values().reduce(f64::min), values().reduce(f64::max)) {
            (Some(least), Some(most)) if least < most => {
                let places = part.split_once('.').map_or(0, |(_, places)| places.len());
                format!("{least:.places$} to {most:.places$}")
            }
            _ => (*part).to_owned(),
        }
    });
    ranges.collect()
}

/// The numbers of a text and what stands between them, in their order.
fn parts(text: &str) -> Vec<&str> {
    let is_number = |sign: char| sign.is_ascii_digit() || sign == '.';
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let number = is_number(sign);
        let end = rest.find(|sign| is_number(sign) != number);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = after;
    }
    parts
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
            ArmFlags {
                trials: of_arm().count(),
                flagged: of_arm().filter(|trial| !trial.is_clean()).count(),
                reasons: reasons(of_arm()),
                label,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_have_their_range() {
        assert_eq!(
            with_ranges(&[
                "stolen 6.1 % (usual: 3.0 %)",
                "stolen 12.4 % (usual: 3.0 %)"
            ]),
            "stolen 6.1 to 12.4 % (usual: 3.0 %)"
        );
        assert_eq!(with_ranges(&["10.0.0.1 is gone."]), "10.0.0.1 is gone.");
    }
}
