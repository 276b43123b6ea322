//! A stroke font of lowroad's own, so that a figure looks the same on every machine and no font must be installed.
//!
//! A glyph is path data (see [`super::path::parse`]) of the middle of the pen's line, y upwards from the base line, in
//! hundredths of the font's size. Lower-case letters reach to 50, capitals to 69, ascenders to 72 and
//! descenders to -17; half of the pen's width comes on top.

/// A character: how far the pen advances, and its path data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glyph {
    pub(super) advance: f64,
    pub(super) path: &'static str,
    /// An accent to draw above, or below for a cedilla.
    pub(super) accent: Option<Accent>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Accent {
    pub(super) path: &'static str,
    pub(super) right: f64,
    pub(super) up: f64,
}

/// Drawn for a character that the font lacks: a crossed box.
pub(super) const MISSING: Glyph = Glyph {
    advance: 60.0,
    path: "M8 4L52 4L52 69L8 69ZM8 4L52 69M8 69L52 4",
    accent: None,
};

/// The glyph of a character, or [`MISSING`].
pub(super) fn glyph(letter: char) -> Glyph {
    plain(letter)
        .or_else(|| accented(letter))
        .unwrap_or(MISSING)
}

fn plain(letter: char) -> Option<Glyph> {
    let letter = match letter {
        // Control characters are spaces in the SVG as well; the others differ in no visible way.
        '\u{a0}' | '\u{2009}' | '\u{202f}' => ' ',
        '\u{2010}' | '\u{2011}' => '-',
        '\u{3bc}' => 'µ',
        '\u{2126}' => 'Ω',
        '\u{2206}' => 'Δ',
        control if control.is_control() => ' ',
        other => other,
    };
    let found = GLYPHS.iter().find(|(known, ..)| *known == letter);
    found.map(|&(_, advance, path)| Glyph {
        advance,
        path,
        accent: None,
    })
}

fn accented(letter: char) -> Option<Glyph> {
    let (accent, letters) = ACCENTS
        .iter()
        .find(|(_, letters)| letters.chars().skip(1).step_by(2).any(|own| own == letter))?;
    let at = letters.chars().position(|own| own == letter)?;
    let base = letters.chars().nth(at.checked_sub(1)?)?;
    let glyph = plain(base)?;
    let above = if base.is_uppercase() { 19.0 } else { 0.0 };
    let path = match base {
        'i' => "M12.5 50L12.5 4",
        _ => glyph.path,
    };
    Some(Glyph {
        path,
        accent: Some(Accent {
            path: accent,
            right: glyph.advance / 2.0,
            up: if *accent == CEDILLA { 0.0 } else { above },
        }),
        ..glyph
    })
}

const CEDILLA: &str = "M1 4L2 -5C8 -5 10 -9 8 -13C6 -17 0 -18 -5 -16";

/// An accent, x from the middle of its letter, and the letters it stands on, each before the letter with it.
const ACCENTS: [(&str, &str); 8] = [
    ("D-11 66D11 66", "aäeëiïoöuüyÿAÄEËIÏOÖUÜ"),
    ("M-4 62L6 73", "aáeéiíoóuúyýAÁEÉIÍOÓUÚYÝcćnńsśzź"),
    ("M4 62L-6 73", "aàeèiìoòuùAÀEÈIÌOÒUÙ"),
    ("M-12 62L0 72L12 62", "aâeêiîoôuûAÂEÊIÎOÔUÛ"),
    ("M-13 63C-9 72 -3 70 0 67C3 64 9 62 13 71", "aãnñoõAÃNÑOÕ"),
    ("M0 76X6.5 69.5Y0 63X-6.5 69.5Y0 76Z", "aåuůAÅUŮ"),
    ("M-12 72L0 62L12 72", "cčeěrřsšzžCČEĚRŘSŠZŽ"),
    (CEDILLA, "cçsşCÇSŞ"),
];

