//! The figures of a report one by one, for export.

use stats::Effect;

use crate::analysis::{Analysis, Row};
use crate::cpu::usages;
use crate::record::{Header, Metric, Question};
use crate::svg::{self, Figure, WIDTH};
use crate::words::Sentence;

/// The figure that stands for the experiment: the first question's first metric under the first load,
/// with the answer drawn above.
pub fn headline(analysis: &Analysis<'_>) -> Option<Figure> {
    let header = &analysis.record.header;
    let question = header.questions.first()?;
    let load = header.loads.first()?;
    let metric = analysis.answering(question, load)?;
    let best = analysis
        .question_rows(question, &metric.name, load)
        .filter(|row| !row.is_honesty_check() && !header.is_floor(&row.arm))
        .filter(|row| row.baseline == header.baseline)
        .max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    let title = format!("{} ({load})", Sentence::of(best).claim);
    let shown = |arm: &str| question.shows(arm, &header.baseline);
    svg::boxes(
        analysis,
        metric,
        load,
        &shown,
        "headline".to_owned(),
        title,
        WIDTH,
    )
}

/// How far what may be said of the two lies from equality.
fn distance(row: &Row<'_>) -> f64 {
    row.estimate()
        .map_or(-1.0, |estimate| match row.metric.effect {
            Effect::Ratio => estimate.effect.ln().abs(),
            Effect::Difference => estimate.effect.abs(),
        })
}

/// Every box plot, distribution, series and CPU chart, in the order of the report. Identifiers are
/// `METRIC-LOAD-KIND`, the load by its place. Where questions ask for a metric of different arms, each has its
/// box plot: `boxes-q1` of the second.
pub fn all(analysis: &Analysis<'_>) -> Vec<Figure> {
    let header = &analysis.record.header;
    let mut figures = Vec::new();
    for (at, load) in header.loads.iter().enumerate() {
        for metric in &header.metrics {
            let id = |kind: &str| format!("{}-{at}-{kind}", metric.name);
            let title = || format!("{} [{}], {load}", metric.name, metric.unit);
            for (kind, question) in pages(header, metric) {
                let shown = |arm: &str| question.is_none_or(|q| q.shows(arm, &header.baseline));
                figures.extend(svg::boxes(
                    analysis,
                    metric,
                    load,
                    &shown,
                    id(&kind),
                    title(),
                    WIDTH,
                ));
            }
            figures.extend(svg::series(
                analysis,
                metric,
                load,
                &|_| true,
                id("series"),
                title(),
                WIDTH,
            ));
        }
        figures.extend(svg::ecdf(
            analysis,
            load,
            &format!("delay-{at}-ecdf"),
            WIDTH,
        ));
        figures.extend(svg::timeline(
            analysis,
            load,
            format!("batch-{at}-timeline"),
        ));
        let title = format!("CPU time by state, {load}");
        let usages = usages(analysis, load);
        figures.extend(svg::cpu(
            &usages,
            load,
            format!("cpu-{at}-states"),
            title,
            WIDTH,
        ));
    }
    figures
}

/// The box plots of a metric: the kind of each, and the question whose arms it has.
fn pages<'a>(header: &'a Header, metric: &Metric) -> Vec<(String, Option<&'a Question>)> {
    let numbered = header.questions.iter().enumerate();
    let asked = numbered.filter(|(_, question)| question.metrics.contains(&metric.name));
    let asked: Vec<(usize, &Question)> = asked.collect();
    let alike = |a: &Question, b: &Question| (&a.arms, &a.against) == (&b.arms, &b.against);
    match asked.first() {
        Some((_, first)) if !asked.iter().all(|(_, other)| alike(first, other)) => asked
            .iter()
            .map(|&(number, question)| (format!("boxes-q{number}"), Some(question)))
            .collect(),
        _ => vec![("boxes".to_owned(), None)],
    }
}
