//! Whether an arm agrees with another to within the distance that a question gives: not finding a difference
//! does not prove that there is none.

use stats::{Effect, Interval, Verdict};

use crate::analysis::{Analysis, Row};
use crate::record::Question;
use crate::words::{percent, short};

/// A sentence for each metric, load and arm of a question that says how near is near enough.
pub(crate) fn sentences(analysis: &Analysis<'_>, question: &Question) -> Vec<String> {
    let Some(within_pct) = question.within_pct else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    for metric in &question.metrics {
        for load in &analysis.record.header.loads {
            let rows = analysis.question_rows(question, metric, load);
            let rows = rows.filter(|row| !row.is_honesty_check());
            sentences.extend(rows.filter_map(|row| sentence(row, within_pct)));
        }
    }
    sentences
}

/// Shown by an interval that lies wholly within, or wholly without, of which every value is one that the blocks
/// allow; nothing is said of what was emulated, or cannot be compared.
fn sentence(row: &Row<'_>, within_pct: f64) -> Option<String> {
    let comparable = match row.verdict() {
        Verdict::Better | Verdict::Worse | Verdict::NoDifference => true,
        Verdict::Unreliable | Verdict::Skipped | Verdict::Emulated => false,
    };
    let interval = row.estimate().filter(|_| comparable)?.interval?;
    if row.metric.effect != Effect::Ratio {
        return None;
    }
    let Row { arm, baseline, .. } = row;
    let (least, most) = (1.0 - within_pct / 100.0, 1.0 + within_pct / 100.0);
    let agrees = |at: Interval| at.lower >= least && at.upper <= most;
    let differs = |at: Interval| at.upper < least || at.lower > most;
    // If there are two runs, both must agree.
    let other = |holds: &dyn Fn(Interval) -> bool| match &row.other {
        Some(other) => {
            let estimate = other.estimate.as_ref();
            estimate.and_then(|all| all.interval).is_some_and(holds)
        }
        None => true,
    };
    let claim = if agrees(interval) && other(&agrees) {
        format!("{arm} agrees with {baseline} within {within_pct} %")
    } else if differs(interval) && other(&differs) {
        format!("{arm} differs from {baseline} by more than {within_pct} %")
    } else {
        format!("whether {arm} agrees with {baseline} within {within_pct} % is open")
    };
    let (coverage, lower, upper) = (interval.confidence, interval.lower, interval.upper);
    Some(format!(
        "{claim}: {} {}, {} CI {lower:.3}-{upper:.3}",
        row.load,
        short(&row.metric.name),
        percent(coverage)
    ))
}
