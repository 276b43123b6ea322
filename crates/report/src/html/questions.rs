//! The questions: their sentences at the top of the page, and a section of figures for each.

use std::fmt::Write;

use stats::{Comparison, Verdict};
use units::format::{digits, quantity};

use super::element::{Cell, figure, responsive, table};
use crate::analysis::{Analysis, Row};
use crate::line::Line;
use crate::palette::look_of;
use crate::record::{Metric, Question};
use crate::svg::{self, escape};
use crate::words::{Sentence, counts, delay_split, energy_says, ps_says, range};
use crate::{advice, agreement, crossing};

/// Every question with its sentences.
pub(super) fn answers(analysis: &Analysis<'_>) -> String {
    let mut html = String::from("<section class=\"answers\" aria-label=\"Answers\">");
    for (at, question) in analysis.record.header.questions.iter().enumerate() {
        let loads = analysis.record.header.loads.iter();
        let answers: String = loads.map(|load| answer(analysis, question, load)).collect();
        if answers.is_empty() {
            continue;
        }
        let _ = write!(
            html,
            "<h2><a href=\"#q{at}\">{}</a></h2>{answers}",
            escape(&question.text)
        );
        let further = [
            advice::sentences(analysis, question),
            crossing::sentences(analysis, question),
            agreement::sentences(analysis, question),
        ];
        for sentence in further.iter().flatten() {
            let _ = write!(html, "<p class=\"lead\">{}</p>", escape(sentence));
        }
    }
    html.push_str("</section>");
    html
}

fn answer(analysis: &Analysis<'_>, question: &Question, load: &str) -> String {
    let Some(metric) = analysis.answering(question, load) else {
        return String::new();
    };
    let mut rows: Vec<&Row<'_>> = analysis
        .question_rows(question, &metric.name, load)
        .filter(|row| !row.is_honesty_check() && !analysis.record.header.is_floor(&row.arm))
        .collect();
    let counts = counts(analysis, question, load);
    if rows.is_empty() && counts.is_empty() {
        return String::new();
    }
    // The largest effect is what a reader came for.
    rows.sort_by(|a, b| b.strength().total_cmp(&a.strength()));
    let mut html = format!("<p class=\"lead\">{}</p><ul>", escape(load));
    for (at, row) in rows.iter().enumerate() {
        let said = Sentence::of(row);
        let first = if at == 0 { " class=\"first\"" } else { "" };
        let _ = write!(
            html,
            "<li{first}><span class=\"claim\">{}</span><span class=\"figures\">{}</span></li>",
            escape(&said.claim),
            escape(&said.figures())
        );
    }
    let more = [
        delay_split(analysis, question, load),
        ps_says(analysis, question, load),
        energy_says(analysis, question, load),
    ];
    for more in more.into_iter().flatten().chain(counts) {
        let _ = write!(html, "<li>{}</li>", escape(&more));
    }
    html.push_str("</ul>");
    html
}

/// Figures and tables of every question.
pub(super) fn sections(analysis: &Analysis<'_>) -> String {
    let header = &analysis.record.header;
    let mut html = String::new();
    for (at, question) in header.questions.iter().enumerate() {
        let mut figures = String::new();
        for (load_at, load) in header.loads.iter().enumerate() {
            let id = format!("q{at}-{load_at}");
            let of_load = of_load(analysis, question, load, &id);
            if header.loads.len() > 1 && !of_load.is_empty() {
                let _ = write!(figures, "<h3>{}</h3>", escape(load));
            }
            figures.push_str(&of_load);
        }
        if !figures.is_empty() {
            let _ = write!(
                html,
                "<section aria-labelledby=\"q{at}\"><h2 id=\"q{at}\">{}</h2>{figures}</section>",
                escape(&question.text)
            );
        }
    }
    html
}

