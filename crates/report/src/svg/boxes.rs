//! Box plots with their points: median, quartiles, and whiskers that end at the least and the
//! largest value, never at a fence.

use stats::{Effect, Quartiles};
use units::format::quantity;

use super::scale::{Scale, float};
use super::{Anchor, Figure, Fill, Stroke, label_width};
use crate::analysis::Analysis;
use crate::line::Line;
use crate::palette::{Look, look_of};
use crate::record::Metric;

/// Right of a panel: the medians.
const RIGHT: f64 = 96.0;
const ROW: f64 = 44.0;
const TOP: f64 = 20.0;
/// Below a panel's rows: its ticks and what they are of.
const AXIS: f64 = 42.0;

/// An arm, and its values.
type Row<'a> = (&'a String, Vec<f64>);

/// A row per arm of those shown that measured the metric; none when no arm did. What was emulated has an axis of
/// its own: on one axis with it nothing could be told of the others.
pub(crate) fn boxes(
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    shown: &dyn Fn(&str) -> bool,
    id: String,
    title: String,
    width: f64,
) -> Option<Figure> {
    let header = &analysis.record.header;
    let arms = header.arms.iter();
    let rows: Vec<Row<'_>> = arms
        .filter(|arm| !header.is_floor(arm) && shown(arm))
        .map(|arm| (arm, analysis.first_values(&metric.name, load, arm)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let left = label_width(rows.iter().map(|(arm, _)| arm.as_str()));
    let description = describe(analysis, metric, load, &rows);
    let (emulated, real): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|(arm, _)| analysis.is_emulated(arm));
    let panels = [real, emulated].map(|rows| (!rows.is_empty()).then_some(rows));
    let high = |rows: &Vec<Row<'_>>| TOP + ROW * float(rows.len()) + AXIS;
    let height = panels.iter().flatten().map(high).sum();
    let mut figure = Figure::new(id, title, description, (width, height));
    let mut top = 0.0;
    for rows in panels.iter().flatten() {
        let corner = (left, top + TOP);
        panel(&mut figure, analysis, metric, load, rows, corner);
        top += high(rows);
    }
    Some(figure)
}

/// Rows over an axis of their own, from `top` on.
fn panel(
    figure: &mut Figure,
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    rows: &[Row<'_>],
    (left, top): (f64, f64),
) {
    let header = &analysis.record.header;
    let emulated = rows.iter().any(|(arm, _)| analysis.is_emulated(arm));
    let of_all = |arm: &str| stats::median(&analysis.first_values(&metric.name, load, arm));
    let values = rows.iter().flat_map(|(_, values)| values).copied();
    let references = References {
        // They are the bare link's and the baseline's, which are not compared with what was emulated.
        floor: header
            .floor()
            .filter(|_| !emulated)
            .and_then(|floor| Some((of_all(floor)?, floor))),
        band: band(analysis, metric, load).filter(|_| !emulated),
        line: line(analysis, metric, load, rows),
    };
    let all: Vec<f64> = values
        .chain(references.floor.map(|(value, _)| value))
        .chain(references.line)
        .collect();
    let scale = Scale::fit(&all, left, figure.width() - RIGHT);
    let bottom = top + ROW * float(rows.len());
    let caption = format!("{} [{}]", metric.name, metric.unit);
    scale.draw_below(figure, top, bottom, &caption);
    references.draw(figure, scale, (top, bottom));
    for (at, (arm, values)) in rows.iter().enumerate() {
        let y = top + ROW * (float(at) + 0.5);
        row(figure, scale, y, look_of(arm, header), values);
        figure.open("ink");
        figure.text((left - 10.0, y + 4.5), Anchor::End, arm);
        if analysis.is_emulated(arm) {
            figure.text((left - 10.0, y + 17.0), Anchor::End, "EMULATED");
        }
        if let Some(median) = stats::median(values) {
            let value = quantity(median, &metric.unit);
            figure.text((figure.width() - 6.0, y + 4.5), Anchor::End, &value);
        }
        figure.close();
    }
}

/// The box, and below it the points that made it.
fn row(figure: &mut Figure, scale: Scale, y: f64, look: Look, values: &[f64]) {
    const HALF: f64 = 8.0;
    let Some(quartiles) = Quartiles::of(values) else {
        return;
    };
    let at = |value: f64| scale.at(value);
    let (box_y, points_y) = (y - 7.0, y + 11.0);
    figure.open(look.class);
    let thin = Stroke::new(1.3);
    for (end, edge) in [
        (quartiles.min, quartiles.lower),
        (quartiles.max, quartiles.upper),
    ] {
        figure.line((at(end), box_y), (at(edge), box_y), thin);
        figure.line((at(end), box_y - 4.0), (at(end), box_y + 4.0), thin);
    }
    let wide = (at(quartiles.upper) - at(quartiles.lower)).max(1.0);
    figure.rect(
        (at(quartiles.lower), box_y - HALF),
        (wide, 2.0 * HALF),
        Fill::faint(0.18).outlined(1.3),
    );
    let middle = at(quartiles.median);
    figure.line(
        (middle, box_y - HALF),
        (middle, box_y + HALF),
        Stroke::new(3.0),
    );
    figure.close();
    figure.open(&format!("{} points", look.class));
    for (block, value) in values.iter().enumerate() {
        // Spread a little, the same way in every run.
        let off = 1.6 * (float(block * 3 % 5) - 2.0);
        figure.marker(look.marker, (at(*value), points_y + off));
    }
    figure.close();
}

/// Values that the boxes are compared with.
struct References<'a> {
    /// The median of the floor, and its name.
    floor: Option<(f64, &'a str)>,
    band: Option<(f64, f64)>,
    /// The rate of a card's line.
    line: Option<f64>,
}

impl References<'_> {
    /// The floor and the line as faint lines, and the A/A band as a faint strip about the baseline's median.
    fn draw(&self, figure: &mut Figure, scale: Scale, (top, bottom): (f64, f64)) {
        figure.open("soft");
        if let Some((low, high)) = self.band {
            let (from, to) = (scale.at(low), scale.at(high));
            figure.rect(
                (from, top),
                ((to - from).max(1.0), bottom - top),
                Fill::faint(0.13),
            );
            figure.text((f64::midpoint(from, to), top - 6.0), Anchor::Middle, "A/A");
        }
        let line = self.line.map(|rate| (rate, "line rate"));
        for (value, named) in [self.floor, line].into_iter().flatten() {
            let x = scale.at(value);
            figure.line((x, top), (x, bottom), Stroke::new(1.2).dash("3 3"));
            figure.text((x, top - 6.0), Anchor::Middle, named);
        }
        figure.close();
    }
}

/// The line rate of the rows' card, of goodput that is not so far below it that nothing else could be told apart.
fn line(analysis: &Analysis<'_>, metric: &Metric, load: &str, rows: &[Row<'_>]) -> Option<f64> {
    const FAR: f64 = 4.0;
    let shown = |arm: &str| rows.iter().any(|(row, _)| *row == arm);
    let largest = rows.iter().flat_map(|(_, values)| values).copied();
    let largest = largest.fold(0.0, f64::max);
    let line = Line::of(analysis, load, &shown).filter(|_| metric.name.ends_with("_mbps"));
    line.map(Line::mbps).filter(|rate| *rate <= FAR * largest)
}

fn band(analysis: &Analysis<'_>, metric: &Metric, load: &str) -> Option<(f64, f64)> {
    let baseline = &analysis.record.header.baseline;
    let median = stats::median(&analysis.first_values(&metric.name, load, baseline))?;
    let aa = analysis
        .rows
        .iter()
        .filter(|row| row.metric.name == metric.name && row.load == load)
        .find_map(|row| row.comparison.as_ref()?.all.as_ref()?.aa)?;
    let equal = metric.effect.equality();
    Some(match metric.effect {
        Effect::Ratio => (median * aa.lower, median * aa.upper),
        Effect::Difference => (median + aa.lower - equal, median + aa.upper - equal),
    })
}

fn describe(analysis: &Analysis<'_>, metric: &Metric, load: &str, rows: &[Row<'_>]) -> String {
    let medians: Vec<String> = rows
        .iter()
        .filter_map(|(arm, values)| {
            let median = stats::median(values)?;
            let arm = analysis.display_label(arm);
            Some(format!("{arm} {}", quantity(median, &metric.unit)))
        })
        .collect();
    format!(
        "Box plot of {} under {load}, one box per arm and one point per block. Medians: {}.",
        metric.name,
        medians.join(", ")
    )
}
