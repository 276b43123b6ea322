//! The wording of results: numbers with three significant digits, sentences that come first and the
//! figures that back them.

use stats::{Comparison, Effect, Estimate, Interval, Verdict};
use units::format::{digits, quantity};

use crate::analysis::{Analysis, Row, reasons};
use crate::command;
use crate::journal::Record;
use crate::presentation::DelaySplit;
use crate::record::{Better, Build, Header, Metric, Question, Skip};
use crate::summary::Disturbance;

/// Where the device under test was, when not where it usually is, and what stayed outside.
pub(crate) fn placed(header: &Header) -> Option<String> {
    let environment = Some(header.environment.as_str()).filter(|name| *name != "native");
    environment.map(|name| {
        format!(
            "The device under test ran in {name}; generator and probes stayed outside, at the other ends \
             of its links."
        )
    })
}

/// Arms that are other machines, and what is not known of those.
pub(crate) fn away(header: &Header) -> Option<String> {
    let hosts: Vec<String> = header
        .hosts
        .iter()
        .map(|(name, agent)| format!("{name} ({agent})"))
        .collect();
    (!hosts.is_empty()).then(|| {
        format!(
            "Served by other machines: {}. Noise on those machines is not measured: the noise shown here is this \
             machine's.",
            hosts.join(", ")
        )
    })
}

/// Arms that are builds of `lowroad`, each with what tells it from the others.
pub(crate) fn builds(header: &Header) -> Option<String> {
    let builds: Vec<String> = header
        .builds
        .iter()
        .map(|(name, build)| {
            let Build {
                path,
                version,
                bytes,
                hash,
                arm,
            } = build;
            let mib = digits(*bytes as f64 / f64::from(1 << 20));
            format!("{name} is {version} at {path} ({mib} MiB, hash {hash}), which runs {arm}")
        })
        .collect();
    (!builds.is_empty()).then(|| format!("Builds of lowroad: {}.", builds.join("; ")))
}

/// Arms that are external programs.
pub(crate) fn programs(header: &Header) -> Option<String> {
    let programs: Vec<String> = header
        .programs
        .iter()
        .map(|(name, program)| match &program.file {
            Some(file) => format!("{name} ({file})"),
            None => name.clone(),
        })
        .collect();
    (!programs.is_empty()).then(|| format!("External programs: {}.", programs.join(", ")))
}

/// A factor below this is said in percent.
const FACTOR_FROM: f64 = 1.1;

/// The answer to a question in words that anyone understands, with its interval; none where the question has no such
/// words, or its arm was not compared.
pub(crate) fn headline(analysis: &Analysis<'_>, question: &Question) -> Option<String> {
    let headline = question.headline.as_ref()?;
    let header = &analysis.record.header;
    let row = header.loads.iter().find_map(|load| {
        let metric = analysis.answering(question, load)?;
        analysis.rows.iter().find(|row| {
            row.metric.name == metric.name
                && row.load == load
                && row.arm == headline.arm
                && row.baseline == header.baseline
        })
    })?;
    let Row { arm, baseline, .. } = row;
    if let Some(skip) = row.skip {
        return Some(format!(
            "{arm} did not run: {}; {}",
            skip.reason, skip.remedy
        ));
    }
    let comparison = row.comparison.as_ref().filter(|_| !row.emulated)?;
    let (Some(all), true) = (&comparison.all, comparison.verdict != Verdict::Unreliable) else {
        let reason = comparison
            .reason
            .as_deref()
            .unwrap_or("nothing was measured");
        return Some(format!(
            "This run cannot tell {arm} from {baseline}: {reason}."
        ));
    };
    let interval = all.interval.map_or_else(String::new, |interval| {
        let ends = ends(row.metric, all.effect, interval);
        let other = other_run(row).map_or_else(String::new, |other| format!("; {other}"));
        let load = match header.loads.len() {
            1 => String::new(),
            _ => format!("; {}", row.load),
        };
        let disturbed = mostly_disturbed(analysis.record);
        format!(
            " ({} CI {ends}, n={}{other}{load}{disturbed})",
            percent(interval.confidence),
            all.n
        )
    });
    if comparison.verdict == Verdict::NoDifference {
        let words = no_difference(row, comparison, all);
        return Some(format!("{words}{interval}."));
    }
    let difference = quantity(all.effect.abs(), &row.metric.unit);
    let text = headline
        .text
        .replace("{ratio}", &factor(all.effect))
        .replace("{difference}", &difference);
    Some(format!("{text}{interval}."))
}

