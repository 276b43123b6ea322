//! Rows as comma-separated values (RFC 4180, except that a line ends in a newline alone). A null is an
//! empty field, and each item of a fixed-size list is a field.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::Schema;

use super::flat;
use super::number::csv_float;
use super::values::{Refusal, Syntax, Values, columns};
use crate::sink::Error;

/// The line with the names of the fields, or an error for a column of an unsupported type.
pub(in crate::sink) fn header(schema: &Schema) -> Result<Vec<u8>, Error> {
    let none = RecordBatch::new_empty(schema.clone().into());
    columns::<Csv, _>(&none, |_, array| Column::new(array))?;
    let mut line = Vec::new();
    let names = schema.fields().iter().flat_map(|field| flat::names(field));
    for (index, name) in names.enumerate() {
        if index > 0 {
            line.push(b',');
        }
        Csv::text(&name, &mut line);
    }
    end(0, &mut line);
    Ok(line)
}

/// The lines of a batch, without a header.
pub(in crate::sink) fn rows(batch: &RecordBatch) -> Result<Vec<u8>, Error> {
    let mut columns = columns::<Csv, _>(batch, |_, array| Column::new(array))?;
    let mut lines = Vec::new();
    for row in 0..batch.num_rows() {
        let start = lines.len();
        let mut is_first = true;
        for column in &mut columns {
            column.write(row, &mut is_first, &mut lines);
        }
        end(start, &mut lines);
    }
    Ok(lines)
}

/// Ends a line. A single empty field is quoted, because readers skip empty lines.
fn end(start: usize, lines: &mut Vec<u8>) {
    if lines.len() == start {
        lines.extend_from_slice(b"\"\"");
    }
    lines.push(b'\n');
}

/// A column of a batch: one field per row, or one for each item of a list.
struct Column<'a> {
    values: Values<'a>,
    /// The lists and their length. A list may be null as a whole.
    lists: Option<(&'a dyn Array, usize)>,
}

impl<'a> Column<'a> {
    fn new(array: &'a dyn Array) -> Result<Self, Refusal> {
        let Some(list) = array.as_fixed_size_list_opt() else {
            return Ok(Self {
                values: Values::scalar::<Csv>(array)?,
                lists: None,
            });
        };
        Ok(Self {
            values: Values::scalar::<Csv>(list.values().as_ref())?,
            lists: Some((array, usize::try_from(list.value_length()).unwrap_or(0))),
        })
    }

    fn write(&mut self, row: usize, is_first: &mut bool, out: &mut Vec<u8>) {
        let (is_null, items) = match self.lists {
            Some((lists, size)) => (lists.is_null(row), row * size..(row + 1) * size),
            None => (false, row..row + 1),
        };
        for item in items {
            if !std::mem::take(is_first) {
                out.push(b',');
            }
            if !is_null && !self.values.is_null(item) {
                self.values.encode(item, out);
            }
        }
    }
}

/// The syntax of CSV.
struct Csv;

impl Syntax for Csv {
    const NAME: &'static str = "CSV";

    fn float32(value: f32, out: &mut Vec<u8>) {
        csv_float(value, out);
    }

    fn float64(value: f64, out: &mut Vec<u8>) {
        csv_float(value, out);
    }

    fn text(value: &str, out: &mut Vec<u8>) {
        let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
        if !value.as_bytes().iter().any(special) {
            out.extend_from_slice(value.as_bytes());
            return;
        }
        out.push(b'"');
        for byte in value.bytes() {
            if byte == b'"' {
                out.push(b'"');
            }
            out.push(byte);
        }
        out.push(b'"');
    }

    fn plain(write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        write(out);
    }
}
