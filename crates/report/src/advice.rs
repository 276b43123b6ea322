//! Advice: which arm to take for which class of loads, computed from the record alone.

use stats::{Verdict, median};
use units::format::{digits, quantity};

use crate::analysis::{Analysis, FLOOR};
use crate::record::{Better, Class, Metric, Question};
use crate::words::short;

/// An arm that loses more than the bare link by this is no answer, in per cent.
const LOSS_PCT: f64 = 1.0;
const LOSS: &str = "loss_pct";
const LATENCY: &str = "row_latency_us";

/// A sentence for each class of a question, in their order.
pub(crate) fn sentences(analysis: &Analysis<'_>, question: &Question) -> Vec<String> {
    let metric = question.metrics.first();
    let metric = metric.and_then(|name| analysis.record.header.metric(name));
    let classes = question.classes.iter();
    metric.map_or_else(Vec::new, |metric| {
        classes
            .filter_map(|class| sentence(analysis, class, metric))
            .collect()
    })
}

/// What an arm costs in a class.
struct Cost<'a> {
    arm: &'a str,
    /// The geometric mean of its medians under the class's loads.
    value: f64,
}

fn sentence(analysis: &Analysis<'_>, class: &Class, metric: &Metric) -> Option<String> {
    let measured = |load: &&String| {
        !analysis
            .first_values(&metric.name, load, baseline(analysis))
            .is_empty()
    };
    let loads: Vec<&String> = class.loads.iter().filter(measured).collect();
    let arms = analysis.record.header.arms.iter();
    let arms: Vec<&String> = arms
        .filter(|arm| *arm != FLOOR && !analysis.is_emulated(arm))
        .collect();
    let (lossy, whole): (Vec<&String>, Vec<&String>) = arms
        .into_iter()
        .partition(|arm| loads.iter().any(|load| loses(analysis, load, arm)));
    let mut costs: Vec<Cost<'_>> = whole
        .into_iter()
        .filter_map(|arm| cost(analysis, metric, &loads, arm))
        .collect();
    costs.sort_by(|a, b| a.value.total_cmp(&b.value));
    if metric.better == Better::Higher {
        costs.reverse();
    }
    let (best, others) = costs.split_first()?;
    let mut words = format!(
        "{}: {}, {} {}",
        class.name,
        best.arm,
        quantity(best.value, &metric.unit),
        short(&metric.name)
    );
    let (worse, alike): (Vec<&Cost<'_>>, Vec<&Cost<'_>>) = others
        .iter()
        .partition(|other| is_worse(analysis, metric, &loads, other.arm, best.arm));
    if !alike.is_empty() {
        let alike: Vec<&str> = alike.iter().map(|other| other.arm).collect();
        words += &format!("; not to be told from it: {}", alike.join(", "));
    }
    let (worse_is, factor): (_, fn(f64, f64) -> f64) = match metric.better {
        Better::Lower => ("more", |best, other| other / best),
        Better::Higher => ("less", |best, other| best / other),
    };
    let worse = worse.iter().map(|other| {
        let factor = digits(factor(best.value, other.value));
        format!("{} {factor}x", other.arm)
    });
    let worse: Vec<String> = worse.collect();
    if !worse.is_empty() {
        words += &format!("; {worse_is}: {}", worse.join(", "));
    }
    if !lossy.is_empty() {
        let lossy: Vec<&str> = lossy.into_iter().map(String::as_str).collect();
        words += &format!("; loses packets: {}", lossy.join(", "));
    }
    if let Some(latency) = latency(analysis, class, best.arm) {
        words += &format!("; its rows come after {}", quantity(latency, "us"));
    }
    Some(words)
}

fn baseline<'a>(analysis: &'a Analysis<'_>) -> &'a str {
    &analysis.record.header.baseline
}

fn cost<'a>(
    analysis: &Analysis<'_>,
    metric: &Metric,
    loads: &[&String],
    arm: &'a str,
) -> Option<Cost<'a>> {
    let medians: Option<Vec<f64>> = loads
        .iter()
        .map(|load| median(&analysis.first_values(&metric.name, load, arm)))
        .collect();
    let medians = medians.filter(|medians| !medians.is_empty())?;
    let mean = medians.iter().map(|value| value.ln()).sum::<f64>() / medians.len() as f64;
    Some(Cost {
        arm,
        value: mean.exp(),
    })
}

fn loses(analysis: &Analysis<'_>, load: &str, arm: &str) -> bool {
    let lost = |arm: &str| median(&analysis.first_values(LOSS, load, arm));
    lost(arm).is_some_and(|own| own > lost(FLOOR).unwrap_or(0.0) + LOSS_PCT)
}

/// Whether an arm is claimed to be worse than another under a load, and better under none.
fn is_worse(
    analysis: &Analysis<'_>,
    metric: &Metric,
    loads: &[&String],
    arm: &str,
    other: &str,
) -> bool {
    let verdicts: Vec<Verdict> = loads
        .iter()
        .filter_map(|load| analysis.judge(metric, load, arm, other))
        .collect();
    verdicts.contains(&Verdict::Worse) && !verdicts.contains(&Verdict::Better)
}

fn latency(analysis: &Analysis<'_>, class: &Class, arm: &str) -> Option<f64> {
    let mut loads = class.loads.iter();
    loads.find_map(|load| median(&analysis.first_values(LATENCY, load, arm)))
}
