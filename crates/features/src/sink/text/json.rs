//! Rows as JSON objects. A column that is null is left out of its row's object.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ListLikeArray, RecordBatch};
use arrow_schema::{DataType, Schema};

use super::number::{json_float32, json_float64};
use super::values::{Encode, Refusal, Syntax, Values, columns};
use crate::sink::Error;

/// Writes the rows of a batch as JSON objects.
pub(in crate::sink) struct Objects<'a> {
    members: Vec<Member<'a>>,
}

/// One column.
struct Member<'a> {
    /// `,"name":`
    name: Vec<u8>,
    values: Values<'a>,
}

/// Writes each row of a batch as a JSON object on its own line.
///
/// # Errors
///
/// A column has a type that JSON output does not support, or a timestamp outside the calendar.
pub fn json_lines(batch: &RecordBatch) -> Result<Vec<u8>, Error> {
    let mut objects = Objects::new(batch)?;
    let mut lines = Vec::new();
    for row in 0..batch.num_rows() {
        objects.write(row, &mut lines);
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Returns an error for a column of a type that JSON output does not support.
pub(in crate::sink) fn check(schema: &Schema) -> Result<(), Error> {
    let none = RecordBatch::new_empty(schema.clone().into());
    Objects::new(&none).map(|_| ())
}

impl<'a> Objects<'a> {
    pub(in crate::sink) fn new(batch: &'a RecordBatch) -> Result<Self, Error> {
        let members = columns::<Json, _>(batch, |field, array| {
            let mut name = vec![b','];
            Json::text(field.name(), &mut name);
            name.push(b':');
            let values = values(array)?;
            Ok(Member { name, values })
        })?;
        Ok(Self { members })
    }

    /// Appends the object of one row.
    pub(in crate::sink) fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut comma = 1;
        for Member { name, values } in &mut self.members {
            if !values.is_null(row) {
                out.extend_from_slice(&name[comma..]);
                values.encode(row, out);
                comma = 0;
            }
        }
        out.push(b'}');
    }
}

/// The syntax of JSON.
struct Json;

impl Syntax for Json {
    const NAME: &'static str = "JSON";

    fn float32(value: f32, out: &mut Vec<u8>) {
        json_float32(value, out);
    }

    fn float64(value: f64, out: &mut Vec<u8>) {
        json_float64(value, out);
    }

    fn text(value: &str, out: &mut Vec<u8>) {
        let written = serde_json::to_writer(out, value);
        debug_assert!(written.is_ok(), "a vector accepts every write");
    }

    fn plain(write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        out.push(b'"');
        write(out);
        out.push(b'"');
    }
}

fn values(array: &dyn Array) -> Result<Values<'_>, Refusal> {
    let encode = match array.data_type() {
        DataType::List(_) => list(array.as_list::<i32>())?,
        DataType::LargeList(_) => list(array.as_list::<i64>())?,
        DataType::FixedSizeList(..) => list(array.as_fixed_size_list())?,
        _ => return Values::scalar::<Json>(array),
    };
    Ok(Values::new(encode, array))
}

fn list<L: ListLikeArray>(array: &L) -> Result<Encode<'_>, Refusal> {
    let mut items = values(array.values().as_ref())?;
    Ok(Box::new(move |row, out| {
        let Range { start, end } = array.element_range(row);
        out.push(b'[');
        for item in start..end {
            if item > start {
                out.push(b',');
            }
            if items.is_null(item) {
                out.extend_from_slice(b"null");
            } else {
                items.encode(item, out);
            }
        }
        out.push(b']');
    }))
}
