//! One batch of a device as its own clock saw it: copies and kernels of each stream, one arm below the other.

use std::collections::BTreeMap;
use units::format::digits;

use super::scale::{Scale, float};
use super::{Anchor, Figure, Fill, WIDTH};
use crate::analysis::Analysis;
use crate::record::{Span, Trial};

/// Room for the longest name of an arm and for what it is called where it was emulated.
const LEFT: f64 = 226.0;
const RIGHT: f64 = WIDTH - 92.0;
const TOP: f64 = 30.0;
const STREAM: f64 = 12.0;
const BETWEEN: f64 = 14.0;
/// Parts, with the class of their colour: that of one of the CPU's states.
const PARTS: [(&str, &str); 3] = [
    ("copy in", "state-0"),
    ("kernel", "state-2"),
    ("copy out", "state-1"),
];

/// A row for each stream of each arm's first trial that has spans, undisturbed if there is one; none where no arm's has.
pub(crate) fn timeline(analysis: &Analysis<'_>, load: &str, id: String) -> Option<Figure> {
    let mut rows: BTreeMap<usize, (&String, &[Span])> = BTreeMap::new();
    let spans = |trial: &&Trial| trial.load == load && !trial.spans.is_empty();
    let mut trials: Vec<&Trial> = analysis.first_trials().filter(spans).collect();
    // One batch stands for all of them, so that an undisturbed one is the better choice.
    trials.sort_by_key(|trial| !trial.is_clean());
    for trial in trials {
        let arms = &analysis.record.header.arms;
        if let Some(place) = arms.iter().position(|arm| *arm == trial.arm) {
            rows.entry(place).or_insert((&trial.arm, &trial.spans));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let heights = rows
        .values()
        .map(|(_, spans)| STREAM * float(streams(spans)) + BETWEEN);
    let bottom = TOP + heights.sum::<f64>();
    let title = format!("A batch by the device's clock, {load}");
    let told = describe(rows.values().copied(), load);
    let mut figure = Figure::new(id, title, told, (WIDTH, bottom + 42.0));
    legend(&mut figure);
    let across = Scale::from_zero(100.0, LEFT, RIGHT);
    across.draw_below(&mut figure, TOP, bottom, "share of the batch's time [%]");
    let mut y = TOP + BETWEEN / 2.0;
    for (arm, spans) in rows.into_values() {
        let all = end(spans);
        for span in spans {
            let from = across.at(100.0 * span.start_us / all);
            let to = across.at(100.0 * span.end_us / all);
            let class = PARTS.iter().find(|(part, _)| *part == span.part);
            figure.open(class.map_or("soft", |(_, class)| class));
            let corner = (from, y + STREAM * f64::from(span.stream));
            let size = ((to - from).max(0.4), STREAM - 2.0);
            figure.rect(corner, size, Fill::SOLID);
            figure.close();
        }
        let tall = STREAM * float(streams(spans));
        let middle = y + tall / 2.0 + 3.5;
        figure.open("ink");
        figure.text(
            (LEFT - 10.0, middle),
            Anchor::End,
            &analysis.display_label(arm),
        );
        figure.text(
            (WIDTH - 6.0, middle),
            Anchor::End,
            &format!("{} us", digits(all)),
        );
        figure.close();
        y += tall + BETWEEN;
    }
    Some(figure)
}

fn legend(figure: &mut Figure) {
    let mut x = 8.0;
    for (part, class) in PARTS {
        figure.open(class);
        figure.rect((x, 4.0), (12.0, 12.0), Fill::SOLID);
        figure.close();
        figure.open("ink");
        figure.text((x + 17.0, 14.5), Anchor::Start, part);
        figure.close();
        x += 34.0 + 7.4 * float(part.len());
    }
}

fn streams(spans: &[Span]) -> usize {
    let last = spans.iter().map(|span| span.stream).max();
    last.map_or(0, |last| last as usize + 1)
}

fn end(spans: &[Span]) -> f64 {
    let ends = spans.iter().map(|span| span.end_us);
    ends.fold(1e-9, f64::max)
}

fn describe<'a>(rows: impl Iterator<Item = (&'a String, &'a [Span])>, load: &str) -> String {
    let rows: Vec<String> = rows
        .map(|(arm, spans)| format!("{arm} {} us", digits(end(spans))))
        .collect();
    format!(
        "Copies and kernels of one batch under {load}, a row for each stream: {}.",
        rows.join(", ")
    )
}
