//! Figures as PNG, for pages that cannot show SVG. Drawn without a font, a renderer or anything else that a machine
//! may lack: the picture is the same everywhere.

mod canvas;
mod encode;
mod font;
mod path;
mod stroke;
mod text;

use canvas::{Canvas, Ink, Point, Polygon};
use path::Path;
use stroke::{Corner, dashes, outline};
use text::Style;

use crate::palette;
use crate::svg::{ABOVE, Anchor, Element, FONT_SIZE, Figure, Fill, Outline, Stroke, WIDTH, float};

/// The maximum width and height of a picture: more than any screen or page needs.
const MAX_PIXELS: f64 = 32_000.0;

/// A figure cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("figure {id}: {reason}")]
pub struct Error {
    id: String,
    reason: String,
}

/// Draws a figure in the light colours, `scale` pixels to a unit (a figure is 680 units wide). A title that is wider
/// than the figure has several lines, and a label that does not fit is set smaller.
///
/// # Errors
/// When the size is not drawable.
pub fn png(figure: &Figure, scale: f32) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error {
        id: figure.id().to_owned(),
        reason,
    };
    let title = Title::of(figure, f64::from(scale));
    let height = figure.height().round() + ABOVE + title.more();
    let [width, height] = [WIDTH, height].map(|units| (units * f64::from(scale)).ceil());
    if !(width >= 1.0 && height >= 1.0) {
        return Err(failed(format!("no size at scale {scale}")));
    }
    if width.max(height) > MAX_PIXELS {
        return Err(failed(format!("too large at scale {scale}")));
    }
    let (width, height) = (whole(width), whole(height));
    let mut painter = Painter {
        canvas: Canvas::new(width as usize, height as usize),
        scale: f64::from(scale),
        top: 0.0,
        colour: palette::light("ink"),
        group: None,
    };
    title.paint(&mut painter);
    painter.top = ABOVE + title.more();
    for element in figure.elements() {
        painter.paint(element);
    }
    encode::encode(width, height, painter.canvas.pixels())
        .map_err(|error| failed(error.to_string()))
}

/// The lines above a figure.
struct Title {
    lines: Vec<String>,
    style: Style,
}

impl Title {
    /// Units from one line to the next.
    const PITCH: f64 = 17.0;
    const LEFT: f64 = 8.0;
    const BASE: f64 = 22.0;

    fn of(figure: &Figure, scale: f64) -> Self {
        let style = Style {
            size: FONT_SIZE * scale,
            bold: true,
        };
        let room = (WIDTH - 2.0 * Self::LEFT) * scale;
        Self {
            lines: style.lines(figure.title(), room),
            style,
        }
    }

    /// Units that the lines after the first need.
    fn more(&self) -> f64 {
        Self::PITCH * float(self.lines.len().saturating_sub(1))
    }

    fn paint(&self, painter: &mut Painter) {
        for (at, line) in self.lines.iter().enumerate() {
            let place = (Self::LEFT, Self::BASE + Self::PITCH * float(at));
            painter.text(line, place, Anchor::Start, self.style);
        }
    }
}

struct Painter {
    canvas: Canvas,
    /// Pixels of a unit.
    scale: f64,
    /// Units above what is drawn.
    top: f64,
    colour: [u8; 3],
    /// A translucent group: its polygons are filled together, so that those that overlap do not add up.
    group: Option<(f64, Vec<Polygon>)>,
}

impl Painter {
    fn paint(&mut self, element: &Element) {
        match element {
            Element::Open(classes) => self.open(classes),
            Element::Close => self.close(),
            Element::Hint(_) => {}
            Element::Line(from, to, stroke) => self.line(*from, *to, *stroke),
            Element::Path(points, stroke) => {
                let points = points.iter().map(|place| self.pixels(*place)).collect();
                self.stroke(&open(points), *stroke, self.scale * stroke.width);
            }
            Element::Rect { corner, size, fill } => self.rect(*corner, *size, *fill),
            Element::Text { at, anchor, words } => {
                let style = Style {
                    size: FONT_SIZE * self.scale,
                    bold: false,
                };
                self.text(words, *at, *anchor, style);
            }
            Element::Marker(marker, at) => {
                let (shape, width) = marker.shape();
                self.marker(shape, width, *at);
            }
        }
    }

