//! From which size on an arm is better than another: a sentence for each pair along a number in the loads'
//! names, computed from the record alone.

use std::collections::BTreeMap;

use stats::Verdict;

use crate::analysis::Analysis;
use crate::record::{Better, Metric, Question};
use crate::words::short;

/// Loads that differ in one number alone, by that number.
type Sizes<'a> = BTreeMap<u64, &'a str>;

/// The sentences of a question, in the order of what it looks along.
pub(crate) fn sentences(analysis: &Analysis<'_>, question: &Question) -> Vec<String> {
    let metric = question.metrics.first();
    let Some(metric) = metric.and_then(|name| analysis.record.header.metric(name)) else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    for along in &question.along {
        for (others, sizes) in series(analysis, along) {
            for (arm, other) in pairs(analysis, question) {
                let found = crossing(analysis, metric, &sizes, arm, other);
                sentences.extend(found.map(|from| {
                    format!(
                        "{arm} {} {other} {} ({others})",
                        claim(metric),
                        words(along, &sizes, from)
                    )
                }));
            }
        }
    }
    sentences
}

/// The loads that have a number of this name, by what else they are.
fn series<'a>(analysis: &'a Analysis<'_>, along: &str) -> BTreeMap<String, Sizes<'a>> {
    let mut all: BTreeMap<String, Sizes<'a>> = BTreeMap::new();
    for load in &analysis.record.header.loads {
        let number = |word: &str| word.strip_prefix(along)?.strip_prefix('=')?.parse().ok();
        let Some(size) = load.split(' ').find_map(number) else {
            continue;
        };
        let others = load.split(' ').filter(|word| number(word).is_none());
        let others: Vec<&str> = others.collect();
        all.entry(others.join(" ")).or_default().insert(size, load);
    }
    all.retain(|_, sizes| sizes.len() > 1);
    all
}

/// Whom the question is about, and whom they are compared with; nothing is said of what was emulated.
fn pairs<'a>(analysis: &'a Analysis<'_>, question: &'a Question) -> Vec<(&'a String, &'a String)> {
    let header = &analysis.record.header;
    let real = |arm: &&String| !header.is_floor(arm) && !analysis.is_emulated(arm);
    let others: Vec<_> = std::iter::once(&header.baseline)
        .chain(&question.against)
        .filter(real)
        .collect();
    let asked = |arm: &&String| question.arms.is_empty() || question.arms.contains(arm);
    let arms = header.arms.iter().filter(asked).filter(real);
    let arms = arms.filter(|arm| !others.contains(arm));
    arms.flat_map(|arm| others.iter().map(move |other| (arm, *other)))
        .collect()
}

/// The least size from which on every one has the arm better; `None` within where none has, and without
/// where the two were not measured under all of them.
fn crossing(
    analysis: &Analysis<'_>,
    metric: &Metric,
    sizes: &Sizes<'_>,
    arm: &str,
    other: &str,
) -> Option<Option<u64>> {
    let verdicts = sizes
        .iter()
        .map(|(size, load)| Some((*size, analysis.judge(metric, load, arm, other)?)));
    let verdicts: Option<Vec<_>> = verdicts.collect();
    let better = |(_, verdict): &&(u64, Verdict)| *verdict == Verdict::Better;
    let verdicts = verdicts?;
    let from = verdicts.iter().rev().take_while(better).last();
    Some(from.map(|(size, _)| *size))
}

fn claim(metric: &Metric) -> String {
    let more = match metric.better {
        Better::Higher => "more",
        Better::Lower => "less",
    };
    format!("has {more} {} than", short(&metric.name))
}

fn words(along: &str, sizes: &Sizes<'_>, from: Option<u64>) -> String {
    let all: Vec<u64> = sizes.keys().copied().collect();
    let (first, last) = (all.first().copied(), all.last().copied());
    let range = match (first, last) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => String::new(),
    };
    match from {
        None => format!("from no {along} on, of {range}"),
        Some(from) if Some(from) == first => format!("at every {along}, {range}"),
        Some(from) => format!("from {along} {from} on, of {range}"),
    }
}
