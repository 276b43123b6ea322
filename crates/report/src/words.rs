//! How results are said: numbers with three significant digits, sentences that come first and the
//! figures that back them.

use stats::{Comparison, Effect, Estimate, Interval, Verdict};
use units::format::{digits, quantity};

use crate::analysis::{Analysis, FLOOR, Row};
use crate::record::{Header, Metric, Question, Skip};

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
            "Served by other machines: {}. What disturbs those is not seen: the noise that is told of is this \
             machine's.",
            hosts.join(", ")
        )
    })
}

/// A factor below this is said in percent.
const FACTOR_FROM: f64 = 1.1;

/// Energy of the processors for each delivery, where the machine tells it.
const ENERGY: &str = "energy_uj_per_delivery";

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
        let clean = match (&comparison.clean, row.emulated) {
            (Some(clean), true) => return emulated(row, clean),
            (None, true) => return plain(not_compared(row)),
            (Some(clean), false) => clean,
            (None, false) => return plain(unreliable(row, comparison)),
        };
        let claim = match comparison.verdict {
            Verdict::Better | Verdict::Worse => difference(row, clean),
            Verdict::NoDifference => no_difference(row, comparison, clean),
            Verdict::Unreliable | Verdict::Skipped | Verdict::Emulated => {
                unreliable(row, comparison)
            }
        };
        Self {
            claim,
            medians: medians(row.metric, clean),
            evidence: evidence(row.metric, comparison, clean),
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

/// What a metric is called in a sentence that already names the question. Its unit stands by the number.
pub(crate) fn short(metric: &str) -> String {
    if let Some(spent) = spent(metric) {
        return format!("CPU per {spent}");
    }
    let plain = metric.strip_prefix("delay_").unwrap_or(metric);
    let plain = plain.strip_suffix("_mbps").unwrap_or(plain);
    plain.replace("_us_p", "_p").replace('_', " ")
}

/// What CPU time is told for: `delivery` of `cpu_ns_per_delivery`.
fn spent(metric: &str) -> Option<String> {
    let units = ["cpu_ns_per_", "cpu_us_per_", "cpu_s_per_"];
    let spent = units.iter().find_map(|unit| metric.strip_prefix(unit))?;
    Some(spent.replace("gbit", "Gbit").replace('_', " "))
}

/// `95.9 %` of a coverage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn difference(row: &Row<'_>, clean: &Estimate) -> String {
    let Row { arm, baseline, .. } = row;
    let amount = amount(row.metric, clean.effect);
    let lower = clean.effect < equality(row.metric.effect);
    if let Some(spent) = spent(&row.metric.name) {
        let compared = if lower { "less" } else { "more" };
        return format!("{arm} uses {amount} {compared} CPU per {spent} than {baseline}");
    }
    let compared = if lower { "lower" } else { "higher" };
    format!("{arm} is {amount} {compared} than {baseline}")
}

fn no_difference(row: &Row<'_>, comparison: &Comparison, clean: &Estimate) -> String {
    if clean.smallest_detectable == Some(0.0) {
        return format!(
            "{} and {}: no difference in the median block",
            row.arm, row.baseline
        );
    }
    let smallest = clean.smallest_detectable.map_or_else(String::new, |size| {
        let size = match row.metric.effect {
            Effect::Ratio => format!("{} %", digits_short(100.0 * size)),
            Effect::Difference => quantity(size, &row.metric.unit),
        };
        format!(" (smallest detectable {size})")
    });
    let reason = comparison
        .reason
        .as_ref()
        .map_or_else(String::new, |reason| format!("; {reason}"));
    format!(
        "{} and {}: no difference detectable{smallest}{reason}",
        row.arm, row.baseline
    )
}

/// Times of an emulator are no virtual machine's: they stand alone.
fn emulated(row: &Row<'_>, clean: &Estimate) -> Sentence {
    let (arm, metric) = (&row.arm, row.metric);
    Sentence {
        claim: not_compared(row),
        medians: format!(
            "{} {} in {arm}",
            short(&metric.name),
            quantity(clean.arm_median, &metric.unit)
        ),
        evidence: format!("n={}   the times are an emulator's", clean.n),
    }
}

fn not_compared(row: &Row<'_>) -> String {
    format!("{} and {}: EMULATED, not compared", row.arm, row.baseline)
}

fn unreliable(row: &Row<'_>, comparison: &Comparison) -> String {
    let reason = comparison.reason.as_deref().unwrap_or("no reason recorded");
    format!("{} and {}: unreliable, {reason}", row.arm, row.baseline)
}

/// How far apart: `8.0x`, `4 %`, or `23.7 us`.
fn amount(metric: &Metric, effect: f64) -> String {
    match metric.effect {
        Effect::Difference => quantity(effect.abs(), &metric.unit),
        Effect::Ratio => {
            let factor = effect.max(1.0 / effect);
            if factor >= FACTOR_FROM {
                format!("{}x", factor_digits(factor))
            } else {
                format!("{} %", digits_short(100.0 * (effect - 1.0).abs()))
            }
        }
    }
}

fn medians(metric: &Metric, clean: &Estimate) -> String {
    format!(
        "{} {} vs {}",
        short(&metric.name),
        quantity(clean.arm_median, &metric.unit),
        quantity(clean.baseline_median, &metric.unit)
    )
}

