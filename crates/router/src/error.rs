//! What is wrong with a table or a rule set, and where.

use std::fmt::{self, Display};
use std::io;

use datapath::{Classify, ErrorClass};

use crate::budget::Exhaustion;

/// No message shows more characters of a file's content, which may be one long word.
const MAX_LEN: usize = 1000;

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Counted from 1.
    Line(u64),
    /// Of the file after unpacking, counted from 0.
    Byte(u64),
    /// Entries of a JSON array, counted from 1.
    Entry(u64),
    /// Not one place in it.
    File,
}

/// A file that cannot be taken, and the first reason.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {what}", .place.within(.file))]
    Input {
        file: String,
        place: Place,
        what: String,
    },
    #[error("{file}: {cause}")]
    Read { file: String, cause: io::Error },
    /// More than fits the numbers that lookup has for next hops.
    #[error(
        "{targets} different next hops in one address family, where lookup has numbers for {limit}: import fewer tables, or spread the routes over stand-ins"
    )]
    NextHops { targets: usize, limit: u16 },
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        ErrorClass::Input
    }
}

/// An [`Error`] of a file whose name the caller knows.
#[derive(Debug)]
pub(crate) enum Fault {
    Input { place: Place, what: String },
    Read(io::Error),
}

impl Fault {
    pub(crate) fn new(place: Place, what: impl Into<String>) -> Self {
        let mut what = what.into();
        if let Some((end, _)) = what.char_indices().nth(MAX_LEN) {
            what.truncate(end);
            what.push_str(" ...");
        }
        Self::Input { place, what }
    }

    /// Of reading: the place counts where the file costs too much.
    pub(crate) fn reading(place: Place, cause: io::Error) -> Self {
        let exhausted = cause.get_ref().and_then(|cause| cause.downcast_ref());
        match exhausted {
            Some(exhausted) => Self::new(place, Exhaustion::to_string(exhausted)),
            None => Self::Read(cause),
        }
    }

    pub(crate) fn line(line: u64, what: impl Into<String>) -> Self {
        Self::new(Place::Line(line), what)
    }

    /// Of a reader of JSON, which knows its line.
    pub(crate) fn json(error: serde_json::Error) -> Self {
        if error.is_io() {
            return Self::Read(error.into());
        }
        let line = error.line() as u64;
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
        let place = if line == 0 {
            Place::File
        } else {
            Place::Line(line)
        };
        Self::new(place, what)
    }

    pub(crate) fn of(self, file: &str) -> Error {
        let file = file.to_owned();
        match self {
            Self::Input { place, what } => Error::Input { file, place, what },
            Self::Read(cause) => Error::Read { file, cause },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(cause: io::Error) -> Self {
        Self::Read(cause)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
            Self::Entry(entry) => write!(f, "entry {entry}"),
            Self::File => write!(f, "the file"),
        }
    }
}

impl Place {
    /// With the file's name before it, as editors and people look for it.
    pub fn within(self, file: &str) -> String {
        match self {
            Self::Line(line) => format!("{file}:{line}"),
            Self::Byte(byte) => format!("{file} at byte {byte}"),
            Self::Entry(entry) => format!("{file} at entry {entry}"),
            Self::File => file.to_owned(),
        }
    }
}
