//! Rows as individual JSON messages, with the key that rows of one flow share.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};

use super::Error;
use super::text::Objects;

/// A row as a JSON object, with the flow's id where the schema has one.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) key: Option<String>,
    pub(super) body: Vec<u8>,
}

pub(super) fn messages(batch: &RecordBatch) -> Result<Vec<Message>, Error> {
    let mut objects = Objects::new(batch)?;
    let messages = (0..batch.num_rows()).map(|row| {
        let mut body = Vec::new();
        objects.write(row, &mut body);
        let key = key(batch, row);
        Message { key, body }
    });
    Ok(messages.collect())
}

fn key(batch: &RecordBatch, row: usize) -> Option<String> {
    let column = ["flow_id", "flowId"]
        .iter()
        .find_map(|name| batch.column_by_name(name))?;
    let ids = column.as_primitive_opt::<UInt64Type>()?;
    ids.is_valid(row).then(|| ids.value(row).to_string())
}
