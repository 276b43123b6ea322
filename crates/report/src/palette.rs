//! How an arm looks, in every plot of every job: userspace warm, kernel cool, what lies between
//! violet, references and peers grey. Told apart by marker and dash as well, for print and for
//! readers who do not see the colours.

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

/// Arms that have a colour of their own.
const KNOWN: [(&str, Look); 7] = [
    (
        "recv",
        look("arm-recv", "#b93d0a", "#fb923c", Marker::Circle, ""),
    ),
    (
        "mmsg",
        look("arm-mmsg", "#92680a", "#facc15", Marker::Square, "7 3"),
    ),
    (
        "gso",
        look("arm-gso", "#a3195b", "#f9a8d4", Marker::Diamond, "2 3"),
    ),
    (
        "busy",
        look("arm-busy", "#6f3313", "#d6a27a", Marker::Up, "9 3 2 3"),
    ),
    (
        "af-xdp",
        look("arm-af-xdp", "#7c3aed", "#c4b5fd", Marker::Plus, "5 2"),
    ),
    (
        "tc",
        look("arm-tc", "#0b7285", "#22d3ee", Marker::Down, "7 3"),
    ),
    (
        "xdp",
        look("arm-xdp", "#1d4ed8", "#7ab0ff", Marker::Cross, ""),
    ),
];

/// References and peers share one grey and differ by marker and dash.
const GREYS: [Look; 4] = [
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

/// The look of an arm; `arms` are all of the experiment, so that each grey keeps its marker.
pub(crate) fn look_of(arm: &str, arms: &[String]) -> Look {
    let arm = arm.trim_end_matches('\'');
    if let Some((_, look)) = KNOWN.iter().find(|(name, _)| *name == arm) {
        return *look;
    }
    let grey = arms
        .iter()
        .filter(|name| !KNOWN.iter().any(|(known, _)| known == name))
        .position(|name| name == arm)
        .unwrap_or(0);
    GREYS[grey % GREYS.len()]
}

/// Style rules of every colour, for a light or a dark page.
pub(crate) fn rules(dark: bool) -> String {
    let pick = |light: &'static str, night: &'static str| if dark { night } else { light };
    let arms = KNOWN.iter().map(|(_, look)| *look).chain([GREYS[0]]);
    let mut rules: String = arms
        .map(|look| format!(".{}{{color:{}}}", look.class, pick(look.light, look.dark)))
        .collect();
    for (at, (_, light, night)) in STATES.iter().enumerate() {
        rules.push_str(&format!(".state-{at}{{color:{}}}", pick(light, night)));
    }
    rules
}