/// A reader who sees the headline alone has to know that most trials shared the machine with other work.
fn mostly_disturbed(record: &Record) -> String {
    let Disturbance {
        disturbed, trials, ..
    } = Disturbance::of(record);
    match 2 * disturbed > trials {
        true => format!("; {disturbed} of {trials} trials were disturbed"),
        false => String::new(),
    }
}

/// For what the claims hold: for no other machine, and for no other time.
pub(crate) fn scope(analysis: &Analysis<'_>) -> String {
    match analysis.other {
        Some(other) => format!(
            "Claims hold for this machine in two runs, this one of {} and the other one of {}: a claim needs both. Figures are \
             this run's, unless they name the other run.",
            whole_seconds(&analysis.record.header.started),
            whole_seconds(&other.record.header.started)
        ),
        None => "Claims hold for this machine in this run.".to_owned(),
    }
}

/// A time without its fraction of a second.
pub(crate) fn whole_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}

/// The most blocks that `--blocks` takes.
const MAX_BLOCKS: usize = 1000;

/// The disturbances of the run, in a sentence; none if nothing disturbed it.
pub(crate) fn disturbance(record: &Record) -> Option<String> {
    let found = Disturbance::of(record);
    let mut sentences = Vec::new();
    if found.disturbed > 0 {
        let disturbed = record.trials.iter().filter(|trial| trial.is_disturbed());
        let most = reasons(disturbed).into_iter().next();
        let most = most.map_or_else(String::new, |(most, _)| format!("; most often: {most}"));
        let (disturbed, trials) = (found.disturbed, found.trials);
        sentences.push(format!(
            "{disturbed} of {trials} trials were disturbed{most}."
        ));
    }
    if found.failed > 0 {
        let (failed, trials) = (found.failed, found.trials);
        sentences.push(format!("{failed} of {trials} trials have no result."));
    }
    let blocks = record.header.blocks;
    // A few of many widen no interval.
    if 10 * found.disturbed > found.trials && blocks < MAX_BLOCKS {
        let blocks = (2 * blocks).min(MAX_BLOCKS);
        let command = command::resume(&record.header.command, &record.folder, Some(blocks));
        sentences.push(format!("For narrower intervals, add blocks: {command}"));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The counts of a question's metrics that the baseline does not have, which no row compares:
/// `bytes differing: 0 in all 20 trials (journal, data)`.
pub(crate) fn counts(analysis: &Analysis<'_>, question: &Question, load: &str) -> Vec<String> {
    let header = &analysis.record.header;
    let metrics = question.metrics.iter();
    let metrics = metrics.filter_map(|name| header.metric(name));
    let of_metric = |metric: &Metric| {
        let values = |arm: &str| analysis.first_values(&metric.name, load, arm);
        if (metric.effect, metric.better) != (Effect::Difference, Better::Lower)
            || !values(&header.baseline).is_empty()
        {
            return None;
        }
        let arms = header.arms.iter();
        let arms = arms.filter(|arm| question.asks_about(arm) && !values(arm).is_empty());
        let arms: Vec<&str> = arms.map(String::as_str).collect();
        let all: Vec<f64> = arms.iter().flat_map(|arm| values(arm)).collect();
        let above = all.iter().filter(|value| **value > 0.0).count();
        let most = all.iter().copied().reduce(f64::max)?;
        let (name, trials, arms) = (short(&metric.name), all.len(), arms.join(", "));
        Some(match above {
            0 => format!("{name}: 0 in all {trials} trials ({arms})"),
            _ => format!(
                "{name}: not 0 in {above} of {trials} trials, {} at most ({arms})",
                quantity(most, &metric.unit)
            ),
        })
    };
    metrics.filter_map(of_metric).collect()
}

/// One answer: the claim, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) claim: String,
    /// Medians.
    pub(crate) medians: String,
    /// Interval, blocks, A/A band.
    pub(crate) evidence: String,
}

impl Sentence {
    /// The evidence of the claim, in one line.
    pub(crate) fn figures(&self) -> String {
        let parts = [self.medians.as_str(), self.evidence.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("   ").replace("   ", " \u{b7} ")
    }

    pub(crate) fn of(row: &Row<'_>) -> Self {
        let plain = |claim: String| Self {
            claim,
            medians: String::new(),
            evidence: String::new(),
        };
        if let Some(skip) = row.skip {
            return plain(format!("{} did not run: {}", row.arm, skip.reason));
        }
        let Some(comparison) = &row.comparison else {
            return plain(format!("{} did not run", row.arm));
        };
        let all = match (&comparison.all, row.emulated) {
            (Some(all), true) => return emulated(row, all),
            (None, true) => return plain(not_compared(row)),
            (Some(all), false) => all,
            (None, false) => return plain(unreliable(row, comparison)),
        };
        let claim = match comparison.verdict {
            Verdict::Better | Verdict::Worse => difference(row, all),
            Verdict::NoDifference => no_difference(row, comparison, all),
            Verdict::Unreliable | Verdict::Skipped | Verdict::Emulated => {
                unreliable(row, comparison)
            }
        };
        Self {
            claim,
            medians: medians(row.metric, all),
            evidence: evidence(row, comparison, all),
        }
    }
}

/// Arms or loads that did not run for the same reason.
pub(crate) struct SkipGroup<'a> {
    pub(crate) what: String,
    /// `did not run`, or `ran no further`.
    pub(crate) how: &'static str,
    pub(crate) reason: &'a str,
    pub(crate) remedy: &'a str,
}

/// Groups of consecutive skips with the same reason, in order.
pub(crate) fn skips(header: &Header) -> Vec<SkipGroup<'_>> {
    let alike = |a: &Skip, b: &Skip| {
        a.load.is_none() && b.load.is_none() && (&a.reason, &a.remedy) == (&b.reason, &b.remedy)
    };
    let ran = |skip: &Skip| skip.load.is_none() && header.given_up(&skip.arm).is_some();
    let alike = |a: &Skip, b: &Skip| alike(a, b) && ran(a) == ran(b);
    header
        .skipped
        .chunk_by(alike)
        .map(|alike| SkipGroup {
            what: alike.iter().map(Skip::what).collect::<Vec<_>>().join(", "),
            how: match ran(&alike[0]) {
                true => "ran no further",
                false => "did not run",
            },
            reason: &alike[0].reason,
            remedy: &alike[0].remedy,
        })
        .collect()
}

