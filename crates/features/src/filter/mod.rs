//! Selects the packets that make rows: expressions in the language of tcpdump, compiled to one program that userspace
//! and the kernel evaluate alike, and sampling of the packets that pass.
//!
//! A filter sees dissected packets, after later fragments got their ports. VLAN tags, MPLS labels and extension headers
//! are already skipped, and frames without a packet never reach it.

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

/// An error in an expression, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// In characters; the first is 1.
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
