//! The measurements as an SVG image: a panel for each pattern, a line for each engine, with its median and
//! interval.

use std::fmt::Write;

use benchmarks::router::group::{Arm, Group};
use stats::{median, median_interval};

use crate::router::format::short;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
const LINE: f64 = 18.0;
const HEAD: f64 = 34.0;

pub(super) fn svg(groups: &[Group]) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for group in groups {
        for pattern in 0..group.patterns.len() {
            y = panel(&mut body, group, pattern, y);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
         viewBox=\"0 0 {WIDTH} {y}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Returns where the next one begins.
fn panel(body: &mut String, group: &Group, pattern: usize, top: f64) -> f64 {
    let upper = |arm: &Arm| Some(median_interval(&arm.ns[pattern])?.upper);
    let most = group.arms.iter().filter_map(upper).fold(0.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / if most > 0.0 { most } else { 1.0 };
    let title = format!("{}, {}: ns per lookup", group.name, group.patterns[pattern]);
    text(body, (10.0, top + 16.0), "start", &title);
    let mut y = top + HEAD;
    for arm in &group.arms {
        row(body, &arm.engine, &arm.ns[pattern], scale, y);
        y += LINE;
    }
    // The axis begins at zero: lengths can be compared.
    stroke(
        body,
        (LEFT, top + HEAD - LINE / 2.0),
        (LEFT, y - LINE / 2.0),
        "black",
    );
    text(body, (LEFT, y + 6.0), "middle", "0");
    y + LINE + 10.0
}

fn row(body: &mut String, name: &str, ns: &[f64], scale: f64, y: f64) {
    text(body, (LEFT - 8.0, y + 4.0), "end", name);
    stroke(body, (LEFT, y), (WIDTH - RIGHT, y), "#ddd");
    let Some(middle) = median(ns) else {
        return;
    };
    if let Some(interval) = median_interval(ns) {
        let at = |ns: f64| LEFT + scale * ns;
        let (from, to) = (at(interval.lower), at(interval.upper));
        stroke(body, (from, y), (to, y), "#444\" stroke-width=\"3");
    }
    let x = LEFT + scale * middle;
    // Writing to a string never fails.
    let _ = writeln!(
        body,
        "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"4\" fill=\"#0072b2\"/>"
    );
    text(body, (WIDTH - 10.0, y + 4.0), "end", &short(middle));
}

fn text(body: &mut String, (x, y): (f64, f64), anchor: &str, what: &str) {
    let _ = writeln!(
        body,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{what}</text>"
    );
}

fn stroke(body: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        body,
        "<line x1=\"{x1:.1}\" y1=\"{y1}\" x2=\"{x2:.1}\" y2=\"{y2}\" stroke=\"{colour}\"/>"
    );
}
