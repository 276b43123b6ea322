//! Flame graphs: a frame is as wide as the samples it was on the stack in, callers below.

use units::format::digits;

use super::scale::float;
use super::{Anchor, Figure, Fill, WIDTH};
use crate::stacks::Frame;

const ROW: f64 = 17.0;
/// Narrower frames cannot be read, and a report holds one graph per arm.
const MIN_WIDTH: f64 = 2.4;
const MAX_DEPTH: usize = 28;
const LETTER: f64 = 6.6;

/// The graph of a call tree.
pub(crate) fn flame(root: &Frame, id: String, title: String) -> Figure {
    let unit = WIDTH / float(root.total.max(1));
    let depth = root.depth(MIN_WIDTH / unit).min(MAX_DEPTH);
    let height = ROW * float(depth) + 4.0;
    let description = format!(
        "Flame graph of {} samples. Widest at the root: {}.",
        root.total,
        root.children
            .iter()
            .max_by_key(|(_, frame)| frame.total)
            .map_or("nothing", |(name, _)| name.as_str())
    );
    let mut figure = Figure::new(id, title, description, (WIDTH, height));
    draw(&mut figure, root, unit, 0.0, height - ROW, root.total);
    figure
}

fn draw(figure: &mut Figure, frame: &Frame, unit: f64, left: f64, y: f64, total: usize) {
    let mut x = left;
    for (name, child) in &frame.children {
        let wide = unit * float(child.total);
        if wide >= MIN_WIDTH && y >= 0.0 {
            one(figure, name, child, (x, y), wide, total);
            draw(figure, child, unit, x, y - ROW, total);
        }
        x += wide;
    }
}

fn one(figure: &mut Figure, name: &str, frame: &Frame, at: (f64, f64), wide: f64, total: usize) {
    let class = if name.starts_with("bpf_prog_") {
        "bpf"
    } else {
        "flame"
    };
    figure.open(class);
    let share = 100.0 * float(frame.total) / float(total.max(1));
    figure.hint(&format!(
        "{name}: {} samples, {} %",
        frame.total,
        digits(share)
    ));
    figure.rect(at, ((wide - 0.6).max(0.6), ROW - 1.0), Fill::SOLID);
    figure.close();
    let letters = {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a width between 0 and the figure's"
        )]
        let fit = ((wide - 6.0).max(0.0) / LETTER) as usize;
        fit
    };
    if letters >= 4 {
        let words = if name.chars().count() <= letters {
            name.to_owned()
        } else {
            name.chars().take(letters - 1).chain(['\u{2026}']).collect()
        };
        figure.open("ink small");
        figure.text((at.0 + 3.0, at.1 + ROW - 5.0), Anchor::Start, &words);
        figure.close();
    }
}
