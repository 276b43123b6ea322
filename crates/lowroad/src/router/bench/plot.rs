//! The measurements as an SVG image: a panel for each pattern, a line for each engine, with its median and
//! interval.

use std::fmt::Write;

use stats::{median, median_interval};

use super::group::Group;
use crate::router::process::told::short;

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
    let most = group
        .arms
        .iter()
        .filter_map(|arm| {
            Some(
                median_interval(&arm.ns[pattern])?
                    .upper
                    .max(median(&arm.ns[pattern])?),
            )
        })
        .fold(0.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / if most > 0.0 { most } else { 1.0 };
    let title = format!("{}, {}: ns per lookup", group.name, group.patterns[pattern]);
    line(
        body,
        format_args!(
            "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{title}</text>",
            top + 16.0
        ),
    );
    for (at, arm) in (0_u32..).zip(&group.arms) {
        let y = top + HEAD + LINE * f64::from(at);
        let (name, ns) = (&arm.engine, &arm.ns[pattern]);
        line(
            body,
            format_args!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
                LEFT - 8.0,
                y + 4.0
            ),
        );
        line(
            body,
            format_args!(
                "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#ddd\"/>",
                WIDTH - RIGHT
            ),
        );
        let Some(middle) = median(ns) else {
            continue;
        };
        if let Some(interval) = median_interval(ns) {
            let (from, to) = (LEFT + scale * interval.lower, LEFT + scale * interval.upper);
            line(
                body,
                format_args!(
                    "<line x1=\"{from:.1}\" y1=\"{y}\" x2=\"{to:.1}\" y2=\"{y}\" stroke=\"#444\" stroke-width=\"3\"/>"
                ),
            );
        }
        let x = LEFT + scale * middle;
        line(
            body,
            format_args!("<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"4\" fill=\"#0072b2\"/>"),
        );
        line(
            body,
            format_args!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                WIDTH - 10.0,
                y + 4.0,
                short(middle)
            ),
        );
    }
    let lines = u32::try_from(group.arms.len()).unwrap_or(0);
    let bottom = top + HEAD + LINE * f64::from(lines);
    // The axis begins at zero: lengths can be compared.
    line(
        body,
        format_args!(
            "<line x1=\"{LEFT}\" y1=\"{}\" x2=\"{LEFT}\" y2=\"{}\" stroke=\"black\"/>",
            top + HEAD - LINE / 2.0,
            bottom - LINE / 2.0
        ),
    );
    line(
        body,
        format_args!(
            "<text x=\"{LEFT}\" y=\"{}\" text-anchor=\"middle\">0</text>",
            bottom + 6.0
        ),
    );
    bottom + LINE + 10.0
}

fn line(body: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string never fails.
    let _ = writeln!(body, "{element}");
}
