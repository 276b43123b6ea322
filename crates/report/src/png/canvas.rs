//! Pixels, and the filling of polygons with a colour.

use super::encode::CHANNELS;
use crate::svg::float;

pub(super) type Point = (f64, f64);

/// The corners of a closed polygon, in pixels from the top left corner of the picture.
pub(super) type Polygon = Vec<Point>;

/// Scan lines of a pixel row. Along a scan line, coverage is exact.
const LINES: usize = 16;

/// The fill of a polygon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ink {
    pub(super) colour: [u8; 3],
    /// From 0 to 1.
    pub(super) opacity: f64,
}

pub(super) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// An edge of a polygon meets a scan line.
struct Crossing {
    line: usize,
    x: f64,
    /// 1 where the edge goes down, -1 where it goes up.
    winding: i32,
}

impl Canvas {
    /// A white canvas.
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            pixels: vec![0xff; width * height * CHANNELS],
        }
    }

    /// Rows from top to bottom, `CHANNELS` bytes for each pixel.
    pub(super) fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Fills what the polygons cover together, by the nonzero rule: where they overlap, the ink counts once. A
    /// polygon with a corner that is not finite is left out.
    pub(super) fn fill(&mut self, polygons: &[Polygon], ink: Ink) {
        let mut crossings = self.crossings(polygons);
        crossings.sort_by(|a, b| a.line.cmp(&b.line).then(a.x.total_cmp(&b.x)));
        let mut coverage = vec![0.0; self.width];
        for row in crossings.chunk_by(|a, b| a.line / LINES == b.line / LINES) {
            coverage.fill(0.0);
            for line in row.chunk_by(|a, b| a.line == b.line) {
                cover(&mut coverage, line);
            }
            if let Some(first) = row.first() {
                self.blend(first.line / LINES, &coverage, ink);
            }
        }
    }

    fn crossings(&self, polygons: &[Polygon]) -> Vec<Crossing> {
        let lines = self.height * LINES;
        let mut crossings = Vec::new();
        let finite = |(x, y): &Point| x.is_finite() && y.is_finite();
        for polygon in polygons.iter().filter(|polygon| polygon.iter().all(finite)) {
            let next = polygon.iter().skip(1).chain(polygon.first());
            for (&from, &to) in polygon.iter().zip(next) {
                let (winding, upper, lower) = if from.1 < to.1 {
                    (1, from, to)
                } else {
                    (-1, to, from)
                };
                let (first, end) = (line_from(upper.1, lines), line_from(lower.1, lines));
                for line in first..end {
                    let share = (middle(line) - upper.1) / (lower.1 - upper.1);
                    crossings.push(Crossing {
                        line,
                        x: upper.0 + share * (lower.0 - upper.0),
                        winding,
                    });
                }
            }
        }
        crossings
    }

    fn blend(&mut self, row: usize, coverage: &[f64], ink: Ink) {
        let from = row * self.width * CHANNELS;
        let pixels = &mut self.pixels[from..from + self.width * CHANNELS];
        for (pixel, covered) in pixels.chunks_exact_mut(CHANNELS).zip(coverage) {
            if *covered > 0.0 {
                let share = ink.opacity * covered.min(1.0);
                for (byte, colour) in pixel.iter_mut().zip(ink.colour) {
                    *byte = mix(*byte, colour, share);
                }
            }
        }
    }
}

/// Adds the part of each pixel that lies inside the polygons on one scan line.
fn cover(coverage: &mut [f64], crossings: &[Crossing]) {
    let mut winding = 0;
    let mut from = 0.0;
    for crossing in crossings {
        let before = winding;
        winding += crossing.winding;
        if before == 0 {
            from = crossing.x;
        } else if winding == 0 {
            span(coverage, from, crossing.x);
        }
    }
}

fn span(coverage: &mut [f64], from: f64, to: f64) {
    let whole = 1.0 / float(LINES);
    let right = float(coverage.len());
    let (from, to) = (from.clamp(0.0, right), to.clamp(0.0, right));
    let (first, last) = (floor(from), floor(to));
    if first == last {
        if let Some(pixel) = coverage.get_mut(first) {
            *pixel += whole * (to - from);
        }
        return;
    }
    coverage[first] += whole * (float(first + 1) - from);
    coverage[first + 1..last]
        .iter_mut()
        .for_each(|pixel| *pixel += whole);
    if let Some(pixel) = coverage.get_mut(last) {
        *pixel += whole * (to - float(last));
    }
}

/// The first scan line whose middle is not above `y`, of at most `lines`.
fn line_from(y: f64, lines: usize) -> usize {
    floor((y * float(LINES) + 0.5).clamp(0.0, float(lines)))
}

fn middle(line: usize) -> f64 {
    (float(line) + 0.5) / float(LINES)
}

fn mix(under: u8, over: u8, share: f64) -> u8 {
    let mixed = f64::from(under) * (1.0 - share) + f64::from(over) * share;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between two bytes"
    )]
    let byte = mixed.round() as u8;
    byte
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers pass places on the canvas, which are not negative"
)]
fn floor(place: f64) -> usize {
    place as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK: Ink = Ink {
        colour: [0, 0, 0],
        opacity: 1.0,
    };

    fn square(left: f64, top: f64, side: f64) -> Polygon {
        let (right, bottom) = (left + side, top + side);
        vec![(left, top), (right, top), (right, bottom), (left, bottom)]
    }

    fn grey(canvas: &Canvas, x: usize, y: usize) -> u8 {
        canvas.pixels()[(y * canvas.width + x) * CHANNELS]
    }

    #[test]
    fn partial_pixels_are_shaded_by_area() {
        let mut canvas = Canvas::new(4, 4);
        canvas.fill(&[square(0.5, 1.0, 2.0)], BLACK);
        assert_eq!(grey(&canvas, 1, 1), 0);
        assert!((127..=128).contains(&grey(&canvas, 0, 1)));
        assert!((127..=128).contains(&grey(&canvas, 2, 2)));
        assert_eq!((grey(&canvas, 3, 1), grey(&canvas, 1, 0)), (255, 255));
        let mut canvas = Canvas::new(4, 4);
        canvas.fill(&[square(1.0, 0.25, 1.0)], BLACK);
        assert_eq!((grey(&canvas, 1, 0), grey(&canvas, 1, 1)), (64, 191));
    }

    #[test]
    fn overlapping_polygons_take_ink_once() {
        let mut canvas = Canvas::new(4, 4);
        let half = Ink {
            opacity: 0.5,
            ..BLACK
        };
        canvas.fill(&[square(0.0, 0.0, 3.0), square(1.0, 1.0, 3.0)], half);
        assert_eq!(grey(&canvas, 0, 0), grey(&canvas, 1, 1));
    }

    #[test]
    fn polygons_are_clipped_to_the_canvas() {
        let mut canvas = Canvas::new(2, 2);
        canvas.fill(&[square(-5.0, -5.0, 20.0)], BLACK);
        assert!(canvas.pixels().iter().all(|byte| *byte == 0));
        canvas.fill(&[square(7.0, 7.0, 3.0), square(-9.0, 0.0, 1.0)], BLACK);
    }

    #[test]
    fn polygons_without_a_place_are_left_out() {
        let mut canvas = Canvas::new(4, 4);
        for x in [f64::NAN, f64::INFINITY] {
            canvas.fill(&[vec![(1.0, 0.0), (x, 0.0), (x, 2.0), (1.0, 2.0)]], BLACK);
        }
        assert!(canvas.pixels().iter().all(|byte| *byte == 0xff));
    }
}
