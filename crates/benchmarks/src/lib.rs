//! Benchmarks of this machine: what packets cost in the router's engines and in features.
//!
//! They measure this program's own engines. Experiments compare datapaths and other programs. This crate
//! decides what is measured and returns the results; it neither parses arguments nor prints.

mod error;
pub mod features;
pub mod router;

pub use error::Error;