fn evidence(metric: &Metric, comparison: &Comparison, clean: &Estimate) -> String {
    let mut parts = Vec::new();
    if let Some(interval) = clean.interval {
        let claimed = matches!(comparison.verdict, Verdict::Better | Verdict::Worse);
        let range = match metric.effect {
            // Without a claim there is no side to turn it to.
            Effect::Ratio if !claimed => format!("{:.3}-{:.3}", interval.lower, interval.upper),
            _ => oriented(metric, clean.effect, interval),
        };
        parts.push(format!("{} CI {range}", percent(interval.confidence)));
    }
    parts.push(format!("n={}", clean.n));
    if let Some(aa) = clean.aa {
        parts.push(format!("A/A {}", band(metric, aa)));
    }
    if comparison.flagged > 0 {
        parts.push(format!("flagged {}", comparison.flagged));
    }
    parts.join("   ")
}

/// The interval turned the way the claim is said: as factors above 1, or percents, of the same side.
fn oriented(metric: &Metric, effect: f64, interval: Interval) -> String {
    let Interval { lower, upper, .. } = interval;
    if metric.effect == Effect::Difference {
        let turned = if effect < 0.0 {
            range(-upper, -lower)
        } else {
            range(lower, upper)
        };
        return format!("{turned} {}", metric.unit);
    }
    match effect {
        below if below <= 1.0 / FACTOR_FROM => {
            format!(
                "{}-{}",
                factor_digits(1.0 / upper),
                factor_digits(1.0 / lower)
            )
        }
        above if above >= FACTOR_FROM => {
            format!("{}-{}", factor_digits(lower), factor_digits(upper))
        }
        _ => format!("{lower:.3}-{upper:.3}"),
    }
}

fn band(metric: &Metric, aa: Interval) -> String {
    match metric.effect {
        Effect::Ratio => format!("{:.2}-{:.2}", aa.lower, aa.upper),
        Effect::Difference => format!("+-{}", quantity(aa.upper, &metric.unit)),
    }
}

/// Factors are read at a glance: 1.05, 8.0, 84, 1230.
fn factor_digits(factor: f64) -> String {
    if factor < 2.0 {
        format!("{factor:.2}")
    } else if factor < 20.0 {
        format!("{factor:.1}")
    } else {
        format!("{factor:.0}")
    }
}

fn digits_short(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

pub(crate) fn equality(effect: Effect) -> f64 {
    match effect {
        Effect::Ratio => 1.0,
        Effect::Difference => 0.0,
    }
}

/// Splits the delay of a baseline that sleeps into waking up (what the busy-polling arm saves) and work
/// (what that one adds to the bare link). Said once a load: where the median delay is asked for first.
pub(crate) fn delay_split(
    analysis: &Analysis<'_>,
    question: &Question,
    load: &str,
) -> Option<String> {
    const DELAY: &str = "delay_p50";
    let header = &analysis.record.header;
    let asks = |question: &&Question| question.metrics.first().is_some_and(|name| name == DELAY);
    let unit = &header.metric(DELAY)?.unit;
    let (baseline, job) = (&header.baseline, &header.job);
    let busy = header.presentation.busy_polling.as_ref()?;
    if baseline == busy || header.questions.iter().find(asks) != Some(question) {
        return None;
    }
    let wake = analysis.paired_difference(DELAY, load, baseline, busy)?;
    if wake <= 0.0 {
        return Some(format!(
            "a {job} that never sleeps ({busy}) is no faster than {baseline}: none of its delay is waking up"
        ));
    }
    let wake = quantity(wake, unit);
    let Some(work) = analysis.paired_difference(DELAY, load, busy, FLOOR) else {
        return Some(format!(
            "of {baseline}'s delay, {wake} are a sleeping process waking up ({baseline} less {busy}); \
             link and work are not told apart here"
        ));
    };
    Some(format!(
        "of {baseline}'s delay over the bare link, {wake} are a sleeping process waking up ({baseline} less \
         {busy}) and {} are work ({busy} less {FLOOR})",
        quantity(work, unit)
    ))
}

/// The machine's energy for each delivery, or that this machine does not tell it; where a question asks
/// what a delivery costs.
pub(crate) fn energy_says(
    analysis: &Analysis<'_>,
    question: &Question,
    load: &str,
) -> Option<String> {
    question
        .metrics
        .first()
        .filter(|name| *name == "cpu_ns_per_delivery")?;
    let measured: Vec<String> = analysis
        .record
        .header
        .arms
        .iter()
        .filter_map(|arm| {
            let spent = stats::median(&analysis.clean_values(ENERGY, load, arm))?;
            Some(format!(
                "{} {} uJ",
                analysis.display_label(arm),
                digits(spent)
            ))
        })
        .collect();
    Some(if measured.is_empty() {
        "RAPL energy: unavailable".to_owned()
    } else {
        let measured = measured.join(", ");
        format!("RAPL energy for each delivery, whole machine: {measured}")
    })
}

/// What the process table shows, which leaves out all work in softirq.
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
    let arm = stats::median(&analysis.clean_values(PS, load, kernel))?;
    let other = stats::median(&analysis.clean_values(PS, load, baseline))?;
    let gain = if arm > 0.0 {
        format!("{}x less", factor_digits(other / arm))
    } else {
        "infinitely less".to_owned()
    };
    Some(format!(
        "what `ps` would have told you: {gain} ({kernel} {arm:.1} % vs {baseline} {other:.1} %)"
    ))
}
