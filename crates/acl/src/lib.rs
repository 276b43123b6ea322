//! Exact five-tuple packet classification: of a list of rules, the first that matches.
//!
//! [`Classifier`] holds a list that does not change, [`Live`] one that does while others look up.
//! Callers decide what a match means, and where rules come from.

mod address;
pub mod arena;
mod array;
mod build;
mod build_budget;
pub mod classbench;
mod classifier;
mod count;
pub mod counters;
mod cut;
mod error;
pub mod generate;
mod line;
pub mod live;
mod lookup;
mod plan;
mod region;
mod rule;
mod sample;
mod split;
mod table;

pub use address::Address;
pub use build::{BuildReport, Options, fits};
pub use classifier::Classifier;
pub use error::Error;
pub use live::{Live, Reader};
pub use lookup::BATCH;
pub use prefix::Prefix;
pub use rule::{ANY_PORT, Action, Key, Key4, Key6, NONE, Protocol, Rule, Rule4, Rule6, linear};
pub use sys::simd::Simd;
