//! The polygons that cover a stroked path.

use super::canvas::{Point, Polygon};
use super::path::{Path, circle};

/// How corners and ends of a stroke look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Corner {
    /// Pointed corners and ends cut off square, as SVG draws by default.
    Pointed,
    Round,
}

/// Polygons that together cover the stroke, all wound the same way: filled by the nonzero rule they are one shape.
pub(super) fn outline(path: &Path, width: f64, corner: Corner) -> Vec<Polygon> {
    let half = width / 2.0;
    let points = distinct(path);
    let mut polygons: Vec<Polygon> = Vec::new();
    for pair in points.windows(2) {
        polygons.extend(segment(pair[0], pair[1], half));
    }
    match corner {
        Corner::Round => polygons.extend(points.iter().map(|&at| circle(at, half))),
        Corner::Pointed => {
            for three in points.windows(3) {
                polygons.extend(join([three[0], three[1], three[2]], half));
            }
            if path.closed && points.len() > 2 {
                let around = [points[points.len() - 2], points[0], points[1]];
                polygons.extend(join(around, half));
            }
        }
    }
    polygons.iter_mut().for_each(orient);
    polygons
}

/// Cuts a path into the dashes of a pattern of lengths: drawn, left out, drawn, and so on.
pub(super) fn dashes(path: &Path, pattern: &[f64]) -> Vec<Path> {
    if pattern.is_empty() || pattern.iter().any(|length| *length <= 0.0) {
        return vec![path.clone()];
    }
    let mut lengths = pattern.iter().copied().cycle();
    let mut left = lengths.next().unwrap_or(f64::INFINITY);
    let (mut drawn, mut dashes) = (true, Vec::new());
    let points = distinct(path);
    let mut dash: Vec<Point> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let mut rest = distance(from, to);
        while rest > left {
            let share = left / rest;
            from = (
                from.0 + share * (to.0 - from.0),
                from.1 + share * (to.1 - from.1),
            );
            rest -= left;
            if drawn {
                dash.push(from);
                dashes.push(std::mem::take(&mut dash));
            }
            drawn = !drawn;
            dash = vec![from];
            left = lengths.next().unwrap_or(f64::INFINITY);
        }
        left -= rest;
        dash.push(to);
    }
    if drawn {
        dashes.push(dash);
    }
    let open = |points| Path {
        points,
        closed: false,
    };
    dashes.into_iter().map(open).collect()
}

/// The points of a path without repetitions, the first once more at the end of a closed one.
fn distinct(path: &Path) -> Vec<Point> {
    let back = path.points.first().filter(|_| path.closed);
    let mut points: Vec<Point> = path.points.iter().chain(back).copied().collect();
    points.dedup_by(|a, b| distance(*a, *b) < 1e-9);
    points
}

fn segment(from: Point, to: Point, half: f64) -> Option<Polygon> {
    let (x, y) = normal(from, to, half)?;
    Some(vec![
        (from.0 + x, from.1 + y),
        (to.0 + x, to.1 + y),
        (to.0 - x, to.1 - y),
        (from.0 - x, from.1 - y),
    ])
}

/// Fills the gap outside a corner: to a point, or straight where the point would reach too far.
fn join([from, at, to]: [Point; 3], half: f64) -> Option<Polygon> {
    /// SVG's default limit, in half widths.
    const REACH: f64 = 4.0;
    let (first, second) = (normal(from, at, half)?, normal(at, to, half)?);
    let turn = first.0 * second.1 - first.1 * second.0;
    let side = if turn > 0.0 { -1.0 } else { 1.0 };
    let a = (side * first.0, side * first.1);
    let b = (side * second.0, side * second.1);
    let mut polygon = vec![at, (at.0 + a.0, at.1 + a.1)];
    let sum = (a.0 + b.0, a.1 + b.1);
    // The tip lies along the sum of the normals, whose length tells the angle.
    let square = sum.0 * sum.0 + sum.1 * sum.1;
    let reach = 2.0 * half * half / square.max(1e-12);
    if reach * square.sqrt() <= REACH * half {
        polygon.push((at.0 + reach * sum.0, at.1 + reach * sum.1));
    }
    polygon.push((at.0 + b.0, at.1 + b.1));
    Some(polygon)
}

/// The vector of such a length that stands upright on a segment; none on a segment without length.
fn normal(from: Point, to: Point, length: f64) -> Option<Point> {
    let all = distance(from, to);
    let scale = length / all;
    (all > 1e-9).then_some((-(to.1 - from.1) * scale, (to.0 - from.0) * scale))
}

fn distance(from: Point, to: Point) -> f64 {
    (to.0 - from.0).hypot(to.1 - from.1)
}

/// Reverses a polygon that is wound the other way.
fn orient(polygon: &mut Polygon) {
    let next = polygon.iter().cycle().skip(1);
    let pairs = polygon.iter().zip(next);
    let area: f64 = pairs.map(|(a, b)| a.0 * b.1 - b.0 * a.1).sum();
    if area < 0.0 {
        polygon.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[Point]) -> Path {
        Path {
            points: points.to_vec(),
            closed: false,
        }
    }

    fn extent(polygons: &[Polygon]) -> (Point, Point) {
        let points = || polygons.iter().flatten();
        let least = |of: fn(&Point) -> f64| points().map(of).fold(f64::INFINITY, f64::min);
        let most = |of: fn(&Point) -> f64| points().map(of).fold(f64::NEG_INFINITY, f64::max);
        (
            (least(|p| p.0), least(|p| p.1)),
            (most(|p| p.0), most(|p| p.1)),
        )
    }

    #[test]
    fn corners_are_pointed_and_ends_cut_off() {
        let angle = line(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)]);
        let reach = extent(&outline(&angle, 2.0, Corner::Pointed));
        assert_eq!(reach, ((0.0, -1.0), (11.0, 10.0)));
        let round = extent(&outline(&angle, 2.0, Corner::Round));
        assert_eq!(round, ((-1.0, -1.0), (11.0, 11.0)));
    }

    #[test]
    fn sharp_corners_are_bevelled() {
        let sharp = line(&[(0.0, 0.0), (10.0, 0.0), (0.0, 0.5)]);
        let (_, (right, _)) = extent(&outline(&sharp, 2.0, Corner::Pointed));
        assert!(right < 11.1, "{right}");
    }

    #[test]
    fn closed_paths_have_every_corner() {
        let square = Path {
            points: vec![(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)],
            closed: true,
        };
        let polygons = outline(&square, 2.0, Corner::Pointed);
        assert_eq!(polygons.len(), 4 + 4);
        assert_eq!(extent(&polygons), ((-1.0, -1.0), (5.0, 5.0)));
    }

    #[test]
    fn dashes_continue_around_corners() {
        let angle = line(&[(0.0, 0.0), (4.0, 0.0), (4.0, 6.0)]);
        let cut = dashes(&angle, &[3.0, 2.0]);
        let points: Vec<_> = cut.into_iter().map(|dash| dash.points).collect();
        assert_eq!(
            points,
            [vec![(0.0, 0.0), (3.0, 0.0)], vec![(4.0, 1.0), (4.0, 4.0)],]
        );
        assert_eq!(dashes(&angle, &[]), [angle]);
    }
}
