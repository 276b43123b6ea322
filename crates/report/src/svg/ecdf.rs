//! Empirical distributions of delay, or of round trips, over all packets of all blocks, on a logarithmic axis.

use stats::Histogram;

use super::scale::Scale;
use super::{Figure, Stroke, below};
use crate::analysis::Analysis;
use crate::palette::{Look, look_of};

const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 316.0;

/// Nanoseconds in the histograms, microseconds on the axis.
const NS_PER_US: f64 = 1000.0;

/// A kind of histogram that trials may hold.
struct HistogramKind {
    name: &'static str,
    /// The name of the values.
    what: &'static str,
    /// The name of the items that have them.
    of: &'static str,
}

const HISTOGRAMS: [HistogramKind; 2] = [
    HistogramKind {
        name: "delay",
        what: "delay",
        of: "packets",
    },
    HistogramKind {
        name: "rtt",
        what: "round trip",
        of: "transactions",
    },
];

/// A curve per arm whose trials hold such a histogram; none when no arm's do.
pub(crate) fn ecdf(analysis: &Analysis<'_>, load: &str, id: &str, width: f64) -> Option<Figure> {
    HISTOGRAMS
        .iter()
        .find_map(|kind| drawn(analysis, load, (id, width), kind))
}

fn drawn(
    analysis: &Analysis<'_>,
    load: &str,
    (id, width): (&str, f64),
    kind: &HistogramKind,
) -> Option<Figure> {
    let header = &analysis.record.header;
    let curves: Vec<(&String, Histogram)> = header
        .arms
        .iter()
        .map(|arm| (arm, merged(analysis, load, arm, kind.name)))
        .filter(|(_, histogram)| !histogram.is_empty())
        .collect();
    let points: Vec<Vec<(f64, f64)>> = curves
        .iter()
        .map(|(_, histogram)| histogram.ecdf())
        .collect();
    let values = || points.iter().flatten().map(|(ns, _)| ns / NS_PER_US);
    if curves.is_empty() {
        return None;
    }
    let low = values()
        .filter(|us| *us > 0.0)
        .fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    let across = Scale::log(low, high, LEFT, width - RIGHT);
    let legend: Vec<(String, Look)> = curves
        .iter()
        .map(|(arm, _)| (analysis.display_label(arm), look_of(arm, header)))
        .collect();
    let more = below(&legend, width);
    let (top, bottom) = (TOP + more, BOTTOM + more);
    let up = Scale::from_zero(1.0, bottom, top);
    let title = format!("Distribution of {}, {load}", kind.what);
    let told = describe(analysis, load, &curves, kind);
    let mut figure = Figure::new(id.to_owned(), title, told, (width, bottom + 42.0));
    figure.legend(12.0, &legend);
    let (share, axis) = (
        format!("share of {}", kind.of),
        format!("{} [us]", kind.what),
    );
    up.draw_left(&mut figure, LEFT, width - RIGHT, &share);
    across.draw_below(&mut figure, top, bottom, &axis);
    for ((_, look), steps) in legend.iter().zip(&points) {
        curve(&mut figure, *look, steps, across, up);
    }
    Some(figure)
}

fn merged(analysis: &Analysis<'_>, load: &str, arm: &str, name: &str) -> Histogram {
    let mut merged = Histogram::new();
    for trial in analysis.first_trials() {
        let wanted = trial.arm == arm && trial.repeat == 0 && trial.load == load;
        if let Some(histogram) = trial.histograms.get(name)
            && wanted
        {
            merged.merge(histogram);
        }
    }
    merged
}

fn curve(figure: &mut Figure, look: Look, steps: &[(f64, f64)], across: Scale, up: Scale) {
    let mut path = Vec::new();
    let mut marks = Vec::new();
    let mut next_mark = 0.1;
    let mut before = 0.0;
    for &(ns, share) in steps {
        let x = across.at(ns / NS_PER_US);
        // Up at the value: vertical steps, as a distribution of counted things has.
        path.push((x, up.at(before)));
        path.push((x, up.at(share)));
        while share >= next_mark && next_mark < 0.95 {
            marks.push((x, up.at(next_mark)));
            next_mark += 0.2;
        }
        before = share;
    }
    figure.open(look.class);
    figure.path(&path, Stroke::new(1.8).dash(look.dash));
    for mark in marks {
        figure.marker(look.marker, mark);
    }
    figure.close();
}

fn describe(
    analysis: &Analysis<'_>,
    load: &str,
    curves: &[(&String, Histogram)],
    kind: &HistogramKind,
) -> String {
    let HistogramKind { what, of, .. } = kind;
    let medians: Vec<String> = curves
        .iter()
        .filter_map(|(arm, histogram)| {
            let us = histogram.quantile(0.5)? / NS_PER_US;
            let n = histogram.count();
            let arm = analysis.display_label(arm);
            Some(format!("{arm} {} us ({n} {of})", units::format::digits(us)))
        })
        .collect();
    format!(
        "Distribution of {what} under {load}. Half of the {of} took at most: {}.",
        medians.join(", ")
    )
}
