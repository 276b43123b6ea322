//! Text as polygons.

use super::canvas::{Point, Polygon};
use super::font::{Glyph, glyph};
use super::path;
use super::stroke::{Corner, outline};

/// Pen widths in hundredths of the size, and what bold letters need more room for.
const REGULAR: f64 = 8.4;
const BOLD: f64 = 13.5;
const WIDER: f64 = 5.0;

/// How text is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Pixels of an em.
    pub(super) size: f64,
    pub(super) bold: bool,
}

impl Style {
    /// Pixels that the words advance.
    pub(super) fn width(self, words: &str) -> f64 {
        words
            .chars()
            .map(|letter| self.advance(glyph(letter)))
            .sum()
    }

    /// The polygons of words whose base line starts at `from`.
    pub(super) fn polygons(self, words: &str, from: Point) -> Vec<Polygon> {
        let mut x = from.0;
        let mut polygons = Vec::new();
        for letter in words.chars() {
            let glyph = glyph(letter);
            let left = x + self.unit() * self.wider() / 2.0;
            self.draw(glyph.path, (left, from.1), &mut polygons);
            if let Some(accent) = glyph.accent {
                let at = (
                    left + self.unit() * accent.right,
                    from.1 - self.unit() * accent.up,
                );
                self.draw(accent.path, at, &mut polygons);
            }
            x += self.advance(glyph);
        }
        polygons
    }

    /// Breaks words at spaces into lines of at most `room` in width.
    pub(super) fn lines(self, words: &str, room: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in words.split_whitespace() {
            match lines.last_mut() {
                Some(line) if self.width(line) + self.width(" ") + self.width(word) <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines
    }

    /// The words, or as many of their letters as `room` has place for and an ellipsis.
    pub(super) fn shorten(self, words: &str, room: f64) -> String {
        // Text that was scaled to fit exactly must not be shortened by a rounding error.
        let room = room * (1.0 + 1e-9);
        if self.width(words) <= room {
            return words.to_owned();
        }
        let mut letters: Vec<char> = words.chars().collect();
        loop {
            let short: String = letters.iter().chain(&['…']).collect();
            if self.width(&short) <= room || letters.pop().is_none() {
                return short;
            }
        }
    }

    fn draw(self, data: &str, (x, y): Point, polygons: &mut Vec<Polygon>) {
        let unit = self.unit();
        let pen = unit * if self.bold { BOLD } else { REGULAR };
        // The font's test reads every glyph.
        for mut path in path::parse(data).unwrap_or_default() {
            for point in &mut path.points {
                *point = (x + unit * point.0, y - unit * point.1);
            }
            polygons.extend(outline(&path, pen, Corner::Round));
        }
    }

    fn advance(self, glyph: Glyph) -> f64 {
        self.unit() * (glyph.advance + self.wider())
    }

    fn wider(self) -> f64 {
        if self.bold { WIDER } else { 0.0 }
    }

    fn unit(self) -> f64 {
        self.size / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style {
        size: 100.0,
        bold: false,
    };

    #[test]
    fn words_are_as_wide_as_their_letters() {
        assert_eq!(STYLE.width("012"), 180.0);
        let bold = Style {
            bold: true,
            ..STYLE
        };
        assert!(bold.width("012") > 180.0);
    }

    #[test]
    fn long_words_break_between_words() {
        let lines = STYLE.lines("one two three", STYLE.width("one two"));
        assert_eq!(lines, ["one two", "three"]);
        assert_eq!(STYLE.lines("unbreakable", 1.0), ["unbreakable"]);
    }

    #[test]
    fn words_without_room_end_in_an_ellipsis() {
        let room = STYLE.width("abcd…");
        assert_eq!(STYLE.shorten("abcdefgh", room), "abcd…");
        assert_eq!(STYLE.shorten("abcd", room), "abcd");
        assert_eq!(STYLE.shorten("abcd", 0.0), "…");
    }

    #[test]
    fn letters_stand_on_the_base_line() {
        let polygons = STYLE.polygons("HE", (0.0, 50.0));
        let lowest = polygons.iter().flatten().map(|point| point.1);
        let lowest = lowest.fold(f64::NEG_INFINITY, f64::max);
        assert!((lowest - 50.0).abs() < 0.5, "{lowest}");
    }
}
