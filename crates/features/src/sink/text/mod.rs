//! Rows as text: CSV, and one JSON object per line. The sinks decide where the text goes.
//!
//! Both formats support booleans, integers, floats, text, binary data, timestamps and dictionaries of
//! these. JSON also supports lists. For any other type the caller gets an error that names the column.

mod csv;
mod flat;
mod json;
mod number;
mod time;
mod values;

#[cfg(test)]
mod tests;

pub(super) use csv::{header as csv_header, rows as csv_rows};
pub use json::json_lines;
pub(super) use json::{Objects, check as check_json};
