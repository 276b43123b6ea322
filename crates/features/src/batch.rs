//! Converts rows to Arrow: record batches, and a schema with units and definitions in its metadata.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{
    ArrowError, DataType, Field, FieldRef, Schema as ArrowSchema, SchemaRef, TimeUnit,
};

use crate::column::{Column, Value};
use crate::column_builder::{ColumnBuilder, builder};
use crate::flow::Limits;

/// UTC as an offset, because a zone name requires a time-zone database.
const UTC: &str = "+00:00";

/// The key of a field's IPFIX element in its metadata.
pub(crate) const ELEMENT: &str = "ipfix";
/// The metadata key of a bit list's header fields and their widths in bits: `ipv4_ver:4,ipv4_hl:4`.
pub(crate) const FIELDS: &str = "fields";

/// Makes record batches of one schema.
#[derive(Debug)]
pub struct Batcher<R: 'static> {
    columns: Vec<&'static Column<R>>,
    schema: SchemaRef,
    /// The limits that determine the lengths of lists.
    limits: Limits,
}

impl<R> Batcher<R> {
    /// Omits the lists of first packets if `limits.steps` is 0.
    pub fn new(name: &str, groups: &'static [&'static [Column<R>]], limits: &Limits) -> Self {
        let kept = |column: &&Column<R>| limits.steps > 0 || !column.value.is_list();
        let columns: Vec<_> = groups.iter().copied().flatten().filter(kept).collect();
        let fields: Vec<Field> = columns
            .iter()
            .map(|column| field(name, column, limits))
            .collect();
        let metadata = HashMap::from([("lowroad.schema".to_owned(), name.to_owned())]);
        Self {
            columns,
            schema: Arc::new(ArrowSchema::new_with_metadata(fields, metadata)),
            limits: *limits,
        }
    }

    /// Adds metadata that applies to all rows.
    pub(crate) fn with_metadata(self, more: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut schema = ArrowSchema::clone(&self.schema);
        schema.metadata.extend(more);
        Self {
            schema: Arc::new(schema),
            ..self
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Converts these rows to one batch.
    pub fn batch<H: Borrow<R>>(&self, rows: &[H]) -> Result<RecordBatch, ArrowError> {
        let mut columns = self.columns(rows.len());
        columns.add(rows);
        columns.take()
    }

    /// Columns with capacity for about this many rows.
    pub(crate) fn columns(&self, rows: usize) -> Columns<R> {
        let columns = self.columns.iter();
        let builders = columns.map(|column| {
            let of = data_type(&column.value, &self.limits);
            builder(&column.value, of, &self.limits, rows)
        });
        Columns {
            builders: builders.collect(),
            schema: Arc::clone(&self.schema),
            rows: 0,
        }
    }
}

/// The columns of a batch that is being built.
pub(crate) struct Columns<R> {
    builders: Vec<Box<dyn ColumnBuilder<R>>>,
    schema: SchemaRef,
    rows: usize,
}

impl<R> Columns<R> {
    /// Adds rows. Each column reads all of them before the next column does, so the rows should be few enough to
    /// stay in the cache.
    pub(crate) fn add<H: Borrow<R>>(&mut self, rows: &[H]) {
        let rows: Vec<&R> = rows.iter().map(Borrow::borrow).collect();
        for builder in &mut self.builders {
            builder.add(&rows);
        }
        self.rows += rows.len();
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the batch and empties the columns.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        let arrays = self.builders.iter_mut().map(|builder| builder.take());
        let arrays = arrays.collect::<Result<_, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}

fn field<R>(schema: &str, column: &Column<R>, limits: &Limits) -> Field {
    let mut metadata = HashMap::from([
        ("unit".to_owned(), column.unit.name().to_owned()),
        ("definition".to_owned(), column.definition.to_owned()),
        ("id".to_owned(), format!("{schema}/{}", column.name)),
    ]);
    if let Some(element) = column.element {
        metadata.insert(ELEMENT.to_owned(), element.to_string());
    }
    if let Value::Bits(bits) = &column.value {
        let fields = bits.fields(limits.payload_bytes);
        let fields: Vec<String> = fields
            .map(|(name, bits)| format!("{name}:{bits}"))
            .collect();
        metadata.insert(FIELDS.to_owned(), fields.join(","));
    }
    Field::new(column.name, data_type(&column.value, limits), true).with_metadata(metadata)
}

fn data_type<R>(value: &Value<R>, limits: &Limits) -> DataType {
    let steps = limits.steps;
    match value {
        Value::U8(_) => DataType::UInt8,
        Value::U16(_) => DataType::UInt16,
        Value::U32(_) => DataType::UInt32,
        Value::U64(_) => DataType::UInt64,
        Value::I64(_) => DataType::Int64,
        Value::F64(_) => DataType::Float64,
        Value::Bool(_) => DataType::Boolean,
        Value::Time(_) => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
        Value::Text(_) => DataType::Utf8,
        Value::I32List(_) => list(DataType::Int32, steps),
        Value::U64List(_) => list(DataType::UInt64, steps),
        Value::Bits(bits) => DataType::FixedSizeList(bit(), size(bits.width(limits.payload_bytes))),
    }
}

/// A bit of a packet. It is never null: -1 stands for an absent bit.
fn bit() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Int8, false))
}

fn list(of: DataType, items: usize) -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new_list_field(of, true)), size(items))
}

fn size(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}