fn of_load(analysis: &Analysis<'_>, question: &Question, load: &str, id: &str) -> String {
    let mut html = String::new();
    let metrics: Vec<&Metric> = question
        .metrics
        .iter()
        .filter_map(|name| analysis.record.header.metric(name))
        .collect();
    if let Some(metric) = analysis.answering(question, load) {
        let title = format!("{} by arm, {load}", metric.name);
        let header = &analysis.record.header;
        let shown = |arm: &str| question.shows(arm, &header.baseline);
        let boxes =
            |id, width| svg::boxes(analysis, metric, load, &shown, id, title.clone(), width);
        let below = caption(analysis, metric, load, &shown);
        html.push_str(&responsive(&format!("{id}-boxes"), &below, boxes));
        if asks_for_delay_first(analysis, question) {
            let ecdf = |id: String, width| svg::ecdf(analysis, load, &id, width);
            html.push_str(&responsive(&format!("{id}-ecdf"), ECDF, ecdf));
        }
        if metrics.iter().any(|metric| metric.name == "kernel_us")
            && let Some(timeline) = svg::timeline(analysis, load, format!("{id}-timeline"))
        {
            html.push_str(&figure(&timeline, TIMELINE));
        }
        let title = format!("{} over blocks, {load}", metric.name);
        let series =
            |id, width| svg::series(analysis, metric, load, &shown, id, title.clone(), width);
        html.push_str(&responsive(&format!("{id}-series"), SERIES, series));
    }
    for metric in metrics {
        html.push_str(&rows_table(analysis, question, metric, load));
    }
    html
}

/// The caption of box plots; for goodput and round trips, it mentions the card's line rate.
fn caption(
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    shown: &dyn Fn(&str) -> bool,
) -> String {
    let on_line = metric.name.ends_with("_mbps") || is_round_trip(&metric.name);
    match Line::of(analysis, load, shown).filter(|_| on_line) {
        Some(line) => format!("{BOXES} {}", line.says()),
        None => BOXES.to_owned(),
    }
}

/// `tcp_rr_us_p50`.
fn is_round_trip(metric: &str) -> bool {
    metric.contains("_us_p")
}

/// One distribution holds the answers to every question on delay: it stands with the first.
fn asks_for_delay_first(analysis: &Analysis<'_>, question: &Question) -> bool {
    let questions = &analysis.record.header.questions;
    let on_delay = |asked: &&Question| {
        let metric = asked.metrics.first();
        metric.is_some_and(|name| name.starts_with("delay_") || is_round_trip(name))
    };
    questions.iter().find(on_delay) == Some(question)
}

const BOXES: &str = "A point is a block. The box holds the middle half of them, the thick line is the \
    median, the whiskers end at the least and the largest. Dashed: the floor, which is the bare link. \
    Shaded: how far the baseline differs from itself (A/A).";
const ECDF: &str = "All values of all blocks. Further left is faster; a steep curve is a steady \
    delay.";
const TIMELINE: &str = "A batch of median time, of the first trial. A row is a stream: copies of one \
    beside kernels of another cost no time.";
const SERIES: &str = "A steady bench draws level lines. A trial of a shaded block was disturbed.";

/// Where several questions ask for a metric, a row stands with those that are about its arm; with the first of them
/// where none is.
fn belongs(analysis: &Analysis<'_>, question: &Question, row: &Row<'_>) -> bool {
    let questions = analysis.record.header.questions.iter();
    let mut asking = questions.filter(|asked| asked.metrics.contains(&row.metric.name));
    let first = asking.clone().next() == Some(question);
    question.asks_about(&row.arm) || (first && !asking.any(|asked| asked.asks_about(&row.arm)))
}

fn rows_table(analysis: &Analysis<'_>, question: &Question, metric: &Metric, load: &str) -> String {
    let rows = analysis
        .rows
        .iter()
        .filter(|row| row.metric.name == metric.name && row.load == load && row.skip.is_none())
        .filter(|row| belongs(analysis, question, row));
    let mut heads = vec![
        "arm",
        "against",
        "#median",
        "#other",
        "#effect",
        "#interval",
        "#A/A",
        "#A12",
        "#n",
        "verdict",
    ];
    let rows: Vec<&Row<'_>> = rows.collect();
    let joined = analysis.other.is_some();
    if joined {
        heads.extend(["#effect, other run", "#interval, other run"]);
    }
    let disturbed = rows.iter().any(|row| count(row, |row| row.disturbed) > 0);
    if disturbed {
        heads.extend(["#disturbed", "#undisturbed alone"]);
    }
    let failed = rows.iter().any(|row| count(row, failures) > 0);
    if failed {
        heads.push("#failed");
    }
    let cells = rows.into_iter().map(|row| {
        let mut cells = cells(analysis, row);
        if joined {
            cells.extend(other_run(row));
        }
        if disturbed {
            let number = count(row, |row| row.disturbed).to_string();
            cells.extend([Cell::number(number), undisturbed(row)]);
        }
        if failed {
            cells.push(Cell::number(count(row, failures).to_string()));
        }
        cells
    });
    let primary = if metric.primary { ", primary" } else { "" };
    table(
        &format!("{} [{}]{primary}, {load}", metric.name, metric.unit),
        &heads,
        cells.collect(),
    )
}

