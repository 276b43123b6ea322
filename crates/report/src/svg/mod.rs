//! Figures as SVG, by a writer of our own: every colour is a class and every shape takes its colour
//! from it, so that one figure serves a light page, a dark page, print and PNG.

mod bars;
mod boxes;
mod ecdf;
mod flame;
mod scale;
mod series;
mod timeline;

use std::fmt::Write;

pub(crate) use bars::cpu;

pub(crate) use boxes::boxes;
pub(crate) use ecdf::ecdf;
pub(crate) use flame::flame;
pub(crate) use scale::float;
pub(crate) use series::series;
pub(crate) use timeline::timeline;

use crate::palette::{self, Look, Marker};

/// Width of every figure, in its own units; about the pixels of a column of text.
pub(crate) const WIDTH: f64 = 680.0;

/// A figure with the words that stand for it where it cannot be seen.
#[derive(Clone, Debug)]
pub struct Figure {
    id: String,
    title: String,
    description: String,
    height: f64,
    body: String,
}

impl Figure {
    pub(crate) fn new(id: String, title: String, description: String, height: f64) -> Self {
        Self {
            id,
            title,
            description,
            height,
            body: String::new(),
        }
    }

    /// The name of the figure, unique in its report: `delay_p50-0-boxes`.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// For a page that brings the colours.
    pub(crate) fn inline(&self) -> String {
        let Self { id, body, .. } = self;
        format!(
            "<svg role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {WIDTH} {:.0}\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}</svg>",
            self.height,
            escape(&self.title),
            escape(&self.description)
        )
    }

    /// A file of its own, in the light colours on white, with its title drawn above it.
    pub fn standalone(&self) -> String {
        const ABOVE: f64 = 34.0;
        let height = self.height + ABOVE;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH} {height:.0}\"><title>{title}</title><desc>{}</desc>\
             <style>text{{font-family:'DejaVu Sans',sans-serif;font-size:12.5px}}\
             .points{{opacity:0.55}}.ink{{color:#1b1f27}}.soft{{color:#5b6472}}.flame{{color:#dfe6f1}}.bpf{{color:#a9c8ff}}{}</style>\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\
             <g class=\"ink\"><text x=\"8\" y=\"22\" font-weight=\"bold\" fill=\"currentColor\">{title}</text></g>\
             <g transform=\"translate(0 {ABOVE})\">{}</g></svg>",
            escape(&self.description),
            palette::rules(false),
            self.body,
            title = escape(&self.title),
        )
    }

    pub(crate) fn open(&mut self, class: &str) {
        self.put(format_args!("<g class=\"{class}\">"));
    }

    pub(crate) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), look: &str) {
        self.put(format_args!(
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"currentColor\" {look}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(crate) fn path(&mut self, points: &[(f64, f64)], look: &str) {
        let mut d = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let step = if at == 0 { 'M' } else { 'L' };
            // Writing into a String cannot fail.
            let _ = write!(d, "{step}{x:.1} {y:.1}");
        }
        self.put(format_args!(
            "<path d=\"{d}\" fill=\"none\" stroke=\"currentColor\" {look}/>"
        ));
    }

    pub(crate) fn rect(&mut self, corner: (f64, f64), size: (f64, f64), look: &str) {
        self.put(format_args!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" {look}/>",
            corner.0, corner.1, size.0, size.1
        ));
    }

    pub(crate) fn text(&mut self, at: (f64, f64), anchor: &str, words: &str) {
        self.put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"currentColor\">{}</text>",
            at.0,
            at.1,
            escape(words)
        ));
    }

    /// What a pointer resting here is told.
    pub(crate) fn hint(&mut self, words: &str) {
        self.put(format_args!("<title>{}</title>", escape(words)));
    }

    /// A mark of an arm, about 7 units wide.
    pub(crate) fn marker(&mut self, marker: Marker, (x, y): (f64, f64)) {
        let solid = |d: &str| format!("<path d=\"M{x:.1} {y:.1}{d}\" fill=\"currentColor\"/>");
        let drawn = |d: &str| {
            format!(
                "<path d=\"M{x:.1} {y:.1}{d}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.7\"/>"
            )
        };
        let mark = match marker {
            Marker::Circle => {
                format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.3\" fill=\"currentColor\"/>")
            }
            Marker::Ring => format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.9\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"/>"
            ),
            Marker::Square => solid("m-3 -3h6v6h-6z"),
            Marker::Frame => drawn("m-2.7 -2.7h5.4v5.4h-5.4z"),
            Marker::Diamond => solid("m0 -4l4 4l-4 4l-4 -4z"),
            Marker::Up => solid("m0 -4l3.8 7h-7.6z"),
            Marker::Down => solid("m0 4l3.8 -7h-7.6z"),
            Marker::Plus => drawn("m-3.7 0h7.4m-3.7 -3.7v7.4"),
            Marker::Cross => drawn("m-3 -3l6 6m0 -6l-6 6"),
        };
        self.body.push_str(&mark);
    }

    /// Marks with their arms' names, in as many lines as they need from `y` on.
    pub(crate) fn legend(&mut self, y: f64, entries: &[(String, Look)]) {
        for ((name, look), (x, down)) in entries.iter().zip(places(entries)) {
            let y = y + down;
            self.open(look.class);
            let dash = dashed(look);
            self.line(
                (x, y),
                (x + 26.0, y),
                &format!("stroke-width=\"1.6\" {dash}"),
            );
            self.marker(look.marker, (x + 13.0, y));
            self.close();
            self.open("ink");
            self.text((x + 32.0, y + 4.5), "start", name);
            self.close();
        }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a String cannot fail.
        let _ = self.body.write_fmt(element);
    }
}

