//! The values of one column, written in the syntax of either format.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, TimeUnit};

use super::number::integer;
use super::time::{Timestamps, offset};
use crate::sink::Error;

/// How a format writes the types for which the formats differ.
pub(super) trait Syntax: 'static {
    /// The format's name in errors.
    const NAME: &'static str;

    fn float32(value: f32, out: &mut Vec<u8>);

    fn float64(value: f64, out: &mut Vec<u8>);

    fn text(value: &str, out: &mut Vec<u8>);

    /// Writes text that needs no escape in either format. `write` appends the text itself.
    fn plain(write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>);
}

/// Appends the value of a row, which must not be null.
pub(super) type Encode<'a> = Box<dyn FnMut(usize, &mut Vec<u8>) + 'a>;

/// A column's values and which of them are null.
pub(super) struct Values<'a> {
    encode: Encode<'a>,
    nulls: Option<NullBuffer>,
}

/// Why a column cannot be written.
pub(super) enum Refusal {
    Type,
    Time,
}

impl<'a> Values<'a> {
    pub(super) fn new(encode: Encode<'a>, array: &dyn Array) -> Self {
        let nulls = array.logical_nulls();
        Self {
            encode,
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
        }
    }

    /// The values of an array whose type is not nested.
    pub(super) fn scalar<S: Syntax>(array: &'a dyn Array) -> Result<Self, Refusal> {
        let encode = match array.data_type() {
            // Every row is null.
            DataType::Null => Box::new(|_, _: &mut Vec<u8>| {}) as Encode<'a>,
            DataType::Timestamp(unit, zone) => timestamps::<S>(array, *unit, zone.as_deref())?,
            DataType::Dictionary(..) => dictionary::<S>(array)?,
            _ => number::<S>(array)
                .or_else(|| bytes::<S>(array))
                .ok_or(Refusal::Type)?,
        };
        Ok(Self::new(encode, array))
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    pub(super) fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        (self.encode)(row, out);
    }
}

impl Refusal {
    /// The error that a caller sees for a column in the format `S`.
    pub(super) fn of<S: Syntax>(self, field: &Field) -> Error {
        let column = field.name().clone();
        match self {
            Self::Type => Error::TextType {
                column,
                kind: field.data_type().clone(),
                format: S::NAME,
            },
            Self::Time => Error::TextTime { column },
        }
    }
}

/// Calls `values` for each column of a batch.
pub(super) fn columns<'a, S: Syntax, T>(
    batch: &'a RecordBatch,
    values: impl Fn(&'a Field, &'a dyn Array) -> Result<T, Refusal>,
) -> Result<Vec<T>, Error> {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    fields
        .map(|(field, array)| {
            values(field, array.as_ref()).map_err(|refusal| refusal.of::<S>(field))
        })
        .collect()
}

fn number<'a, S: Syntax>(array: &'a dyn Array) -> Option<Encode<'a>> {
    macro_rules! values {
        ($kind:ty, $write:expr) => {{
            let values: &'a [_] = array.as_primitive::<$kind>().values();
            Box::new(move |row, out: &mut Vec<u8>| $write(values[row], out))
        }};
    }
    Some(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            Box::new(|row, out: &mut Vec<u8>| {
                let text: &[u8] = if values.value(row) { b"true" } else { b"false" };
                out.extend_from_slice(text);
            })
        }
        DataType::UInt8 => values!(UInt8Type, integer),
        DataType::UInt16 => values!(UInt16Type, integer),
        DataType::UInt32 => values!(UInt32Type, integer),
        DataType::UInt64 => values!(UInt64Type, integer),
        DataType::Int8 => values!(Int8Type, integer),
        DataType::Int16 => values!(Int16Type, integer),
        DataType::Int32 => values!(Int32Type, integer),
        DataType::Int64 => values!(Int64Type, integer),
        DataType::Float32 => values!(Float32Type, S::float32),
        DataType::Float64 => values!(Float64Type, S::float64),
        _ => return None,
    })
}

fn bytes<'a, S: Syntax>(array: &'a dyn Array) -> Option<Encode<'a>> {
    macro_rules! values {
        ($values:expr, $write:expr) => {{
            let values = $values;
            Box::new(move |row, out: &mut Vec<u8>| $write(values.value(row), out))
        }};
    }
    Some(match array.data_type() {
        DataType::Utf8 => values!(array.as_string::<i32>(), S::text),
        DataType::LargeUtf8 => values!(array.as_string::<i64>(), S::text),
        DataType::Utf8View => values!(array.as_string_view(), S::text),
        DataType::Binary => values!(array.as_binary::<i32>(), hexadecimal::<S>),
        DataType::LargeBinary => values!(array.as_binary::<i64>(), hexadecimal::<S>),
        DataType::BinaryView => values!(array.as_binary_view(), hexadecimal::<S>),
        DataType::FixedSizeBinary(_) => {
            values!(array.as_fixed_size_binary(), hexadecimal::<S>)
        }
        _ => return None,
    })
}

fn hexadecimal<S: Syntax>(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
    S::plain(|out| out.extend(bytes.iter().flat_map(digits)), out);
}

fn timestamps<'a, S: Syntax>(
    array: &'a dyn Array,
    unit: TimeUnit,
    zone: Option<&str>,
) -> Result<Encode<'a>, Refusal> {
    let offset = zone.map(|zone| offset(zone).ok_or(Refusal::Type));
    let mut timestamps = Timestamps::new(unit, offset.transpose()?);
    let values: &'a [i64] = match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
    };
    // A 64-bit count of nanoseconds only covers the years 1677 to 2262.
    let is_short = unit == TimeUnit::Nanosecond;
    let valid = |row: usize| array.is_null(row) || timestamps.has_date(values[row]);
    if !is_short && !(0..values.len()).all(valid) {
        return Err(Refusal::Time);
    }
    Ok(Box::new(move |row, out| {
        S::plain(|out| timestamps.write(values[row], out), out);
    }))
}

/// A value may be null as well as a key. `Values::new` takes the logical nulls, which cover both.
fn dictionary<'a, S: Syntax>(array: &'a dyn Array) -> Result<Encode<'a>, Refusal> {
    let dictionary = array.as_any_dictionary();
    let mut values = Values::scalar::<S>(dictionary.values().as_ref())?;
    if dictionary.values().is_empty() {
        return Ok(Box::new(|_, _| {}));
    }
    let keys = dictionary.normalized_keys();
    Ok(Box::new(move |row, out| values.encode(keys[row], out)))
}
