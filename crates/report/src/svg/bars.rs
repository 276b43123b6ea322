//! Where the machine's CPUs spent their time, stacked by state.

use units::format::digits;

use super::scale::{Scale, float};
use super::{Anchor, Figure, Fill, label_width};
use crate::cpu::Usage;
use crate::palette::STATES;

const RIGHT: f64 = 78.0;
const ROW: f64 = 30.0;

/// A bar per arm; none without accounting.
pub(crate) fn cpu(
    usages: &[Usage],
    load: &str,
    id: String,
    title: String,
    width: f64,
) -> Option<Figure> {
    let most = usages.iter().map(Usage::busy).reduce(f64::max)?;
    let left = label_width(usages.iter().map(|usage| usage.arm.as_str()));
    let scale = Scale::from_zero((most * 1.05).min(100.0), left, width - RIGHT);
    let shown: Vec<usize> = (0..STATES.len())
        .filter(|&state| usages.iter().any(|usage| usage.states[state] > 0.05))
        .collect();
    let places = legend(&shown, width);
    let top = places.last().map_or(0.0, |(_, y)| y + 26.0);
    let bottom = top + ROW * float(usages.len());
    let mut figure = Figure::new(id, title, describe(usages, load), (width, bottom + 42.0));
    for (&state, place) in shown.iter().zip(places) {
        figure.open(&format!("state-{state}"));
        figure.rect(place, (12.0, 12.0), Fill::SOLID);
        figure.close();
        figure.open("ink");
        figure.text(
            (place.0 + 17.0, place.1 + 10.5),
            Anchor::Start,
            STATES[state].0,
        );
        figure.close();
    }
    scale.draw_below(&mut figure, top, bottom, "share of all CPUs [%]");
    for (at, usage) in usages.iter().enumerate() {
        let y = top + ROW * float(at) + 5.0;
        let mut before = 0.0;
        for (state, share) in usage.states.iter().enumerate() {
            let (from, to) = (scale.at(before), scale.at(before + share));
            before += share;
            if to - from > 0.05 {
                figure.open(&format!("state-{state}"));
                figure.rect((from, y), (to - from, ROW - 10.0), Fill::SOLID);
                figure.close();
            }
        }
        figure.open("ink");
        let middle = y + (ROW - 10.0) / 2.0 + 4.5;
        // Two lines have their middle where one line has it.
        let name = if usage.emulated { middle - 6.5 } else { middle };
        figure.text((left - 10.0, name), Anchor::End, &usage.arm);
        if usage.emulated {
            figure.text((left - 10.0, name + 13.0), Anchor::End, "EMULATED");
        }
        figure.text(
            (width - 6.0, middle),
            Anchor::End,
            &format!("{} %", digits(usage.busy())),
        );
        figure.close();
    }
    Some(figure)
}

/// Where the names of the states stand, in as many lines as they need.
fn legend(shown: &[usize], width: f64) -> Vec<(f64, f64)> {
    let mut next = (8.0, 4.0);
    shown
        .iter()
        .map(|&state| {
            let wide = 34.0 + 7.4 * float(STATES[state].0.len());
            if next.0 + wide > width {
                next = (8.0, next.1 + 20.0);
            }
            let place = next;
            next.0 += wide;
            place
        })
        .collect()
}

fn describe(usages: &[Usage], load: &str) -> String {
    let totals: Vec<String> = usages
        .iter()
        .map(|usage| {
            let emulated = if usage.emulated { " EMULATED" } else { "" };
            format!("{}{emulated} {} %", usage.arm, digits(usage.busy()))
        })
        .collect();
    format!(
        "Share of all CPUs in use under {load}, by state, one bar per arm: {}.",
        totals.join(", ")
    )
}
