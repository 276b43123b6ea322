//! Path data as lists of points.

use std::f64::consts::TAU;

use super::canvas::{Point, Polygon};

/// Straight pieces that a quarter of an ellipse is flattened to.
const QUARTER: u32 = 8;
/// Corners of the polygon that stands for a circle.
const ROUND: u32 = 20;

/// Points joined by straight lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path {
    pub(super) points: Vec<Point>,
    pub(super) closed: bool,
}

/// Reads path data: SVG's `M`, `L`, `C` and `Z`, their relative forms `m`, `l`, `h`, `v` and `z`, and three commands for
/// glyphs. `X x y` is a quarter of an ellipse that leaves along the x axis, `Y x y` one that leaves along the y
/// axis, and `D x y` is a dot. Returns none where the data has another command or lacks numbers.
pub(super) fn parse(data: &str) -> Option<Vec<Path>> {
    let mut paths: Vec<Path> = Vec::new();
    let mut at = (0.0, 0.0);
    let mut rest = data;
    while let Some(command) = rest.chars().next() {
        let tail = &rest[command.len_utf8()..];
        let end = tail.find(|letter: char| letter.is_ascii_alphabetic());
        let (numbers, next) = tail.split_at(end.unwrap_or(tail.len()));
        rest = next;
        let numbers: Vec<f64> = numbers
            .split_ascii_whitespace()
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        match (command, &numbers[..]) {
            ('M', &[x, y]) => at = start(&mut paths, (x, y)),
            ('m', &[x, y]) => {
                let from = origin(&paths, at);
                at = start(&mut paths, (from.0 + x, from.1 + y));
            }
            ('D', &[x, y]) => at = dot(&mut paths, (x, y)),
            ('Z' | 'z', &[]) => paths.last_mut()?.closed = true,
            _ => {
                let points = pieces(command, &numbers, at)?;
                at = *points.last()?;
                paths.last_mut()?.points.extend(points);
            }
        }
    }
    Some(paths)
}

/// Where a relative move begins: at the start of a closed path, else at the last point.
fn origin(paths: &[Path], at: Point) -> Point {
    let closed = paths.last().filter(|path| path.closed);
    closed
        .and_then(|path| path.points.first())
        .copied()
        .unwrap_or(at)
}

fn start(paths: &mut Vec<Path>, at: Point) -> Point {
    // A path that only moved has no line yet.
    paths.retain(|path| path.points.len() > 1);
    paths.push(Path {
        points: vec![at],
        closed: false,
    });
    at
}

/// A dot is wider than the stroke it is drawn with.
fn dot(paths: &mut Vec<Path>, (x, y): Point) -> Point {
    const RADIUS: f64 = 1.4;
    paths.push(Path {
        points: circle((x, y), RADIUS),
        closed: true,
    });
    (x, y)
}

fn pieces(command: char, numbers: &[f64], from: Point) -> Option<Vec<Point>> {
    // A little more than a circle's 0.5523: letters have shoulders.
    const SHOULDER: f64 = 0.585;
    Some(match (command, numbers) {
        ('L', &[x, y]) => vec![(x, y)],
        ('l', &[x, y]) => vec![(from.0 + x, from.1 + y)],
        ('h', &[x]) => vec![(from.0 + x, from.1)],
        ('v', &[y]) => vec![(from.0, from.1 + y)],
        ('C', &[a, b, c, d, x, y]) => curve(from, (a, b), (c, d), (x, y)),
        ('X', &[x, y]) => {
            let first = (from.0 + SHOULDER * (x - from.0), from.1);
            curve(from, first, (x, y + SHOULDER * (from.1 - y)), (x, y))
        }
        ('Y', &[x, y]) => {
            let first = (from.0, from.1 + SHOULDER * (y - from.1));
            curve(from, first, (x + SHOULDER * (from.0 - x), y), (x, y))
        }
        _ => return None,
    })
}

fn curve(a: Point, b: Point, c: Point, d: Point) -> Vec<Point> {
    let place = |step: u32| {
        let t = f64::from(step) / f64::from(QUARTER);
        let mix = |p: f64, q: f64| p + t * (q - p);
        let between = |p: Point, q: Point| (mix(p.0, q.0), mix(p.1, q.1));
        let (ab, bc, cd) = (between(a, b), between(b, c), between(c, d));
        between(between(ab, bc), between(bc, cd))
    };
    (1..=QUARTER).map(place).collect()
}

pub(super) fn circle((x, y): Point, radius: f64) -> Polygon {
    let corner = |step: u32| {
        let angle = TAU * f64::from(step) / f64::from(ROUND);
        (x + radius * angle.cos(), y + radius * angle.sin())
    };
    (0..ROUND).map(corner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_commands_start_at_the_last_point() {
        let paths = parse("M10 20m-3 -3h6v6h-6zm1 1l2 2").unwrap();
        let square = [(7.0, 17.0), (13.0, 17.0), (13.0, 23.0), (7.0, 23.0)];
        assert_eq!(paths[0].points, square);
        assert!(paths[0].closed && !paths[1].closed);
        assert_eq!(paths[1].points, [(8.0, 18.0), (10.0, 20.0)]);
    }

    #[test]
    fn quarters_of_ellipses_end_where_named() {
        for data in ["M0 0X8 4", "M0 0Y8 4", "M0 0C1 1 2 2 8 4"] {
            let paths = parse(data).unwrap();
            assert_eq!(paths[0].points.last(), Some(&(8.0, 4.0)), "{data}");
        }
        let along_x = &parse("M0 0X8 4").unwrap()[0].points;
        assert!(along_x[1].0 > along_x[1].1);
    }

    #[test]
    fn malformed_data_is_refused() {
        for data in ["L", "M1", "M1 2Q3 4", "M1 2L3 x", "L3 4"] {
            assert!(parse(data).is_none(), "{data}");
        }
    }
}