    fn open(&mut self, classes: &str) {
        let mut classes = classes.split(' ');
        self.colour = palette::light(classes.next().unwrap_or_default());
        if classes.any(|class| class == palette::POINTS.0) {
            self.group = Some((palette::POINTS.1, Vec::new()));
        }
    }

    fn close(&mut self) {
        if let Some((opacity, polygons)) = self.group.take() {
            self.fill(polygons, opacity);
        }
    }

    /// A line along an axis lies on whole pixels: it is as sharp as the screen.
    fn line(&mut self, from: Point, to: Point, stroke: Stroke) {
        let (mut from, mut to) = (self.pixels(from), self.pixels(to));
        let mut width = self.scale * stroke.width;
        if from.0 == to.0 || from.1 == to.1 {
            width = width.floor().max(1.0);
        }
        if from.0 == to.0 {
            let x = snap(from.0, width);
            (from.0, to.0) = (x, x);
        } else if from.1 == to.1 {
            let y = snap(from.1, width);
            (from.1, to.1) = (y, y);
        }
        self.stroke(&open(vec![from, to]), stroke, width);
    }

    fn stroke(&mut self, path: &Path, stroke: Stroke, width: f64) {
        let pattern: Vec<f64> = stroke
            .dash
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|length| length.parse::<f64>().ok())
            .map(|length| length * self.scale)
            .collect();
        let polygons = dashes(path, &pattern)
            .iter()
            .flat_map(|dash| outline(dash, width, Corner::Pointed))
            .collect();
        self.fill(polygons, stroke.opacity.unwrap_or(1.0));
    }

    /// Edges lie on whole pixels: areas that touch leave no seam.
    fn rect(&mut self, corner: Point, size: (f64, f64), fill: Fill) {
        let width = fill
            .outline
            .map(|width| (self.scale * width).floor().max(1.0));
        let edge = |place: f64| snap(place, width.unwrap_or(0.0));
        let (left, top) = self.pixels(corner);
        let right = edge(left + self.scale * size.0).max(edge(left) + 1.0);
        let bottom = edge(top + self.scale * size.1).max(edge(top) + 1.0);
        let (left, top) = (edge(left), edge(top));
        let path = Path {
            points: vec![(left, top), (right, top), (right, bottom), (left, bottom)],
            closed: true,
        };
        self.fill(vec![path.points.clone()], fill.opacity.unwrap_or(1.0));
        if let Some(width) = width {
            self.fill(outline(&path, width, Corner::Pointed), 1.0);
        }
    }

    /// A label that does not fit is set smaller, down to a size that can still be read, and then shortened.
    fn text(&mut self, words: &str, at: Point, anchor: Anchor, style: Style) {
        const MARGIN: f64 = 4.0;
        const MIN_SCALE: f64 = 0.6;
        let (x, y) = self.pixels(at);
        let (least, most) = (self.scale * MARGIN, self.scale * (WIDTH - MARGIN));
        let room = match anchor {
            Anchor::Start => most - x,
            Anchor::Middle => 2.0 * (x - least).min(most - x),
            Anchor::End => x - least,
        };
        let style = Style {
            size: style.size * (room / style.width(words)).clamp(MIN_SCALE, 1.0),
            ..style
        };
        let words = style.shorten(words, room);
        let width = style.width(&words);
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        self.fill(style.polygons(&words, (left, y.round())), 1.0);
    }

    fn marker(&mut self, shape: Outline, width: Option<f64>, at: Point) {
        let (x, y) = self.pixels(at);
        let mut paths = match shape {
            Outline::Circle(radius) => vec![Path {
                points: path::circle((0.0, 0.0), radius),
                closed: true,
            }],
            Outline::Path(data) => path::parse(&format!("M0 0{data}")).unwrap_or_default(),
        };
        for point in paths.iter_mut().flat_map(|path| &mut path.points) {
            *point = (x + self.scale * point.0, y + self.scale * point.1);
        }
        let polygons = match width {
            None => paths.into_iter().map(|path| path.points).collect(),
            Some(width) => paths
                .iter()
                .flat_map(|path| outline(path, self.scale * width, Corner::Pointed))
                .collect(),
        };
        self.fill(polygons, 1.0);
    }

    fn fill(&mut self, polygons: Vec<Polygon>, opacity: f64) {
        if let Some((_, group)) = &mut self.group {
            group.extend(polygons);
            return;
        }
        let ink = Ink {
            colour: self.colour,
            opacity,
        };
        self.canvas.fill(&polygons, ink);
    }

    fn pixels(&self, place: Point) -> Point {
        (place.0 * self.scale, (place.1 + self.top) * self.scale)
    }
}

