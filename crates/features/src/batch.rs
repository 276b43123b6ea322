//! Rows to Arrow: a schema with units and definitions in its metadata, and record batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeListBuilder, Int32Builder, PrimitiveBuilder, StringBuilder, UInt64Builder,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, Float64Array, Int64Array, RecordBatch,
    TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};

use crate::column::{Column, Each, Value};

/// As an offset, because names need a database of time zones.
const UTC: &str = "+00:00";

/// Under which a field's metadata holds its IPFIX element.
pub(crate) const ELEMENT: &str = "ipfix";

/// Makes record batches of one schema.
#[derive(Debug)]
pub struct Batcher<R: 'static> {
    columns: Vec<&'static Column<R>>,
    schema: SchemaRef,
    /// Length of the lists of first packets.
    steps: usize,
}

impl<R> Batcher<R> {
    /// `steps` is the length of the lists of first packets; without any, the lists are left out.
    pub fn new(name: &str, groups: &'static [&'static [Column<R>]], steps: usize) -> Self {
        let kept = |column: &&Column<R>| steps > 0 || !column.value.is_list();
        let columns: Vec<_> = groups.iter().copied().flatten().filter(kept).collect();
        let fields: Vec<Field> = columns
            .iter()
            .map(|column| field(name, column, steps))
            .collect();
        let metadata = HashMap::from([("lowroad.schema".to_owned(), name.to_owned())]);
        Self {
            columns,
            schema: Arc::new(ArrowSchema::new_with_metadata(fields, metadata)),
            steps,
        }
    }

    /// The same with more to say of all its rows.
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

    pub fn batch(&self, rows: &[Box<R>]) -> Result<RecordBatch, ArrowError> {
        let arrays = self
            .columns
            .iter()
            .map(|column| array(&column.value, rows, self.steps))
            .collect();
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}

fn field<R>(schema: &str, column: &Column<R>, steps: usize) -> Field {
    let mut metadata = HashMap::from([
        ("unit".to_owned(), column.unit.name().to_owned()),
        ("definition".to_owned(), column.definition.to_owned()),
        ("id".to_owned(), format!("{schema}/{}", column.name)),
    ]);
    if let Some(element) = column.element {
        metadata.insert(ELEMENT.to_owned(), element.to_string());
    }
    Field::new(column.name, data_type(&column.value, steps), true).with_metadata(metadata)
}

fn data_type<R>(value: &Value<R>, steps: usize) -> DataType {
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
    }
}

fn list(of: DataType, size: usize) -> DataType {
    let size = i32::try_from(size).unwrap_or(i32::MAX);
    DataType::FixedSizeList(Arc::new(Field::new_list_field(of, true)), size)
}

fn array<R>(value: &Value<R>, rows: &[Box<R>], steps: usize) -> ArrayRef {
    match value {
        Value::U8(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<UInt8Array>()),
        Value::U16(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<UInt16Array>()),
        Value::U32(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<UInt32Array>()),
        Value::U64(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<UInt64Array>()),
        Value::I64(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<Int64Array>()),
        Value::F64(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<Float64Array>()),
        Value::Bool(of) => Arc::new(rows.iter().map(|row| of(row)).collect::<BooleanArray>()),
        Value::Time(of) => Arc::new(
            rows.iter()
                .map(|row| of(row))
                .collect::<TimestampNanosecondArray>()
                .with_timezone(UTC),
        ),
        Value::Text(write) => texts(rows, *write),
        Value::I32List(each) => lists(Int32Builder::new(), rows, *each, steps),
        Value::U64List(each) => lists(UInt64Builder::new(), rows, *each, steps),
    }
}

/// Lists of one length: longer ones are cut, shorter ones end in nulls.
fn lists<R, T: ArrowPrimitiveType>(
    values: PrimitiveBuilder<T>,
    rows: &[Box<R>],
    each: Each<R, T::Native>,
    steps: usize,
) -> ArrayRef {
    let mut builder = FixedSizeListBuilder::new(values, size(steps));
    for row in rows {
        let mut left = steps;
        each(row, &mut |item| {
            if left > 0 {
                builder.values().append_value(item);
                left -= 1;
            }
        });
        builder.values().append_nulls(left);
        builder.append(true);
    }
    Arc::new(builder.finish())
}

fn size(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}

fn texts<R>(rows: &[Box<R>], write: fn(&R, &mut dyn std::fmt::Write) -> bool) -> ArrayRef {
    let mut builder = StringBuilder::new();
    let mut text = String::new();
    for row in rows {
        text.clear();
        if write(row, &mut text) {
            builder.append_value(&text);
        } else {
            builder.append_null();
        }
    }
    Arc::new(builder.finish())
}
