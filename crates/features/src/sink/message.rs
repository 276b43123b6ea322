//! Rows as messages of their own: JSON, and what rows of one flow share.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};

use super::Error;

/// A row as a JSON object, with the flow's id where the schema has one.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) key: Option<String>,
    pub(super) body: Vec<u8>,
}

pub(super) fn messages(batch: &RecordBatch) -> Result<Vec<Message>, Error> {
    let mut lines = arrow_json::LineDelimitedWriter::new(Vec::new());
    lines.write(batch).map_err(Error::batch)?;
    let lines = lines.into_inner();
    let bodies = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let messages = bodies.enumerate().map(|(row, body)| Message {
        key: key(batch, row),
        body: body.to_vec(),
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
