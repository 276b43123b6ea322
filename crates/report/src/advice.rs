//! Advice: which arm to take for which class of loads, computed from the record alone.

use stats::{Verdict, median};
use units::format::quantity;

use crate::analysis::Analysis;
use crate::record::{Better, Class, Metric, Question};
use crate::words::{range, short};

/// An arm that loses this many per cent more than the bare link is not recommended.
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

/// The cost of an arm in a class.
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
        .filter(|arm| !analysis.record.header.is_floor(arm) && !analysis.is_emulated(arm))
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
    // The costs are means over loads without an interval: they choose, and are not stated.
    let mut words = format!("{}: {} by {}", class.name, best.arm, short(&metric.name));
    let (worse, alike): (Vec<&Cost<'_>>, Vec<&Cost<'_>>) = others
        .iter()
        .partition(|other| is_worse(analysis, metric, &loads, other.arm, best.arm));
    if !alike.is_empty() {
        let alike: Vec<&str> = alike.iter().map(|other| other.arm).collect();
        words += &format!("; not distinguishable from it: {}", alike.join(", "));
    }
    if !worse.is_empty() {
        let worse_is = match metric.better {
            Better::Lower => "more",
            Better::Higher => "less",
        };
        let worse: Vec<&str> = worse.iter().map(|other| other.arm).collect();
        words += &format!("; {worse_is}: {}", worse.join(", "));
    }
    if !lossy.is_empty() {
        let lossy: Vec<&str> = lossy.into_iter().map(String::as_str).collect();
        words += &format!("; loses packets: {}", lossy.join(", "));
    }
    if let Some(latency) = latency(analysis, class, best.arm) {
        words += &format!("; its rows come after {latency}");
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
    let of_link = analysis.record.header.floor().and_then(lost);
    lost(arm).is_some_and(|own| own > of_link.unwrap_or(0.0) + LOSS_PCT)
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

/// The median latency of an arm's rows with its interval, under the first load of a class that measures it.
fn latency(analysis: &Analysis<'_>, class: &Class, arm: &str) -> Option<String> {
    let mut loads = class.loads.iter();
    loads.find_map(|load| {
        let values = analysis.first_values(LATENCY, load, arm);
        let (middle, interval) = (median(&values)?, stats::median_interval(&values)?);
        let ends = range(interval.lower, interval.upper);
        Some(format!("{} ({ends})", quantity(middle, "us")))
    })
}
