//! Figures as SVG, by a writer of our own: every colour is a class and every shape takes its colour
//! from it, so that one figure serves a light page, a dark page, print and PNG.

mod bars;
mod boxes;
mod ecdf;
mod flame;
mod scale;
mod series;
mod shape;
mod timeline;

use std::fmt::Write;

pub(crate) use bars::cpu;

pub(crate) use boxes::boxes;
pub(crate) use ecdf::ecdf;
pub(crate) use flame::flame;
pub(crate) use scale::float;
pub(crate) use series::series;
pub(crate) use shape::{Anchor, Element, Fill, Outline, Stroke};
pub(crate) use timeline::timeline;

use shape::Place;

use crate::palette::{self, Look, Marker};

/// Width of a figure, in its own units; about the pixels of a column of text.
pub(crate) const WIDTH: f64 = 680.0;
/// Width of the same figure drawn for a telephone.
pub(crate) const NARROW: f64 = 340.0;
/// Units above a figure that stands alone, for its title.
pub(crate) const ABOVE: f64 = 34.0;
/// The size of all text in a figure that stands alone, in its units.
pub(crate) const FONT_SIZE: f64 = 12.5;

/// A figure with the words that stand for it where it cannot be seen.
#[derive(Clone, Debug)]
pub struct Figure {
    id: String,
    title: String,
    description: String,
    width: f64,
    height: f64,
    elements: Vec<Element>,
}

impl Figure {
    pub(crate) fn new(
        id: String,
        title: String,
        description: String,
        (width, height): (f64, f64),
    ) -> Self {
        Self {
            id,
            title,
            description,
            width,
            height,
            elements: Vec::new(),
        }
    }

    /// The name of the figure, unique in its report: `delay_p50-0-boxes`.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn width(&self) -> f64 {
        self.width
    }

    /// Without the title, which stands above a figure that stands alone.
    pub(crate) fn height(&self) -> f64 {
        self.height
    }

    pub(crate) fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// For a page that brings the colours.
    pub(crate) fn inline(&self) -> String {
        let (id, body) = (&self.id, self.body());
        format!(
            "<svg role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {} {:.0}\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}</svg>",
            self.width,
            self.height,
            escape(&self.title),
            escape(&self.description)
        )
    }

    /// A file of its own, in the light colours on white, with its title drawn above it.
    pub fn standalone(&self) -> String {
        let (width, height) = (self.width, self.height + ABOVE);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width} {height:.0}\"><title>{title}</title><desc>{}</desc>\
             <style>text{{font-family:'DejaVu Sans',sans-serif;font-size:{FONT_SIZE}px}}\
             .{points}{{opacity:{opacity}}}{}</style>\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\
             <g class=\"ink\"><text x=\"8\" y=\"22\" font-weight=\"bold\" fill=\"currentColor\">{title}</text></g>\
             <g transform=\"translate(0 {ABOVE})\">{}</g></svg>",
            escape(&self.description),
            palette::standalone_rules(),
            self.body(),
            title = escape(&self.title),
            points = palette::POINTS.0,
            opacity = palette::POINTS.1,
        )
    }

    pub(crate) fn open(&mut self, class: &str) {
        self.elements.push(Element::Open(class.to_owned()));
    }

    pub(crate) fn close(&mut self) {
        self.elements.push(Element::Close);
    }

    pub(crate) fn line(&mut self, from: Place, to: Place, stroke: Stroke) {
        self.elements.push(Element::Line(from, to, stroke));
    }

    pub(crate) fn path(&mut self, points: &[Place], stroke: Stroke) {
        self.elements.push(Element::Path(points.to_vec(), stroke));
    }

    pub(crate) fn rect(&mut self, corner: Place, size: (f64, f64), fill: Fill) {
        self.elements.push(Element::Rect { corner, size, fill });
    }

    pub(crate) fn text(&mut self, at: Place, anchor: Anchor, words: &str) {
        let words = words.to_owned();
        self.elements.push(Element::Text { at, anchor, words });
    }

    /// Adds the tooltip of this place.
    pub(crate) fn hint(&mut self, words: &str) {
        self.elements.push(Element::Hint(words.to_owned()));
    }

    /// A mark of an arm.
    pub(crate) fn marker(&mut self, marker: Marker, at: Place) {
        self.elements.push(Element::Marker(marker, at));
    }

    /// Marks with their arms' names, in as many lines as they need from `y` on.
    pub(crate) fn legend(&mut self, y: f64, entries: &[(String, Look)]) {
        for ((name, look), (x, down)) in entries.iter().zip(places(entries, self.width)) {
            let y = y + down;
            self.open(look.class);
            let stroke = Stroke::new(1.6).dash(look.dash);
            self.line((x, y), (x + 26.0, y), stroke);
            self.marker(look.marker, (x + 13.0, y));
            self.close();
            self.open("ink");
            self.text((x + 32.0, y + 4.5), Anchor::Start, name);
            self.close();
        }
    }

    /// The elements as SVG.
    fn body(&self) -> String {
        let mut body = String::new();
        for element in &self.elements {
            // Writing into a String cannot fail.
            let _ = write_element(&mut body, element);
        }
        body
    }
}