/// A range of ratios or of differences.
pub(crate) fn range(lower: f64, upper: f64) -> String {
    let joint = if lower < 0.0 { " to " } else { "-" };
    let (lower, upper) = (digits(lower), digits(upper));
    format!("{lower}{joint}{upper}")
}

/// The name of a metric in a sentence that already names the question. Its unit stands by the number.
pub(crate) fn short(metric: &str) -> String {
    if let Some(spent) = spent(metric) {
        return format!("CPU per {spent}");
    }
    let plain = metric.strip_prefix("delay_").unwrap_or(metric);
    words(plain)
}

/// The words of a metric's name, without its unit: `forward rate` of `forward_pps`, `tcp rr p50` of `tcp_rr_us_p50`,
/// `time per lookup` of `ns_per_lookup`.
fn words(metric: &str) -> String {
    let mut words = Vec::new();
    let mut rest = metric.split('_').peekable();
    while let Some(word) = rest.next() {
        match word {
            "ns" | "us" | "ms" if rest.peek() == Some(&"per") => words.push("time"),
            "ns" | "us" | "ms" | "pct" => {}
            "pps" => words.push("rate"),
            "mbps" => words.push("goodput"),
            word => words.push(word),
        }
    }
    words.join(" ")
}

/// The unit of work of a CPU metric: `delivery` of `cpu_ns_per_delivery`.
fn spent(metric: &str) -> Option<String> {
    let units = ["cpu_ns_per_", "cpu_us_per_", "cpu_s_per_"];
    let spent = units.iter().find_map(|unit| metric.strip_prefix(unit))?;
    Some(spent.replace("gbit", "Gbit").replace('_', " "))
}

