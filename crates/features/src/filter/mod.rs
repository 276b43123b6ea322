//! Which packets make rows: expressions in the language of tcpdump, compiled to one program that userspace
//! and the kernel run alike, and sampling of what passes.
//!
//! A filter is asked about packets that were dissected, after later fragments got their ports: tags, labels
//! and extension headers are behind it, and what is no packet never comes to it.

mod compile;
mod expression;
mod limit;
mod networks;
mod operand;
mod parse;
mod program;
mod sample;
mod selection;
mod token;

pub(crate) use expression::Network;
pub(crate) use program::{Check, End, Field, Program, Step, Target};
pub use sample::{Rate, Unit};
pub use selection::{Fate, Rules, Selection, Tier, WrongRule};

use std::fmt;

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// In characters from the expression's start, which is 1.
    pub column: usize,
    pub what: String,
}

impl Error {
    fn new(column: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { column, what }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.what)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
