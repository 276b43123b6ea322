//! The shapes of figures. SVG and PNG are both drawn from these.

use std::fmt::{self, Display, Formatter};

use crate::palette::Marker;

/// A place in a figure, right and down from its top left corner.
pub(crate) type Place = (f64, f64);

/// A part of a figure's body, in drawing order.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    /// Begins a group whose shapes have the colour of these classes. Groups are not nested.
    Open(String),
    Close,
    /// The tooltip of the group.
    Hint(String),
    Line(Place, Place, Stroke),
    Path(Vec<Place>, Stroke),
    Rect {
        corner: Place,
        size: (f64, f64),
        fill: Fill,
    },
    Text {
        at: Place,
        anchor: Anchor,
        words: String,
    },
    Marker(Marker, Place),
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stroke {
    pub(crate) width: f64,
    pub(crate) opacity: Option<f64>,
    /// An SVG dash pattern; empty for a solid line.
    pub(crate) dash: Option<&'static str>,
}

impl Stroke {
    pub(crate) const fn new(width: f64) -> Self {
        Self {
            width,
            opacity: None,
            dash: None,
        }
    }

    pub(crate) const fn opacity(self, opacity: f64) -> Self {
        Self {
            opacity: Some(opacity),
            ..self
        }
    }

    pub(crate) const fn dash(self, dash: &'static str) -> Self {
        Self {
            dash: Some(dash),
            ..self
        }
    }
}

impl Display for Stroke {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "stroke-width=\"{}\"", self.width)?;
        if let Some(opacity) = self.opacity {
            write!(out, " stroke-opacity=\"{opacity}\"")?;
        }
        match self.dash {
            None => Ok(()),
            Some("") => out.write_str(" "),
            Some(dash) => write!(out, " stroke-dasharray=\"{dash}\""),
        }
    }
}

/// How an area is filled, and how wide the line around it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) opacity: Option<f64>,
    pub(crate) outline: Option<f64>,
}

impl Fill {
    pub(crate) const SOLID: Self = Self {
        opacity: None,
        outline: None,
    };

    pub(crate) const fn faint(opacity: f64) -> Self {
        Self {
            opacity: Some(opacity),
            ..Self::SOLID
        }
    }

    pub(crate) const fn outlined(self, width: f64) -> Self {
        Self {
            outline: Some(width),
            ..self
        }
    }
}

impl Display for Fill {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("fill=\"currentColor\"")?;
        if let Some(opacity) = self.opacity {
            write!(out, " fill-opacity=\"{opacity}\"")?;
        }
        if let Some(width) = self.outline {
            write!(out, " stroke=\"currentColor\" stroke-width=\"{width}\"")?;
        }
        Ok(())
    }
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Display for Anchor {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        })
    }
}

/// The outline of a marker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outline {
    /// With this radius.
    Circle(f64),
    /// Path data from the marker's place, in relative commands.
    Path(&'static str),
}

impl Marker {
    /// The outline, and the width it is stroked with; none where it is filled. About 7 units wide.
    pub(crate) const fn shape(self) -> (Outline, Option<f64>) {
        match self {
            Self::Circle => (Outline::Circle(3.3), None),
            Self::Ring => (Outline::Circle(2.9), Some(1.5)),
            Self::Square => (Outline::Path("m-3 -3h6v6h-6z"), None),
            Self::Frame => (Outline::Path("m-2.7 -2.7h5.4v5.4h-5.4z"), Some(1.7)),
            Self::Diamond => (Outline::Path("m0 -4l4 4l-4 4l-4 -4z"), None),
            Self::Up => (Outline::Path("m0 -4l3.8 7h-7.6z"), None),
            Self::Down => (Outline::Path("m0 4l3.8 -7h-7.6z"), None),
            Self::Plus => (Outline::Path("m-3.7 0h7.4m-3.7 -3.7v7.4"), Some(1.7)),
            Self::Cross => (Outline::Path("m-3 -3l6 6m0 -6l-6 6"), Some(1.7)),
        }
    }
}