/// `95.9 %` of a coverage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn difference(row: &Row<'_>, all: &Estimate) -> String {
    let Row { arm, baseline, .. } = row;
    let spent = spent(&row.metric.name);
    if row.metric.effect == Effect::Ratio && all.effect.max(1.0 / all.effect) >= FACTOR_FROM {
        let (verb, noun) = match spent {
            Some(spent) => ("uses", format!("CPU per {spent}")),
            None if TIMES.contains(&row.metric.unit.as_str()) => ("takes", noun(&row.metric.name)),
            None => ("has", noun(&row.metric.name)),
        };
        return format!("{arm} {verb} {}x {baseline}'s {noun}", factor(all.effect));
    }
    let amount = amount(row.metric, all.effect);
    let lower = all.effect < row.metric.effect.equality();
    if let Some(spent) = spent {
        let compared = if lower { "less" } else { "more" };
        return format!("{arm} uses {amount} {compared} CPU per {spent} than {baseline}");
    }
    let compared = if lower { "lower" } else { "higher" };
    format!("{arm} is {amount} {compared} than {baseline}")
}

/// Units of what an arm takes; it has other things.
const TIMES: [&str; 4] = ["s", "ms", "us", "ns"];

/// A metric behind the name of an arm: `delay` of `delay_p50`, `p99 delay` of `delay_p99`.
fn noun(metric: &str) -> String {
    let name = words(metric);
    let (of, percentile) = match name.rsplit_once(' ') {
        Some((of, "p50" | "median")) => (of, ""),
        Some((of, "p95")) => (of, "p95 "),
        Some((of, "p99")) => (of, "p99 "),
        _ => (name.as_str(), ""),
    };
    format!("{percentile}{of}")
}

fn no_difference(row: &Row<'_>, comparison: &Comparison, all: &Estimate) -> String {
    let reason = comparison
        .reason
        .as_ref()
        .map_or_else(String::new, |reason| format!("; {reason}"));
    if row.other.is_some() {
        let Row { arm, baseline, .. } = row;
        return format!("{arm} and {baseline}: no difference that both runs show{reason}");
    }
    let smallest = all.smallest_detectable(row.metric.effect);
    if smallest == Some(0.0) {
        return format!(
            "{} and {}: no difference in the median block",
            row.arm, row.baseline
        );
    }
    let smallest = smallest.map_or_else(String::new, |size| {
        let size = match row.metric.effect {
            // Beyond that a person reads a factor, not a percentage.
            Effect::Ratio if size >= 10.0 => format!("a factor of {}", digits_short(1.0 + size)),
            Effect::Ratio => format!("{} %", digits_short(100.0 * size)),
            Effect::Difference => quantity(size, &row.metric.unit),
        };
        format!(" (a repetition would detect {size})")
    });
    format!(
        "{} and {}: no difference detectable{smallest}{reason}",
        row.arm, row.baseline
    )
}

/// An emulator's times do not stand for a virtual machine's, so they are not compared.
fn emulated(row: &Row<'_>, all: &Estimate) -> Sentence {
    let (arm, metric) = (&row.arm, row.metric);
    Sentence {
        claim: not_compared(row),
        medians: format!(
            "{} {} in {arm}",
            short(&metric.name),
            quantity(all.arm_median, &metric.unit)
        ),
        evidence: format!("n={}   the times are an emulator's", all.n),
    }
}

fn not_compared(row: &Row<'_>) -> String {
    format!("{} and {}: EMULATED, not compared", row.arm, row.baseline)
}

fn unreliable(row: &Row<'_>, comparison: &Comparison) -> String {
    let reason = comparison.reason.as_deref().unwrap_or("no reason recorded");
    format!("{} and {}: unreliable, {reason}", row.arm, row.baseline)
}

/// How far apart: `4 %`, or `23.7 us`.
fn amount(metric: &Metric, effect: f64) -> String {
    match metric.effect {
        Effect::Difference => quantity(effect.abs(), &metric.unit),
        Effect::Ratio => format!("{} %", digits_short(100.0 * (effect - 1.0).abs())),
    }
}

fn medians(metric: &Metric, all: &Estimate) -> String {
    format!(
        "{} {} vs {}",
        short(&metric.name),
        quantity(all.arm_median, &metric.unit),
        quantity(all.baseline_median, &metric.unit)
    )
}

