//! Why rules were not taken.

use std::io;

/// What is wrong with rules, and what to do where that is not obvious.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a prefix length is at most {most}, not {length}")]
    PrefixLength { length: u8, most: u8 },
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("{rules} rules are more than {most}: split the list")]
    TooMany { rules: usize, most: usize },
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