fn cells(analysis: &Analysis<'_>, row: &Row<'_>) -> Vec<Cell> {
    let all = row
        .comparison
        .as_ref()
        .and_then(|comparison| comparison.all.as_ref());
    let unit = &row.metric.unit;
    let value = |value: Option<f64>| {
        Cell::number(value.map_or_else(|| "-".to_owned(), |value| quantity(value, unit)))
    };
    let span = |interval: Option<stats::Interval>| {
        Cell::number(interval.map_or_else(|| "-".to_owned(), |at| range(at.lower, at.upper)))
    };
    let compared = row.estimate();
    let effect = compared.map_or_else(|| "-".to_owned(), |all| digits(all.effect));
    let comparison = row.comparison.as_ref().filter(|_| compared.is_some());
    let a12 = comparison.and_then(|comparison| comparison.a12);
    let a12 = a12.map_or_else(|| "-".to_owned(), |a12| format!("{a12:.2}"));
    vec![
        arm_cell(analysis, &row.arm),
        Cell::text(analysis.display_label(row.baseline)),
        value(all.map(|all| all.arm_median)),
        value(all.map(|all| all.baseline_median)),
        Cell::number(effect),
        span(compared.and_then(|all| all.interval)),
        span(compared.and_then(|all| all.aa)),
        Cell::number(a12),
        Cell::number(all.map_or(0, |all| all.n).to_string()),
        verdict_cell(row),
    ]
}

/// An arm's name behind a key of its colour.
pub(super) fn arm_cell(analysis: &Analysis<'_>, arm: &str) -> Cell {
    let look = look_of(arm, &analysis.record.header);
    Cell::Html(format!(
        "<span class=\"key {}\"></span>{}",
        look.class,
        escape(&analysis.display_label(arm))
    ))
}

fn count(row: &Row<'_>, of: impl Fn(&Comparison) -> usize) -> usize {
    row.comparison.as_ref().map_or(0, of)
}

fn failures(comparison: &Comparison) -> usize {
    comparison.failed.iter().sum()
}

/// Effect and interval of the other run.
fn other_run(row: &Row<'_>) -> [Cell; 2] {
    let other = row.other.as_ref().and_then(|other| other.estimate.as_ref());
    let other = other.filter(|_| !row.emulated);
    let interval = other.and_then(|all| all.interval);
    [
        other.map_or_else(|| "-".to_owned(), |all| digits(all.effect)),
        interval.map_or_else(|| "-".to_owned(), |at| range(at.lower, at.upper)),
    ]
    .map(Cell::number)
}

/// Effect and interval over the undisturbed blocks alone.
fn undisturbed(row: &Row<'_>) -> Cell {
    let clean = row
        .comparison
        .as_ref()
        .filter(|_| !row.emulated)
        .and_then(|comparison| comparison.clean.as_ref());
    Cell::number(clean.map_or_else(String::new, |clean| {
        let interval = clean.interval.map_or_else(String::new, |at| {
            format!(" ({})", range(at.lower, at.upper))
        });
        format!("{}{interval}, n={}", digits(clean.effect), clean.n)
    }))
}

fn verdict_cell(row: &Row<'_>) -> Cell {
    let reason = row
        .comparison
        .as_ref()
        .and_then(|comparison| comparison.reason.as_deref())
        .map_or_else(String::new, |reason| format!(": {}", escape(reason)));
    Cell::Html(match row.verdict() {
        Verdict::Better => "<span class=\"better\">better</span>".to_owned(),
        Verdict::Worse => "<span class=\"worse\">worse</span>".to_owned(),
        Verdict::NoDifference => format!("no difference{reason}"),
        Verdict::Unreliable => format!("unreliable{reason}"),
        Verdict::Skipped => "skipped".to_owned(),
        Verdict::Emulated => "EMULATED, not compared".to_owned(),
    })
}