/// The effect of the other run with its interval, where claims need both.
fn other_run(row: &Row<'_>) -> Option<String> {
    let estimate = row.other.as_ref()?.estimate.as_ref();
    let Some(other) = estimate.filter(|_| !row.emulated) else {
        return Some("other run: no result".to_owned());
    };
    let interval = other.interval.map_or_else(String::new, |interval| {
        let (lower, upper) = (interval.lower, interval.upper);
        let ends = match row.metric.effect {
            Effect::Ratio => format!("{}-{}", factor(lower), factor(upper)),
            Effect::Difference => range(lower, upper),
        };
        format!(" ({ends})")
    });
    let effect = match row.metric.effect {
        Effect::Ratio => factor(other.effect),
        Effect::Difference => quantity(other.effect, &row.metric.unit),
    };
    Some(format!("other run {effect}{interval}"))
}

fn evidence(row: &Row<'_>, comparison: &Comparison, all: &Estimate) -> String {
    let metric = row.metric;
    let mut parts = Vec::new();
    if let Some(interval) = all.interval {
        let range = ends(metric, all.effect, interval);
        parts.push(format!("{} CI {range}", percent(interval.confidence)));
    }
    parts.push(format!("n={}", all.n));
    parts.extend(other_run(row));
    if let Some(aa) = all.aa {
        parts.push(format!("A/A {}", band(metric, aa)));
    }
    if comparison.disturbed > 0 {
        parts.push(format!("disturbed {}", comparison.disturbed));
    }
    let failed: usize = comparison.failed.iter().sum();
    if failed > 0 {
        parts.push(format!("failed {failed}"));
    }
    if comparison.drifting {
        parts.push("drifting".to_owned());
    }
    if let Some(clean) = &comparison.clean {
        let effect = match metric.effect {
            Effect::Ratio => factor(clean.effect),
            Effect::Difference => quantity(clean.effect, &metric.unit),
        };
        parts.push(format!("undisturbed {effect} (n={})", clean.n));
    }
    parts.join("   ")
}

/// The interval: of ratios as they are, of differences turned to the side that the claim names.
fn ends(metric: &Metric, effect: f64, interval: Interval) -> String {
    let Interval { lower, upper, .. } = interval;
    match metric.effect {
        Effect::Ratio => format!("{}-{}", factor(lower), factor(upper)),
        Effect::Difference if effect < 0.0 => {
            format!("{} {}", range(-upper, -lower), metric.unit)
        }
        Effect::Difference => format!("{} {}", range(lower, upper), metric.unit),
    }
}

fn band(metric: &Metric, aa: Interval) -> String {
    match metric.effect {
        Effect::Ratio => format!("{:.2}-{:.2}", aa.lower, aa.upper),
        Effect::Difference => format!("+-{}", quantity(aa.upper, &metric.unit)),
    }
}

/// A ratio with three digits, and from 0.01 on with no more than three decimals: 0.000123, 0.012, 0.979, 1.05, 8.04, 84.1,
/// 1230.
fn factor(ratio: f64) -> String {
    match ratio {
        below if below < 0.01 => digits(below),
        below if below < 1.0 => format!("{below:.3}"),
        below if below < 10.0 => format!("{below:.2}"),
        below if below < 100.0 => format!("{below:.1}"),
        large => format!("{large:.0}"),
    }
}

