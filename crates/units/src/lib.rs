//! Sizes, rates, durations, times and addresses: `quantity`, `timestamp` and `address` read what users write, `format`
//! writes what they read.

mod address;
pub mod format;
mod quantity;
mod timestamp;

pub use address::socket_address;
pub use quantity::{ByteRate, Pps, Rate, Size, Span};
pub use timestamp::Timestamp;