/// Where the entries of a legend stand: from the left, and down in lines of 18 units.
fn places(entries: &[(String, Look)]) -> Vec<(f64, f64)> {
    let mut next = (8.0, 0.0);
    let place = |(name, _): &(String, Look)| {
        let wide = 48.0 + 8.2 * float(name.chars().count());
        if next.0 + wide > WIDTH && next.0 > 8.0 {
            next = (8.0, next.1 + 18.0);
        }
        let place = next;
        next.0 += wide;
        place
    };
    entries.iter().map(place).collect()
}

/// How much further down than usual a plot begins below this legend: there is room for two lines.
pub(crate) fn below(entries: &[(String, Look)]) -> f64 {
    let last = places(entries).last().map_or(0.0, |(_, down)| *down);
    (last - 18.0).max(0.0)
}

/// Where a plot begins that has such names on its left: there is always room for ten letters.
pub(crate) fn beside<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (18.0 + 7.4 * float(longest)).clamp(92.0, 240.0)
}

/// The dash attribute of an arm's line.
pub(crate) fn dashed(look: &Look) -> String {
    if look.dash.is_empty() {
        String::new()
    } else {
        format!("stroke-dasharray=\"{}\"", look.dash)
    }
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
    use crate::palette::look_of;

    #[test]
    fn a_legend_of_long_names_has_more_lines_and_its_plot_begins_below_them() {
        let legend = |name: &str, count: usize| {
            let entry = (name.to_owned(), look_of(name, &[]));
            vec![entry; count]
        };
        assert_eq!(below(&legend("recv", 8)), 0.0);
        // 163 units each: four in a line.
        let long = legend("native/macvlan", 14);
        let places = places(&long);
        assert_eq!(places.last().unwrap().1, 3.0 * 18.0);
        assert!(places.iter().all(|(x, _)| x + 163.0 <= WIDTH));
        assert_eq!(below(&long), 2.0 * 18.0);
        assert_eq!(below(&[]), 0.0);
    }

    #[test]
    fn long_names_beside_a_plot_have_their_room() {
        assert_eq!(beside(["recv", "xdp"].into_iter()), 92.0);
        assert!(beside(["xdp", "native/macvlan"].into_iter()) > 14.0 * 7.0 + 18.0);
    }
}