/// Character, advance and path data.
#[rustfmt::skip]
const GLYPHS: &[(char, f64, &str)] = &[
    (' ', 30.0, ""),
    ('!', 29.0, "M14.5 69L14.5 25D14.5 5"),
    ('"', 38.0, "M12 69L12 49M26 69L26 49"),
    ('#', 72.0, "M29 67L20 6M54 67L45 6M10 47L65 47M7 26L62 26"),
    ('$', 60.0, "M48 57C43 61 37 62.5 30 62.5X12 50C12 41 19 39 30 36.5C42 34 49 31 49 23Y30 10C22 10 16 12 10 16M30 75L30 -3"),
    ('%', 86.0, "M21.5 69X35 53.5Y21.5 38X8 53.5Y21.5 69ZM64.5 35X78 19.5Y64.5 4X51 19.5Y64.5 35ZM65 69L21 4"),
    ('&', 73.0, "M63 35C61 16 48 4 29 4X8 20C8 31 19 36 28 41C36 46 40 49 40 57Y28 69X16 57C16 49 22 42 28 35L59 4"),
    ('\'', 24.0, "M12 69L12 49"),
    ('(', 36.0, "M28 76C13 58 13 9 28 -9"),
    (')', 36.0, "M8 76C23 58 23 9 8 -9"),
    ('*', 48.0, "M24 69L24 41M12 62L36 48M36 62L12 48"),
    ('+', 72.0, "M36 58L36 10M12 34L60 34"),
    (',', 29.0, "M15 6L10 -9"),
    ('-', 35.0, "M7 28L28 28"),
    ('.', 29.0, "D14.5 5"),
    ('/', 38.0, "M33 73L5 -6"),
    ('0', 60.0, "M30 69X52 36.5Y30 4X8 36.5Y30 69Z"),
    ('1', 60.0, "M14 59L32 69L32 4M14 4L50 4"),
    ('2', 60.0, "M10 60C15 66 22 69 29 69X49 52C49 44 45 38 37 30L9 4L51 4"),
    ('3', 60.0, "M10 63C15 67 21 69 28 69X47 53.5Y28 38L20 38M28 38X51 21Y28 4C20 4 14 6 8 10"),
    ('4', 60.0, "M41 4L41 69L7 21L54 21"),
    ('5', 60.0, "M47 69L15 69L13 38C18 41.5 23 43.5 29 43.5X51 24Y28 4C20 4 14 6.5 9 11"),
    ('6', 60.0, "M47 65C43 67.5 38 69 34 69X9 33L9 25Y30 4X51 24.5Y30 45X9 24.5"),
    ('7', 60.0, "M8 69L52 69L25 4"),
    ('8', 60.0, "M30 69X48.5 54Y30 39X11.5 54Y30 69ZM30 39X52 21.5Y30 4X8 21.5Y30 39Z"),
    ('9', 60.0, "M13 8C17 5.5 22 4 26 4X51 40L51 48Y30 69X9 48.5Y30 28X51 48.5"),
    (':', 30.0, "D15 5D15 43"),
    (';', 30.0, "D15 43M16 6L11 -9"),
    ('<', 72.0, "M60 54L12 34L60 14"),
    ('=', 72.0, "M12 43L60 43M12 25L60 25"),
    ('>', 72.0, "M12 54L60 34L12 14"),
    ('?', 53.0, "M8 63C13 67 18 69 25 69X44 54C44 46 40 42 34 37C28 32 24.5 30 24.5 22D24.5 5"),
    ('@', 98.0, "M66 49L66 28C66 20 70 16 76 16C86 16 90 26 90 35C90 55 74 70 50 70C26 70 8 53 8 29C8 4 26 -13 50 -13C60 -13 69 -10 75 -6M66 32Y49 50X32 32Y48 14X66 32"),
    ('A', 65.0, "M6 4L32.5 69L59 4M14.5 25L50.5 25"),
    ('B', 64.0, "M10 38L34 38X53 53.5Y34 69L10 69L10 4L35 4X57 21Y35 38L34 38"),
    ('C', 66.0, "M59 61C53 66 45 69 38 69X9 36.5Y38 4C45 4 53 7 59 12"),
    ('D', 73.0, "M10 69L10 4L28 4X64 36.5Y28 69Z"),
    ('E', 59.0, "M51 69L10 69L10 4L52 4M10 38L47 38"),
    ('F', 55.0, "M50 69L10 69L10 4M10 37L45 37"),
    ('G', 72.0, "M60 61C54 66 46 69 38 69X9 36.5Y38 4C47 4 55 7 61 12L61 34L42 34"),
    ('H', 71.0, "M10 69L10 4M61 69L61 4M10 38L61 38"),
    ('I', 29.0, "M14.5 69L14.5 4"),
    ('J', 39.0, "M29 69L29 13C29 -3 23 -8 9 -10"),
    ('K', 63.0, "M10 69L10 4M56 69L11 31M25 43L59 4"),
    ('L', 54.0, "M10 69L10 4L51 4"),
    ('M', 83.0, "M10 4L10 69L41.5 20L73 69L73 4"),
    ('N', 71.0, "M10 4L10 69L61 4L61 69"),
    ('O', 76.0, "M38 69X67 36.5Y38 4X9 36.5Y38 69Z"),
    ('P', 59.0, "M10 4L10 69L32 69X53 50.5Y32 32L10 32"),
    ('Q', 76.0, "M38 69X67 36.5Y38 4X9 36.5Y38 69ZM46 16L63 -5"),
    ('R', 65.0, "M10 4L10 69L33 69X54 51.5Y33 34L10 34M33 34L59 4"),
    ('S', 62.0, "M53 61C47 66.5 39 69 31.5 69X11 53C11 42.5 18 40 31 37C45 34 53 31 53 20.5Y31 4C22.5 4 14.5 6.5 8 12.5"),
    ('T', 58.0, "M4 69L54 69M29 69L29 4"),
    ('U', 70.0, "M9.5 69L9.5 28Y35 4X60.5 28L60.5 69"),
    ('V', 64.0, "M5 69L32 4L59 69"),
    ('W', 94.0, "M5 69L25.5 4L47 69L68.5 4L89 69"),
    ('X', 63.0, "M7 69L56 4M56 69L7 4"),
    ('Y', 59.0, "M4 69L29.5 36L55 69M29.5 36L29.5 4"),
    ('Z', 63.0, "M7 69L56 69L7 4L57 4"),
    ('[', 36.0, "M28 74L13 74L13 -9L28 -9"),
    ('\\', 38.0, "M5 73L33 -6"),
    (']', 36.0, "M8 74L23 74L23 -9L8 -9"),
    ('^', 72.0, "M14 46L36 69L58 46"),
    ('_', 50.0, "M1 -13L49 -13"),
    ('`', 40.0, "M24 61L14 72"),
    ('a', 56.0, "M11 43C16 47.5 21 50 27 50X47 34L47 4M47 28L28 28X9 16Y24 4C34 4 43 9 47 17"),
    ('b', 58.0, "M9 72L9 4M9 27Y29.5 50X50 27Y29.5 4X9 27Z"),
    ('c', 51.0, "M46 45C41 48.5 36 50 31 50X9 27Y31 4C36 4 41 5.5 46 9"),
    ('d', 58.0, "M49 72L49 4M49 27Y28.5 50X8 27Y28.5 4X49 27Z"),
    ('e', 57.0, "M8 28L49 28Y29 50X8 27Y31 4C38 4 43 6 48 9"),
    ('f', 34.0, "M33 71C31 71.7 29 72 27 72X14 58L14 4M3 50L30 50"),
    ('g', 58.0, "M49 50L49 1Y28 -17C21 -17 16 -15.5 11 -12.5M49 27Y28.5 50X8 27Y28.5 4X49 27Z"),
    ('h', 58.0, "M9 72L9 4M9 28Y30 50X49 31L49 4"),
    ('i', 25.0, "M12.5 50L12.5 4D12.5 68"),
    ('j', 25.0, "M12.5 50L12.5 -4Y1 -17L-2 -17D12.5 68"),
    ('k', 54.0, "M9 72L9 4M46 50L10 23M20 31L48 4"),
    ('l', 25.0, "M12.5 72L12.5 4"),
    ('m', 89.0, "M9 50L9 4M9 30Y27 50X44.5 33L44.5 4M44.5 30Y62.5 50X80 33L80 4"),
    ('n', 58.0, "M9 50L9 4M9 28Y30 50X49 31L49 4"),
    ('o', 57.0, "M28.5 50X49 27Y28.5 4X8 27Y28.5 50Z"),
    ('p', 58.0, "M9 50L9 -17M9 27Y29.5 50X50 27Y29.5 4X9 27Z"),
    ('q', 58.0, "M49 50L49 -17M49 27Y28.5 50X8 27Y28.5 4X49 27Z"),
    ('r', 39.0, "M9 50L9 4M9 26Y29 50C31.5 50 34 49.6 36 49"),
    ('s', 51.0, "M43 44.5C37 48.5 32 50 26 50X9.5 38.5C9.5 31 15 29.5 25 27.5C36 25.5 43.5 23.5 43.5 15.5Y25 4C18 4 12.5 6 7.5 9.5"),
    ('t', 37.0, "M14 65L14 16Y26 4L32 4M3 50L32 50"),
    ('u', 58.0, "M49 50L49 4M49 26Y28 4X9 23L9 50"),
    ('v', 53.0, "M5 50L26.5 4L48 50"),
    ('w', 76.0, "M5 50L20.5 4L38 50L55.5 4L71 50"),
    ('x', 52.0, "M6 50L46 4M46 50L6 4"),
    ('y', 53.0, "M5 50L27 4M48 50L25 -3C21 -13 17 -17 10 -17L6 -17"),
    ('z', 50.0, "M7 50L42 50L7 4L44 4"),
    ('{', 52.0, "M42 74L38 74X27 62L27 44C27 36 23 32.5 14 32.5C23 32.5 27 29 27 21L27 2Y38 -9L42 -9"),
    ('|', 33.0, "M16.5 76L16.5 -18"),
    ('}', 52.0, "M10 74L14 74X25 62L25 44C25 36 29 32.5 38 32.5C29 32.5 25 29 25 21L25 2Y14 -9L10 -9"),
    ('~', 72.0, "M12 29C18 42 28 40 36 34C44 28 54 26 60 39"),
    ('£', 60.0, "M50 61C46 66 41 69 35 69X17 52L17 4M8 4L52 4M8 36L42 36"),
    ('§', 52.0, "M42 62C37 67 32 69 26 69X11 57C11 42 42 42 42 27C42 19 36 16 30 14M10 -2C15 -7 20 -9 26 -9X41 3C41 18 10 18 10 33C10 41 16 44 22 46"),
    ('«', 60.0, "M28 47L11 28L28 9M49 47L32 28L49 9"),
    ('°', 44.0, "M22 71X33 60Y22 49X11 60Y22 71Z"),
    ('±', 72.0, "M36 63L36 21M12 42L60 42M12 6L60 6"),
    ('²', 40.0, "M9 64C12 68 15 69 19 69X30 59C30 54 28 51 23 46L9 34L31 34"),
    ('³', 40.0, "M9 65C12 68 15 69 18 69X29 60.5Y19 52L15 52M19 52X31 43Y18 34C14 34 11 35 8 37"),
    ('µ', 58.0, "M9 50L9 -17M49 50L49 4M49 26Y28 4X9 23"),
    ('·', 29.0, "D14.5 32"),
    ('»', 60.0, "M11 47L28 28L11 9M32 47L49 28L32 9"),
    ('×', 72.0, "M18 52L54 16M54 52L18 16"),
    ('÷', 72.0, "M12 34L60 34D36 53D36 15"),
    ('Ø', 76.0, "M38 69X67 36.5Y38 4X9 36.5Y38 69ZM14 0L62 73"),
    ('ø', 57.0, "M28.5 50X49 27Y28.5 4X8 27Y28.5 50ZM11 0L46 54"),
    ('Æ', 92.0, "M5 4L40 69L84 69M18 25L46 25M46 69L46 4L85 4M46 38L80 38"),
    ('æ', 90.0, "M10 43C15 47.5 20 50 26 50X45 34L45 28L27 28X8 16Y23 4C34 4 45 9 45 22M45 28L82 28Y63 50X45 30L45 24Y65 4C71 4 76 6 81 9"),
    ('ß', 60.0, "M9 4L9 53Y27 72X44 57C44 47 30 46 30 37C30 28 52 28 52 16Y36 4C31 4 26 5 22 8"),
    ('Δ', 68.0, "M7 4L34 69L61 4Z"),
    ('Σ', 60.0, "M51 69L10 69L32 37L9 4L53 4"),
    ('Ω', 76.0, "M10 4L27 4C15 12 9 24 9 38Y38 69X67 38C67 24 61 12 49 4L66 4"),
    ('α', 61.0, "M51 50C45 20 40 4 28 4X8 27Y28 50C40 50 43 34 46 18C48 8 50 4 56 4"),
    ('β', 60.0, "M9 -17L9 54Y28 72X45 56Y28 42L23 42M28 42X51 23Y29 4C20 4 13 8 9 14"),
    ('γ', 55.0, "M4 50C12 50 15 46 19 36L29 9M51 50L29 9C25 0 25 -6 25 -17"),
    ('δ', 57.0, "M46 68C42 71 36 72 31 72C22 72 17 67 17 61C17 50 49 48 49 25Y28.5 4X8 25Y28.5 46"),
    ('ε', 51.0, "M43 45C38 48.5 33 50 28 50X11 39Y25 28L31 28M25 28X9 16Y28 4C34 4 39 6 44 9"),
    ('η', 58.0, "M9 50L9 4M9 28Y30 50X49 31L49 -17"),
    ('θ', 57.0, "M28.5 72X48 38Y28.5 4X9 38Y28.5 72ZM9 38L48 38"),
    ('λ', 54.0, "M6 72C14 72 18 69 21 60L46 4M27 43L7 4"),
    ('π', 60.0, "M5 50L55 50M18 50L18 4M42 50L42 4"),
    ('ρ', 58.0, "M9 -17L9 27M9 27Y29.5 50X50 27Y29.5 4X9 27Z"),
    ('σ', 60.0, "M57 50L28.5 50X8 27Y28.5 4X49 27Y28.5 50"),
    ('τ', 52.0, "M5 50L47 50M24 50L24 16Y34 4L39 4"),
    ('φ', 72.0, "M27 50C14 48 8 39 8 27Y36 4X64 27Y48 50X36 35L36 -17"),
    ('ω', 78.0, "M18 50C11 44 8 36 8 26Y22 4X39 20L39 34M39 20Y56 4X70 26C70 36 67 44 60 50"),
    ('–', 56.0, "M6 28L50 28"),
    ('—', 96.0, "M5 28L91 28"),
    ('‘', 26.0, "M16 71L11 57"),
    ('’', 26.0, "M15 70L10 56"),
    ('“', 42.0, "M16 71L11 57M32 71L27 57"),
    ('”', 42.0, "M15 70L10 56M31 70L26 56"),
    ('…', 84.0, "D14 5D42 5D70 5"),
    ('€', 62.0, "M56 62C51 67 46 69 40 69X14 36.5Y40 4C46 4 51 6 56 11M4 43L44 43M4 30L42 30"),
    ('←', 84.0, "M76 32L10 32M30 50L10 32L30 14"),
    ('↑', 60.0, "M30 4L30 68M12 48L30 68L48 48"),
    ('→', 84.0, "M8 32L74 32M54 50L74 32L54 14"),
    ('↓', 60.0, "M30 68L30 4M12 24L30 4L48 24"),
    ('∑', 64.0, "M55 69L10 69L34 29L9 -11L57 -11"),
    ('−', 72.0, "M12 34L60 34"),
    ('√', 66.0, "M5 32L14 36L29 4L47 73L62 73"),
    ('∞', 84.0, "M42 31C35 40 30 46 22 46X8 31Y22 16C30 16 35 22 42 31C49 40 54 46 62 46X76 31Y62 16C54 16 49 22 42 31Z"),
    ('≈', 72.0, "M12 40C18 53 28 51 36 45C44 39 54 37 60 50M12 18C18 31 28 29 36 23C44 17 54 15 60 28"),
    ('≠', 72.0, "M12 43L60 43M12 25L60 25M48 58L24 10"),
    ('≤', 72.0, "M58 64L14 45L58 26M14 8L58 8"),
    ('≥', 72.0, "M14 64L58 45L14 26M14 8L58 8"),
];

