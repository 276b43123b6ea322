//! Columns in the making: values taken from rows, one type of column after the other.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{
    Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{ArrayRef, ArrowPrimitiveType, FixedSizeListArray, Int8Array};
use arrow_schema::{ArrowError, DataType, FieldRef};

use crate::column::{Each, Value};
use crate::flow::Limits;

/// A column that takes its values from rows.
pub(crate) trait Grow<R>: Send {
    fn add(&mut self, rows: &[&R]);

    /// What it has; it is empty again.
    fn take(&mut self) -> Result<ArrayRef, ArrowError>;
}

/// An empty column of this type, with room for so many rows.
pub(crate) fn column<R: 'static>(
    value: &'static Value<R>,
    of: DataType,
    limits: &Limits,
    rows: usize,
) -> Box<dyn Grow<R>> {
    let items = rows * limits.steps;
    match value {
        Value::U8(take) => Numbers::<R, UInt8Type>::boxed(*take, of, rows),
        Value::U16(take) => Numbers::<R, UInt16Type>::boxed(*take, of, rows),
        Value::U32(take) => Numbers::<R, UInt32Type>::boxed(*take, of, rows),
        Value::U64(take) => Numbers::<R, UInt64Type>::boxed(*take, of, rows),
        Value::I64(take) => Numbers::<R, Int64Type>::boxed(*take, of, rows),
        Value::F64(take) => Numbers::<R, Float64Type>::boxed(*take, of, rows),
        Value::Time(take) => Numbers::<R, TimestampNanosecondType>::boxed(*take, of, rows),
        Value::Bool(take) => Box::new(Truths {
            of: *take,
            values: BooleanBuilder::with_capacity(rows),
        }),
        Value::Text(write) => Box::new(Texts {
            write: *write,
            text: String::new(),
            values: StringBuilder::new(),
        }),
        Value::I32List(each) => Lists::<R, Int32Type>::boxed(*each, of, limits.steps, items),
        Value::U64List(each) => Lists::<R, UInt64Type>::boxed(*each, of, limits.steps, items),
        Value::Bits(bits) => Box::new(Matrix {
            of: bits.of,
            list: of,
            values: Vec::new(),
        }),
    }
}

struct Numbers<R, T: ArrowPrimitiveType> {
    of: fn(&R) -> Option<T::Native>,
    values: PrimitiveBuilder<T>,
    kind: DataType,
    rows: usize,
}

impl<R: 'static, T: ArrowPrimitiveType> Numbers<R, T> {
    fn boxed(of: fn(&R) -> Option<T::Native>, kind: DataType, rows: usize) -> Box<dyn Grow<R>> {
        let values = PrimitiveBuilder::with_capacity(rows).with_data_type(kind.clone());
        Box::new(Self {
            of,
            values,
            kind,
            rows,
        })
    }
}

impl<R, T: ArrowPrimitiveType> Grow<R> for Numbers<R, T> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            self.values.append_option((self.of)(row));
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let next = PrimitiveBuilder::with_capacity(self.rows).with_data_type(self.kind.clone());
        Ok(Arc::new(std::mem::replace(&mut self.values, next).finish()))
    }
}

struct Truths<R> {
    of: fn(&R) -> Option<bool>,
    values: BooleanBuilder,
}

impl<R> Grow<R> for Truths<R> {
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

impl<R> Grow<R> for Texts<R> {
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

/// Lists of one length: longer ones are cut, shorter ones end in nulls.
struct Lists<R, T: ArrowPrimitiveType> {
    each: Each<R, T::Native>,
    values: PrimitiveBuilder<T>,
    list: DataType,
    steps: usize,
    items: usize,
}

impl<R: 'static, T: ArrowPrimitiveType> Lists<R, T> {
    fn boxed(
        each: Each<R, T::Native>,
        list: DataType,
        steps: usize,
        items: usize,
    ) -> Box<dyn Grow<R>> {
        let values = PrimitiveBuilder::with_capacity(items);
        Box::new(Self {
            each,
            values,
            list,
            steps,
            items,
        })
    }
}

impl<R, T: ArrowPrimitiveType> Grow<R> for Lists<R, T> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            let mut left = self.steps;
            (self.each)(row, &mut |item| {
                if left > 0 {
                    self.values.append_value(item);
                    left -= 1;
                }
            });
            self.values.append_nulls(left);
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let next = PrimitiveBuilder::with_capacity(self.items);
        let values = std::mem::replace(&mut self.values, next).finish();
        lists(&self.list, Arc::new(values))
    }
}

/// The rows' bits one behind the other: the matrix that they are, without a copy.
struct Matrix<R> {
    of: fn(&R) -> &[i8],
    list: DataType,
    values: Vec<i8>,
}

impl<R> Grow<R> for Matrix<R> {
    fn add(&mut self, rows: &[&R]) {
        for row in rows {
            self.values.extend_from_slice((self.of)(row));
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = std::mem::take(&mut self.values);
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
