//! From records to summary.json, terminal tables, HTML, SVG, PNG and Parquet. Nothing here measures.

mod advice;
mod agreement;
pub mod analysis;
pub mod columns;
pub mod command;
mod cpu;
mod crossing;
pub mod figures;
mod html;
mod identities;
pub mod journal;
mod line;
pub mod pair;
mod palette;
mod png;
pub mod presentation;
pub mod record;
pub mod second_run;
pub mod stacks;
mod summary;
mod svg;
pub mod terminal;
mod values;
mod words;

pub use analysis::Analysis;
pub use html::{DemoPart, demo, demo_answer, page};
pub use journal::{Record, Writer};
pub use png::{Error as PngError, png};
pub use summary::{Flags, Outcome, RunOutcome, Summary};
pub use svg::Figure;
