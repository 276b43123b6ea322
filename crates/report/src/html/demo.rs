//! The page of `lowroad demo`: one question of each job, with its answer, a picture and what others published.

use super::element::{paragraph, responsive};
use super::{disturbance_notice, document};
use crate::analysis::Analysis;
use crate::record::Question;
use crate::svg::{self, escape};
use crate::words::{Sentence, counts, headline};

/// A job's part of the demo.
#[derive(Debug)]
pub enum DemoPart<'a> {
    Measured {
        analysis: &'a Analysis<'a>,
        /// Where its whole report is, relative to the page.
        report: String,
    },
    /// It could not run.
    Missing {
        experiment: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// The whole page.
pub fn demo(parts: &[DemoPart<'_>]) -> String {
    let body: String = parts.iter().map(section).collect();
    let lead = "<p class=\"lead\">One question of each job, answered by ten blocks of trials on this machine. Claims hold \
                for this machine in this run. Links are veth pairs: they show what the software costs. Each part has its \
                whole report beside this page.</p>";
    document("lowroad demo", lead, &body)
}

/// The answer to a part's question, for a terminal.
pub fn demo_answer(part: &DemoPart<'_>) -> String {
    match part {
        DemoPart::Measured { analysis, .. } => match question(analysis) {
            Some(question) => answer(analysis, question),
            None => String::new(),
        },
        DemoPart::Missing { experiment, reason } => format!("{experiment} did not run: {reason}"),
    }
}

fn section(part: &DemoPart<'_>) -> String {
    let (analysis, report) = match part {
        DemoPart::Measured { analysis, report } => (analysis, report),
        DemoPart::Missing { experiment, reason } => {
            let reason = paragraph(&format!("Did not run: {reason}"));
            return format!("<section><h2>{}</h2>{reason}</section>", escape(experiment));
        }
    };
    let Some(question) = question(analysis) else {
        return String::new();
    };
    let header = &analysis.record.header;
    let id = header.experiment.as_str();
    let mut html = format!(
        "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{}</h2><p class=\"headline\">{}</p>{}",
        escape(&question.text),
        escape(&answer(analysis, question)),
        disturbance_notice(analysis)
    );
    for load in &header.loads {
        let Some(metric) = analysis.answering(question, load) else {
            continue;
        };
        let shown = |arm: &str| question.shows(arm, &header.baseline);
        let title = format!("{} by arm, {load}", metric.name);
        let boxes =
            |id, width| svg::boxes(analysis, metric, load, &shown, id, title.clone(), width);
        let caption = "A point is a block; the box holds the middle half of them.";
        html.push_str(&responsive(&format!("{id}-boxes"), caption, boxes));
        html.push_str(&claims(analysis, question, load));
    }
    if !header.origin.is_empty() {
        let origin = header.origin.join(" ");
        html.push_str(&paragraph(&format!("What others published: {origin}")));
    }
    html + &format!(
        "<p><a href=\"{}\">The whole report</a></p></section>",
        escape(report)
    )
}

/// Every claim of the question under a load, with its figures.
fn claims(analysis: &Analysis<'_>, question: &Question, load: &str) -> String {
    let rows = question.metrics.iter().flat_map(|metric| {
        let rows = analysis.question_rows(question, metric, load);
        let mut rows: Vec<_> = rows
            .filter(|row| !row.is_honesty_check() && !analysis.record.header.is_floor(&row.arm))
            .collect();
        rows.sort_by(|a, b| b.strength().total_cmp(&a.strength()));
        rows
    });
    let items: String = rows
        .map(|row| {
            let said = Sentence::of(row);
            format!(
                "<li><span class=\"claim\">{}</span><span class=\"figures\">{}</span></li>",
                escape(&said.claim),
                escape(&said.figures())
            )
        })
        .collect();
    format!("<div class=\"answers\"><ul>{items}</ul></div>")
}

fn question<'a>(analysis: &Analysis<'a>) -> Option<&'a Question> {
    analysis.record.header.questions.first()
}

fn answer(analysis: &Analysis<'_>, question: &Question) -> String {
    let answer = headline(analysis, question).unwrap_or_else(|| question.text.clone());
    let loads = analysis.record.header.loads.iter();
    let counts = loads.flat_map(|load| counts(analysis, question, load));
    counts.fold(answer, |answer, count| format!("{answer} {count}."))
}
