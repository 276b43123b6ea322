//! Sizes, rates, durations and times: `quantity` and `timestamp` read what users write, `format` writes what they read.

pub mod format;
mod quantity;
mod timestamp;

pub use quantity::{Pps, Rate, Size, Span};
pub use timestamp::Timestamp;
