//! A metric block after block: drift and disturbance are seen here before they are believed anywhere.

use super::scale::{Scale, float};
use super::{Anchor, Figure, Fill, Stroke, below};
use crate::analysis::Analysis;
use crate::palette::{Look, look_of};
use crate::record::Metric;

const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 268.0;

/// A line per arm of those shown that measured the metric, blocks with a flagged trial shaded; none when no arm did.
pub(crate) fn series(
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    shown: &dyn Fn(&str) -> bool,
    id: String,
    title: String,
    width: f64,
) -> Option<Figure> {
    let header = &analysis.record.header;
    let lines: Vec<(&String, Vec<(usize, f64)>)> = header
        .arms
        .iter()
        .filter(|arm| shown(arm))
        .filter_map(|arm| {
            let values = analysis.values(&metric.name, load, arm)?;
            Some((
                arm,
                values.iter().map(|(&at, &value)| (at, value)).collect(),
            ))
        })
        .collect();
    let points = || lines.iter().flat_map(|(_, line): &(_, Vec<_>)| line);
    let last = points().map(|(block, _)| *block).max()?;
    let values: Vec<f64> = points().map(|(_, value)| *value).collect();
    let legend: Vec<(String, Look)> = lines
        .iter()
        .map(|(arm, _)| (analysis.display_label(arm), look_of(arm, header)))
        .collect();
    let more = below(&legend, width);
    let (top, bottom) = (TOP + more, BOTTOM + more);
    let up = Scale::fit(&values, bottom, top);
    let right = width - RIGHT;
    let step = (right - LEFT) / (float(last) + 1.0);
    let across = |block: usize| LEFT + step * (float(block) + 0.5);
    let mut figure = Figure::new(
        id,
        title,
        format!(
            "{} under {load}, block by block, one line per arm.",
            metric.name
        ),
        (width, bottom + 42.0),
    );
    figure.legend(12.0, &legend);
    up.draw_left(
        &mut figure,
        LEFT,
        right,
        &format!("{} [{}]", metric.name, metric.unit),
    );
    blocks(&mut figure, analysis, load, (last, step), (top, bottom));
    for ((_, look), (_, line)) in legend.iter().zip(&lines) {
        let path: Vec<(f64, f64)> = line
            .iter()
            .map(|&(block, value)| (across(block), up.at(value)))
            .collect();
        figure.open(look.class);
        figure.path(&path, Stroke::new(1.2).opacity(0.7).dash(look.dash));
        for place in path {
            figure.marker(look.marker, place);
        }
        figure.close();
    }
    Some(figure)
}

/// Numbers below, shade behind those with a flagged trial.
fn blocks(
    figure: &mut Figure,
    analysis: &Analysis<'_>,
    load: &str,
    (last, step): (usize, f64),
    (top, bottom): (f64, f64),
) {
    let right = figure.width() - RIGHT;
    // A number needs some 24 units.
    let every = (24.0 / step).ceil().max(1.0);
    figure.open("soft");
    for block in 0..=last {
        let x = LEFT + step * float(block);
        if analysis.has_flags(load, block) {
            figure.rect((x, top), (step, bottom - top), Fill::faint(0.18));
        }
        if float(block) % every == 0.0 {
            figure.text(
                (x + step / 2.0, bottom + 16.0),
                Anchor::Middle,
                &block.to_string(),
            );
        }
    }
    figure.line((LEFT, bottom), (right, bottom), Stroke::new(1.0));
    let middle = f64::midpoint(LEFT, right);
    figure.text((middle, bottom + 34.0), Anchor::Middle, "block");
    figure.close();
}