#[cfg(test)]
mod tests {
    use super::super::path::parse;
    use super::*;

    #[test]
    fn every_glyph_parses_and_fits_its_advance() {
        for &(letter, advance, path) in GLYPHS {
            let paths = parse(path).unwrap_or_else(|| panic!("{letter}"));
            assert_eq!(paths.is_empty(), letter == ' ', "{letter}");
            for (x, y) in paths.iter().flat_map(|path| &path.points) {
                assert!(*x >= -2.0 && *x <= advance - 1.0, "{letter}: x {x}");
                assert!(*y >= -18.0 && *y <= 77.0, "{letter}: y {y}");
            }
        }
        for (accent, _) in ACCENTS {
            assert!(!parse(accent).unwrap().is_empty());
        }
    }

    #[test]
    fn printable_ascii_is_complete() {
        for letter in ' '..='~' {
            assert!(plain(letter).is_some(), "{letter}");
        }
        assert!(('0'..='9').all(|digit| glyph(digit).advance == 60.0));
    }

    #[test]
    fn accents_stand_on_their_letters() {
        for (_, letters) in ACCENTS {
            let letters: Vec<char> = letters.chars().collect();
            for pair in letters.chunks(2) {
                let glyph = glyph(pair[1]);
                let base = plain(pair[0]).unwrap();
                assert!(base.path.starts_with(glyph.path), "{}", pair[1]);
                assert!(glyph.accent.is_some());
            }
        }
        assert!(glyph('Ä').accent.unwrap().up > glyph('ä').accent.unwrap().up);
    }

    #[test]
    fn unknown_characters_are_a_box() {
        assert_eq!(glyph('漢').path, MISSING.path);
        assert_eq!(glyph('\u{1}').path, "");
    }
}
