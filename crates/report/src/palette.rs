//! How an arm looks in every plot: in the colour that the record's header has for it, or grey. Markers and dashes
//! distinguish arms as well, for print and for readers who do not see the colours.

use crate::presentation::Colour;
use crate::record::Header;

/// The look of one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Class that sets `color`.
    pub(crate) class: &'static str,
    light: &'static str,
    dark: &'static str,
    pub(crate) marker: Marker,
    /// An SVG dash pattern; empty for a solid line.
    pub(crate) dash: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Diamond,
    Up,
    Down,
    Plus,
    Cross,
    Ring,
    Frame,
}

/// The looks that an experiment may choose.
const COLOURS: [(Colour, Look); 7] = [
    (
        Colour::Orange,
        look("arm-orange", "#b93d0a", "#fb923c", Marker::Circle, ""),
    ),
    (
        Colour::Amber,
        look("arm-amber", "#92680a", "#facc15", Marker::Square, "7 3"),
    ),
    (
        Colour::Pink,
        look("arm-pink", "#a3195b", "#f9a8d4", Marker::Diamond, "2 3"),
    ),
    (
        Colour::Brown,
        look("arm-brown", "#6f3313", "#d6a27a", Marker::Up, "9 3 2 3"),
    ),
    (
        Colour::Violet,
        look("arm-violet", "#7c3aed", "#c4b5fd", Marker::Plus, "5 2"),
    ),
    (
        Colour::Teal,
        look("arm-teal", "#0b7285", "#22d3ee", Marker::Down, "7 3"),
    ),
    (
        Colour::Blue,
        look("arm-blue", "#1d4ed8", "#7ab0ff", Marker::Cross, ""),
    ),
];

/// References and peers share one grey and differ by marker and dash.
pub(crate) const GREYS: [Look; 4] = [
    look("arm-grey", GREY.0, GREY.1, Marker::Ring, "1 3"),
    look("arm-grey", GREY.0, GREY.1, Marker::Frame, "4 4"),
    look("arm-grey", GREY.0, GREY.1, Marker::Plus, "8 4"),
    look("arm-grey", GREY.0, GREY.1, Marker::Diamond, "8 3 2 3"),
];

const GREY: (&str, &str) = ("#5b6472", "#a6afbd");

/// CPU states, in the order they stack, with the colours of a light and a dark page.
pub(crate) const STATES: [(&str, &str, &str); 8] = [
    ("user", "#a84b0b", "#f59e4c"),
    ("syscall", "#eab884", "#8a4f1d"),
    ("softirq net_rx", "#1e48b3", "#7ab0ff"),
    ("softirq net_tx", "#7fb0f5", "#2f5cc0"),
    ("softirq other", "#c6dcfb", "#1f3a78"),
    ("hardirq", "#394150", "#d5dae3"),
    ("kthread", "#99a2b0", "#6d7685"),
    ("other", "#d5dae3", "#424a58"),
];

/// Colours of figures on white that stand for no arm and no state.
const PAPER: [(&str, &str); 4] = [
    ("ink", "#1b1f27"),
    ("soft", "#5b6472"),
    ("flame", "#dfe6f1"),
    ("bpf", "#a9c8ff"),
];

/// Class of the points below a box, and how opaque they are.
pub(crate) const POINTS: (&str, f64) = ("points", 0.55);

const fn look(
    class: &'static str,
    light: &'static str,
    dark: &'static str,
    marker: Marker,
    dash: &'static str,
) -> Look {
    Look {
        class,
        light,
        dark,
        marker,
        dash,
    }
}

/// The look of an arm of a record. A grey one keeps its marker in all figures of the record.
pub(crate) fn look_of(arm: &str, header: &Header) -> Look {
    let arm = arm.trim_end_matches('\'');
    let colours = &header.presentation.colours;
    let colour = colours.get(arm);
    if let Some((_, look)) = COLOURS.iter().find(|(known, _)| Some(known) == colour) {
        return *look;
    }
    let mut greys = header.arms.iter().filter(|arm| !colours.contains_key(*arm));
    let grey = greys.position(|grey| grey == arm).unwrap_or(0);
    GREYS[grey % GREYS.len()]
}

/// Style rules of every colour, for a light or a dark page.
pub(crate) fn rules(dark: bool) -> String {
    let pick = |light: &'static str, night: &'static str| if dark { night } else { light };
    let arms = COLOURS.iter().map(|(_, look)| *look).chain([GREYS[0]]);
    let mut rules: String = arms
        .map(|look| format!(".{}{{color:{}}}", look.class, pick(look.light, look.dark)))
        .collect();
    for (at, (_, light, night)) in STATES.iter().enumerate() {
        rules.push_str(&format!(".state-{at}{{color:{}}}", pick(light, night)));
    }
    rules
}

/// Style rules of every colour of a figure that stands alone on white.
pub(crate) fn standalone_rules() -> String {
    let paper = PAPER.iter();
    let paper: String = paper
        .map(|(class, colour)| format!(".{class}{{color:{colour}}}"))
        .collect();
    paper + &rules(false)
}

/// Red, green and blue of a class where a figure stands alone; those of ink for a class without a colour.
pub(crate) fn light(class: &str) -> [u8; 3] {
    let arms = COLOURS.iter().map(|(_, look)| look).chain(&GREYS);
    let arms = arms.map(|look| (look.class, look.light));
    let state = class.strip_prefix("state-").and_then(|at| {
        let (_, light, _) = STATES.get(at.parse::<usize>().ok()?)?;
        Some(*light)
    });
    let named = || {
        let mut colours = PAPER.into_iter().chain(arms);
        colours.find(|(known, _)| *known == class)
    };
    let colour = state.or_else(|| named().map(|(_, colour)| colour));
    channels(colour.unwrap_or(PAPER[0].1))
}

/// The bytes of a colour such as `#1b1f27`.
fn channels(colour: &str) -> [u8; 3] {
    let number = u32::from_str_radix(&colour[1..], 16).unwrap_or_default();
    let [_, red, green, blue] = number.to_be_bytes();
    [red, green, blue]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_colours_of_their_rules() {
        assert_eq!(light("ink"), [0x1b, 0x1f, 0x27]);
        assert_eq!(light("arm-teal"), [0x0b, 0x72, 0x85]);
        assert_eq!(light("arm-grey"), [0x5b, 0x64, 0x72]);
        assert_eq!(light("state-7"), [0xd5, 0xda, 0xe3]);
        assert_eq!(light("unknown"), light("ink"));
        let rules = standalone_rules();
        assert!(rules.starts_with(".ink{color:#1b1f27}.soft"), "{rules}");
    }
}
