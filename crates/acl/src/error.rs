//! Why rules were not taken.

use std::io;

/// An error in rules, and what to do if that is not obvious.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error(
        "the rules come to {boxes} boxes, a box for each run of protocol numbers of a rule, where a list holds {most}: leave rules out, or name whole protocols"
    )]
    TooMany { boxes: usize, most: usize },
    #[error("no memory for {bytes} bytes of classifier: {cause}")]
    Memory { bytes: usize, cause: io::Error },
    #[error("the rules do not fit in the {bytes} bytes that a list of this length may take")]
    Full { bytes: usize },
    #[error("rule number {0} is taken: erase it first")]
    Taken(u32),
    #[error("there is no rule number {0}")]
    Absent(u32),
    #[error("reading: {0}")]
    Read(#[from] io::Error),
}