fn open(points: Vec<Point>) -> Path {
    Path {
        points,
        closed: false,
    }
}

/// The place nearest to `at` where a line of this width has its edges between pixels.
fn snap(at: f64, width: f64) -> f64 {
    (at - width / 2.0).round() + width / 2.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 1 and MAX_PIXELS"
)]
fn whole(pixels: f64) -> u32 {
    pixels as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Width and height of a picture, from its header.
    fn size(picture: &[u8]) -> (u32, u32) {
        let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
        (number(16), number(20))
    }

    fn figure(title: &str) -> Figure {
        Figure::new(
            "f".to_owned(),
            title.to_owned(),
            String::new(),
            (WIDTH, 66.0),
        )
    }

    fn painter() -> Painter {
        Painter {
            canvas: Canvas::new(1360, 200),
            scale: 2.0,
            top: 0.0,
            colour: [0, 0, 0],
            group: None,
        }
    }

    /// The columns, from the first to the last, that have any ink.
    fn columns(painter: &Painter) -> (usize, usize) {
        let inked = |at: &usize| painter.canvas.pixels()[*at] < 0xff;
        let columns = || {
            let red = (0..painter.canvas.pixels().len()).step_by(encode::CHANNELS);
            red.filter(inked).map(|at| at / encode::CHANNELS % 1360)
        };
        (columns().min().unwrap(), columns().max().unwrap())
    }

    #[test]
    fn long_titles_take_more_height() {
        let short = png(&figure("one line"), 2.0).unwrap();
        assert_eq!(size(&short), (1360, 200));
        let long = png(&figure(&"several words ".repeat(12)), 2.0).unwrap();
        assert!(size(&long).1 >= 200 + 34, "{:?}", size(&long));
    }

    #[test]
    fn sizes_that_cannot_be_drawn_are_refused() {
        for (scale, reason) in [
            (0.0, "figure f: no size at scale 0"),
            (-1.0, "figure f: no size at scale -1"),
            (f32::NAN, "figure f: no size at scale NaN"),
            (1e6, "figure f: too large at scale 1000000"),
        ] {
            let refused = png(&figure("title"), scale).unwrap_err();
            assert_eq!(refused.to_string(), reason);
        }
    }

    #[test]
    fn anchors_place_text_around_its_point() {
        for (anchor, least, most) in [
            (Anchor::Start, 200, 300),
            (Anchor::Middle, 150, 250),
            (Anchor::End, 100, 200),
        ] {
            let mut painter = painter();
            let at = (100.0, 50.0);
            painter.paint(&Element::Text {
                at,
                anchor,
                words: "words".to_owned(),
            });
            let (first, last) = columns(&painter);
            assert!(first >= least && last <= most, "{anchor:?} {first} {last}");
        }
    }

    #[test]
    fn labels_fit_their_room() {
        for words in [
            "a-name-longer-than-its-room",
            &"a very long name ".repeat(9),
        ] {
            let mut painter = painter();
            painter.paint(&Element::Text {
                at: (100.0, 50.0),
                anchor: Anchor::End,
                words: words.to_owned(),
            });
            let (first, last) = columns(&painter);
            assert!((7..40).contains(&first) && last <= 200, "{first} {last}");
        }
    }

    #[test]
    fn lines_along_an_axis_are_sharp() {
        let mut painter = painter();
        painter.line((10.2, 5.0), (10.2, 20.0), Stroke::new(1.3));
        let row = &painter.canvas.pixels()[20 * 1360 * 3..21 * 1360 * 3];
        assert!(row.iter().all(|byte| matches!(byte, 0 | 0xff)));
        assert_eq!(row.iter().filter(|byte| **byte == 0).count(), 2 * 3);
    }

    #[test]
    fn points_that_overlap_do_not_add_up() {
        let mut painter = painter();
        painter.open("ink points");
        for _ in 0..2 {
            painter.marker(Outline::Circle(3.0), None, (20.0, 20.0));
        }
        painter.close();
        let centre = painter.canvas.pixels()[(40 * 1360 + 40) * 3];
        let ink = f64::from(palette::light("ink")[0]);
        let once = 255.0 - palette::POINTS.1 * (255.0 - ink);
        assert!((f64::from(centre) - once).abs() <= 1.0, "{centre}");
    }
}
