//! The figures of a report one by one, for export.

use crate::analysis::{Analysis, FLOOR};
use crate::cpu::usages;
use crate::svg::{self, Figure};
use crate::words::Sentence;

/// The figure that stands for the experiment: the first question's first metric under the first load,
/// with the answer drawn above.
pub fn headline(analysis: &Analysis<'_>) -> Option<Figure> {
    let header = &analysis.record.header;
    let question = header.questions.first()?;
    let metric = header.metric(question.metrics.first()?)?;
    let load = header.loads.first()?;
    let best = analysis
        .asked(question, &metric.name, load)
        .filter(|row| !row.is_honesty_check() && row.arm != FLOOR)
        .filter(|row| row.baseline == header.baseline)
        .max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    let title = format!("{} ({load})", Sentence::of(best).claim);
    svg::boxes(analysis, metric, load, "headline".to_owned(), title)
}

fn distance(row: &crate::analysis::Row<'_>) -> f64 {
    row.comparison
        .as_ref()
        .and_then(|comparison| comparison.clean.as_ref())
        .map_or(0.0, |clean| clean.effect.ln().abs())
}

/// Every box plot, distribution, series and CPU chart, in the order of the report. Identifiers are
/// `METRIC-LOAD-KIND`, the load by its place.
pub fn all(analysis: &Analysis<'_>) -> Vec<Figure> {
    let header = &analysis.record.header;
    let mut figures = Vec::new();
    for (at, load) in header.loads.iter().enumerate() {
        for metric in &header.metrics {
            let id = |kind: &str| format!("{}-{at}-{kind}", metric.name);
            let title = || format!("{} [{}], {load}", metric.name, metric.unit);
            figures.extend(svg::boxes(analysis, metric, load, id("boxes"), title()));
            figures.extend(svg::series(analysis, metric, load, id("series"), title()));
        }
        figures.extend(svg::ecdf(analysis, load, &format!("delay-{at}-ecdf")));
        figures.extend(svg::timeline(
            analysis,
            load,
            format!("batch-{at}-timeline"),
        ));
        let title = format!("CPU time by state, {load}");
        let usages = usages(analysis, load);
        figures.extend(svg::cpu(&usages, load, format!("cpu-{at}-states"), title));
    }
    figures
}
