//! Box plots with their points: median, quartiles, and whiskers that end at the least and the
//! largest value, never at a fence.

use stats::{Effect, Quartiles};

use super::scale::{Scale, float};
use super::{Figure, WIDTH};
use crate::analysis::{Analysis, FLOOR};
use crate::palette::{Look, look_of};
use crate::record::Metric;
use crate::words::{equality, quantity};

const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 96.0;
const ROW: f64 = 44.0;
const TOP: f64 = 20.0;

/// A row per arm that measured the metric; none when no arm did.
pub(crate) fn boxes(
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    id: String,
    title: String,
) -> Option<Figure> {
    let arms = &analysis.record.header.arms;
    let rows: Vec<(&String, Vec<f64>)> = arms
        .iter()
        .filter(|arm| *arm != FLOOR)
        .map(|arm| (arm, analysis.clean_values(&metric.name, load, arm)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let floor = stats::median(&analysis.clean_values(&metric.name, load, FLOOR));
    let mut all: Vec<f64> = rows
        .iter()
        .flat_map(|(_, values)| values)
        .copied()
        .collect();
    all.extend(floor);
    let scale = Scale::fit(&all, LEFT, RIGHT);
    let bottom = TOP + ROW * float(rows.len());
    let mut figure = Figure::new(
        id,
        title,
        describe(analysis, metric, load, &rows),
        bottom + 42.0,
    );
    scale.draw_below(
        &mut figure,
        TOP,
        bottom,
        &format!("{} [{}]", metric.name, metric.unit),
    );
    references(&mut figure, analysis, metric, load, scale, bottom, floor);
    for (at, (arm, values)) in rows.iter().enumerate() {
        let y = TOP + ROW * (float(at) + 0.5);
        row(&mut figure, scale, y, look_of(arm, arms), values);
        figure.open("ink");
        figure.text((LEFT - 10.0, y + 4.5), "end", arm);
        if analysis.is_emulated(arm) {
            figure.text((LEFT - 10.0, y + 17.0), "end", "EMULATED");
        }
        if let Some(median) = stats::median(values) {
            let value = quantity(median, &metric.unit);
            figure.text((WIDTH - 6.0, y + 4.5), "end", &value);
        }
        figure.close();
    }
    Some(figure)
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
    let thin = "stroke-width=\"1.3\"";
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
        "fill=\"currentColor\" fill-opacity=\"0.18\" stroke=\"currentColor\" stroke-width=\"1.3\"",
    );
    let middle = at(quartiles.median);
    figure.line(
        (middle, box_y - HALF),
        (middle, box_y + HALF),
        "stroke-width=\"3\"",
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

/// The floor as a faint line, and the A/A band as a faint strip about the baseline's median.
fn references(
    figure: &mut Figure,
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    scale: Scale,
    bottom: f64,
    floor: Option<f64>,
) {
    figure.open("soft");
    if let Some((low, high)) = band(analysis, metric, load) {
        let (from, to) = (scale.at(low), scale.at(high));
        figure.rect(
            (from, TOP),
            ((to - from).max(1.0), bottom - TOP),
            "fill=\"currentColor\" fill-opacity=\"0.13\"",
        );
        figure.text((f64::midpoint(from, to), TOP - 6.0), "middle", "A/A");
    }
    if let Some(floor) = floor {
        let x = scale.at(floor);
        figure.line(
            (x, TOP),
            (x, bottom),
            "stroke-width=\"1.2\" stroke-dasharray=\"3 3\"",
        );
        figure.text((x, TOP - 6.0), "middle", "floor");
    }
    figure.close();
}

fn band(analysis: &Analysis<'_>, metric: &Metric, load: &str) -> Option<(f64, f64)> {
    let baseline = &analysis.record.header.baseline;
    let median = stats::median(&analysis.clean_values(&metric.name, load, baseline))?;
    let aa = analysis
        .rows
        .iter()
        .filter(|row| row.metric.name == metric.name && row.load == load)
        .find_map(|row| row.comparison.as_ref()?.clean.as_ref()?.aa)?;
    let equal = equality(metric.effect);
    Some(match metric.effect {
        Effect::Ratio => (median * aa.lower, median * aa.upper),
        Effect::Difference => (median + aa.lower - equal, median + aa.upper - equal),
    })
}

fn describe(
    analysis: &Analysis<'_>,
    metric: &Metric,
    load: &str,
    rows: &[(&String, Vec<f64>)],
) -> String {
    let medians: Vec<String> = rows
        .iter()
        .filter_map(|(arm, values)| {
            let median = stats::median(values)?;
            let arm = analysis.shown(arm);
            Some(format!("{arm} {}", quantity(median, &metric.unit)))
        })
        .collect();
    format!(
        "Box plot of {} under {load}, one box per arm and one point per block. Medians: {}.",
        metric.name,
        medians.join(", ")
    )
}
