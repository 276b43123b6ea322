//! Sizes, rates and durations: `quantity` reads what users write, `format` writes what they read.

pub mod format;
mod quantity;

pub use quantity::{Pps, Rate, Size, Span};