fn digits_short(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// The parts of the baseline's delay, each with its interval and only where that excludes 0. Said once a load: where the
/// delay is asked for first.
pub(crate) fn delay_split(
    analysis: &Analysis<'_>,
    question: &Question,
    load: &str,
) -> Option<String> {
    let header = &analysis.record.header;
    let split = header.presentation.delay_split.as_ref()?;
    let DelaySplit { metric, arm, .. } = split;
    let mut questions = header.questions.iter();
    let first = questions.find(|question| question.metrics.first() == Some(metric));
    let unit = &header.metric(metric)?.unit;
    let baseline = header.baseline.as_str();
    if baseline == arm || first != Some(question) {
        return None;
    }
    if let Some(other) = analysis.other {
        delay_split(other, question, load)?;
    }
    let added = |arm: &str, other: &str| {
        let (median, interval) =
            analysis.paired(metric, load, (arm, other), |arm, other| arm - other)?;
        (interval.lower > 0.0).then(|| {
            let ends = range(interval.lower, interval.upper);
            format!("{} ({ends})", quantity(median, unit))
        })
    };
    let words = |text: &str, amount: &str, floor: &str| {
        let named = text.replace("{baseline}", baseline).replace("{arm}", arm);
        named.replace("{floor}", floor).replace("{amount}", amount)
    };
    let first = words(&split.first, &added(baseline, arm)?, "");
    let second = header.floor().and_then(|floor| {
        let amount = added(arm, floor)?;
        Some(words(&split.second, &amount, floor))
    });
    Some(match second {
        Some(second) => format!("{first}, and {second}"),
        None => first,
    })
}

/// The machine's energy for each unit of work, or that this machine does not tell it; where a question asks
/// what that work costs.
pub(crate) fn energy_says(
    analysis: &Analysis<'_>,
    question: &Question,
    load: &str,
) -> Option<String> {
    let header = &analysis.record.header;
    let energy = header.presentation.energy.as_ref()?;
    question
        .metrics
        .first()
        .filter(|name| **name == energy.beside)?;
    let arms = header.arms.iter();
    let measured: Vec<String> = arms
        .filter_map(|arm| {
            let values = analysis.first_values(&energy.metric, load, arm);
            let interval = stats::median_interval(&values)?;
            Some(format!(
                "{} {} uJ ({})",
                analysis.display_label(arm),
                digits(stats::median(&values)?),
                range(interval.lower, interval.upper)
            ))
        })
        .collect();
    Some(if measured.is_empty() {
        "RAPL energy: unavailable".to_owned()
    } else {
        let (each, measured) = (&energy.each, measured.join(", "));
        format!("RAPL energy for each {each}, whole machine: {measured}")
    })
}

/// The CPU in the process table, which leaves out all work in softirq.
pub(crate) fn ps_says(analysis: &Analysis<'_>, question: &Question, load: &str) -> Option<String> {
    const PS: &str = "ps_cpu_pct";
    if !question.metrics.iter().any(|name| name.starts_with("cpu_")) {
        return None;
    }
    let header = &analysis.record.header;
    let baseline = &header.baseline;
    if analysis.is_emulated(baseline) {
        return None;
    }
    let mut softirq = header.presentation.softirq.iter();
    let kernel = softirq
        .find(|arm| !analysis.is_emulated(arm) && analysis.values(PS, load, arm).is_some())?;
    let shown = |arm: &str| {
        let values = analysis.first_values(PS, load, arm);
        let interval = stats::median_interval(&values)?;
        let (median, ends) = (
            stats::median(&values)?,
            range(interval.lower, interval.upper),
        );
        Some(format!("{} % ({ends}) for {arm}", digits(median)))
    };
    Some(format!(
        "`ps` would have shown {} and {}",
        shown(kernel)?,
        shown(baseline)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ratios_have_significant_digits() {
        let ratios = [0.000_123_4, 0.004, 0.012_34, 0.979, 1.054, 84.13, 1234.0];
        assert_eq!(
            ratios.map(factor),
            [
                "0.000123", "0.00400", "0.012", "0.979", "1.05", "84.1", "1234"
            ]
        );
    }

    #[test]
    fn metrics_are_named_without_units() {
        for (metric, name, behind_arm) in [
            ("delay_p50", "p50", "delay"),
            ("delay_p99", "p99", "p99 delay"),
            ("forward_pps", "forward rate", "forward rate"),
            ("pwrite_ns_median", "pwrite median", "pwrite"),
            ("tcp_rr_us_p99", "tcp rr p99", "p99 tcp rr"),
            (
                "tcp_stream_mbps",
                "tcp stream goodput",
                "tcp stream goodput",
            ),
            ("loss_pct", "loss", "loss"),
            ("ns_per_lookup", "time per lookup", "time per lookup"),
            ("cpu_ns_per_packet", "CPU per packet", "cpu time per packet"),
        ] {
            assert_eq!(short(metric), name);
            assert_eq!(noun(metric), behind_arm);
        }
    }
}
