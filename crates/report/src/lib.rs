//! From records to summary.json, terminal tables, HTML, SVG and PNG.

pub mod record;