fn write_element(out: &mut String, element: &Element) -> std::fmt::Result {
    match element {
        Element::Open(class) => write!(out, "<g class=\"{class}\">"),
        Element::Close => out.write_str("</g>"),
        Element::Hint(words) => write!(out, "<title>{}</title>", escape(words)),
        Element::Line(from, to, stroke) => write!(
            out,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"currentColor\" {stroke}/>",
            from.0, from.1, to.0, to.1
        ),
        Element::Path(points, stroke) => {
            out.write_str("<path d=\"")?;
            for (at, (x, y)) in points.iter().enumerate() {
                let step = if at == 0 { 'M' } else { 'L' };
                write!(out, "{step}{x:.1} {y:.1}")?;
            }
            write!(out, "\" fill=\"none\" stroke=\"currentColor\" {stroke}/>")
        }
        Element::Rect { corner, size, fill } => write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" {fill}/>",
            corner.0, corner.1, size.0, size.1
        ),
        Element::Text { at, anchor, words } => write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"currentColor\">{}</text>",
            at.0,
            at.1,
            escape(words)
        ),
        Element::Marker(marker, at) => write_marker(out, *marker, *at),
    }
}

fn write_marker(out: &mut String, marker: Marker, (x, y): Place) -> std::fmt::Result {
    let (shape, stroke) = marker.shape();
    match shape {
        Outline::Circle(radius) => {
            write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" ")?;
        }
        Outline::Path(data) => write!(out, "<path d=\"M{x:.1} {y:.1}{data}\" ")?,
    }
    match stroke {
        None => out.write_str("fill=\"currentColor\"/>"),
        Some(width) => write!(
            out,
            "fill=\"none\" stroke=\"currentColor\" stroke-width=\"{width}\"/>"
        ),
    }
}

/// Where the entries of a legend stand: from the left, and down in lines of 18 units.
fn places(entries: &[(String, Look)], width: f64) -> Vec<(f64, f64)> {
    let mut next = (8.0, 0.0);
    let place = |(name, _): &(String, Look)| {
        let wide = 48.0 + 8.2 * float(name.chars().count());
        if next.0 + wide > width && next.0 > 8.0 {
            next = (8.0, next.1 + 18.0);
        }
        let place = next;
        next.0 += wide;
        place
    };
    entries.iter().map(place).collect()
}

/// How much further down than usual a plot begins below this legend: there is room for two lines.
pub(crate) fn below(entries: &[(String, Look)], width: f64) -> f64 {
    let last = places(entries, width).last().map_or(0.0, |(_, down)| *down);
    (last - 18.0).max(0.0)
}

/// The width of these labels on the left of a plot, at least that of ten letters.
pub(crate) fn label_width<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (18.0 + 7.4 * float(longest)).clamp(92.0, 240.0)
}

/// Text as it may stand in HTML and SVG, in attributes as well.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() && control != '\n' => escaped.push(' '),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::GREYS;

    #[test]
    fn long_legend_moves_plot_down() {
        let legend = |name: &str, count: usize| {
            let entry = (name.to_owned(), GREYS[0]);
            vec![entry; count]
        };
        assert_eq!(below(&legend("recv", 8), WIDTH), 0.0);
        // 163 units each: four in a line.
        let long = legend("native/macvlan", 14);
        let places = places(&long, WIDTH);
        assert_eq!(places.last().unwrap().1, 3.0 * 18.0);
        assert!(places.iter().all(|(x, _)| x + 163.0 <= WIDTH));
        assert_eq!(below(&long, WIDTH), 2.0 * 18.0);
        assert_eq!(below(&[], WIDTH), 0.0);
    }

    #[test]
    fn long_names_beside_a_plot_have_their_room() {
        assert_eq!(label_width(["recv", "xdp"].into_iter()), 92.0);
        assert!(label_width(["xdp", "native/macvlan"].into_iter()) > 14.0 * 7.0 + 18.0);
    }
}
