//! From records to summary.json, terminal tables, HTML, SVG and PNG. Nothing here measures.

pub mod analysis;
pub mod journal;
pub mod record;
mod summary;
pub mod terminal;
mod words;

pub use analysis::Analysis;
pub use journal::{Record, Writer};
pub use summary::{Outcome, Summary};
