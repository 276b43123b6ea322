//! Builders of Arrow columns. Each builder takes the values of one column from the rows.

use std::fmt::Write;
use std::mem;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, NullBufferBuilder, StringBuilder};
use arrow_array::types::{
    Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{ArrayRef, ArrowPrimitiveType, FixedSizeListArray, Int8Array, PrimitiveArray};
use arrow_schema::{ArrowError, DataType, FieldRef};

use crate::column::{Each, Value};
use crate::flow::Limits;

/// Builds a column from rows.
pub(crate) trait ColumnBuilder<R>: Send {
    fn add(&mut self, rows: &[&R]);

    /// Returns the column and empties the builder.
    fn take(&mut self) -> Result<ArrayRef, ArrowError>;
}

/// An empty builder with capacity for this many rows.
pub(crate) fn builder<R: 'static>(
    value: &'static Value<R>,
    of: DataType,
    limits: &Limits,
    rows: usize,
) -> Box<dyn ColumnBuilder<R>> {
    match value {
        Value::U8(take) => Scalars::<R, UInt8Type>::boxed(*take, of, rows),
        Value::U16(take) => Scalars::<R, UInt16Type>::boxed(*take, of, rows),
        Value::U32(take) => Scalars::<R, UInt32Type>::boxed(*take, of, rows),
        Value::U64(take) => Scalars::<R, UInt64Type>::boxed(*take, of, rows),
        Value::I64(take) => Scalars::<R, Int64Type>::boxed(*take, of, rows),
        Value::F64(take) => Scalars::<R, Float64Type>::boxed(*take, of, rows),
        Value::Time(take) => Scalars::<R, TimestampNanosecondType>::boxed(*take, of, rows),
        Value::Bool(take) => Box::new(Booleans {
            of: *take,
            values: BooleanBuilder::with_capacity(rows),
        }),
        Value::Text(write) => Box::new(Texts {
            write: *write,
            text: String::new(),
            values: StringBuilder::new(),
        }),
        Value::I32List(each) => Lists::<R, Int32Type>::boxed(*each, of, limits.steps, rows),
        Value::U64List(each) => Lists::<R, UInt64Type>::boxed(*each, of, limits.steps, rows),
        Value::Bits(bits) => Box::new(Matrix {
            of: bits.of,
            list: of,
            values: Vec::new(),
        }),
    }
}

/// The numbers, and a null bitmap that is allocated at the first null.
struct Numbers<T: ArrowPrimitiveType> {
    numbers: Vec<T::Native>,
    valid: NullBufferBuilder,
    capacity: usize,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            numbers: Vec::with_capacity(capacity),
            valid: NullBufferBuilder::new(capacity),
            capacity,
        }
    }

    fn push(&mut self, numbers: impl Iterator<Item = Option<T::Native>>) {
        let mut run = 0;
        for number in numbers {
            if number.is_some() {
                run += 1;
            } else {
                self.valid.append_n_non_nulls(mem::take(&mut run));
                self.valid.append_null();
            }
            self.numbers.push(number.unwrap_or_default());
        }
        self.valid.append_n_non_nulls(run);
    }

    fn pad(&mut self, nulls: usize) {
        if nulls > 0 {
            self.valid.append_n_nulls(nulls);
            self.numbers
                .resize(self.numbers.len() + nulls, T::default_value());
        }
    }

    fn take(&mut self) -> PrimitiveArray<T> {
        let numbers = mem::replace(&mut self.numbers, Vec::with_capacity(self.capacity));
        PrimitiveArray::new(numbers.into(), self.valid.finish())
    }
}

/// One number per row.
struct Scalars<R, T: ArrowPrimitiveType> {
    of: fn(&R) -> Option<T::Native>,
    values: Numbers<T>,
    kind: DataType,
}

impl<R: 'static, T: ArrowPrimitiveType> Scalars<R, T> {
    fn boxed(
        of: fn(&R) -> Option<T::Native>,
        kind: DataType,
        rows: usize,
    ) -> Box<dyn ColumnBuilder<R>> {
        Box::new(Self {
            of,
            values: Numbers::with_capacity(rows),
            kind,
        })
    }
}

impl<R, T: ArrowPrimitiveType> ColumnBuilder<R> for Scalars<R, T> {
    fn add(&mut self, rows: &[&R]) {
        self.values.push(rows.iter().map(|row| (self.of)(row)));
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = self.values.take().with_data_type(self.kind.clone());
        Ok(Arc::new(values))
    }
}

struct Booleans<R> {
    of: fn(&R) -> Option<bool>,
    values: BooleanBuilder,
}

impl<R> ColumnBuilder<R> for Booleans<R> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            self.values.append_option((self.of)(row));
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(self.values.finish()))
    }
}

struct Texts<R> {
    write: fn(&R, &mut dyn Write) -> bool,
    text: String,
    values: StringBuilder,
}

impl<R> ColumnBuilder<R> for Texts<R> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            self.text.clear();
            if (self.write)(row, &mut self.text) {
                self.values.append_value(&self.text);
            } else {
                self.values.append_null();
            }
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(self.values.finish()))
    }
}

/// Lists of one fixed length: longer lists are truncated, shorter lists are padded with nulls.
struct Lists<R, T: ArrowPrimitiveType> {
    each: Each<R, T::Native>,
    values: Numbers<T>,
    list: DataType,
    steps: usize,
}

impl<R: 'static, T: ArrowPrimitiveType> Lists<R, T> {
    fn boxed(
        each: Each<R, T::Native>,
        list: DataType,
        steps: usize,
        rows: usize,
    ) -> Box<dyn ColumnBuilder<R>> {
        Box::new(Self {
            each,
            values: Numbers::with_capacity(rows * steps),
            list,
            steps,
        })
    }
}

impl<R, T: ArrowPrimitiveType> ColumnBuilder<R> for Lists<R, T> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            let values = &mut self.values;
            let start = values.numbers.len();
            (self.each)(row, &mut |item| values.numbers.push(item));
            values.numbers.truncate(start + self.steps);
            let items = values.numbers.len() - start;
            values.valid.append_n_non_nulls(items);
            values.pad(self.steps - items);
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        lists(&self.list, Arc::new(self.values.take()))
    }
}

/// The rows' bits, row after row. The buffer already has the layout of the matrix, so it is not copied.
struct Matrix<R> {
    of: fn(&R) -> &[i8],
    list: DataType,
    values: Vec<i8>,
}

impl<R> ColumnBuilder<R> for Matrix<R> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            self.values.extend_from_slice((self.of)(row));
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = mem::take(&mut self.values);
        lists(&self.list, Arc::new(Int8Array::from(values)))
    }
}

fn lists(list: &DataType, values: ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (item, size) = shape(list)?;
    let lists = FixedSizeListArray::try_new(item, size, values, None)?;
    Ok(Arc::new(lists))
}

fn shape(list: &DataType) -> Result<(FieldRef, i32), ArrowError> {
    match list {
        DataType::FixedSizeList(item, size) => Ok((Arc::clone(item), *size)),
        other => Err(ArrowError::SchemaError(format!("{other} is no list"))),
    }
}
