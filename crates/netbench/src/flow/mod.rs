//! One flow of a test at one end: what it sends and receives, and what of that is counted.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod payload;
pub(crate) mod stream;
mod totals;

pub(crate) use totals::{Totals, Window};
