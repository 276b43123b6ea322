//! Lists as columns of their own, for formats that hold none: `splt_payload` becomes `splt_payload_0`
//! and so on, in its place. Bits are called as their fields: `ipv4_ver_0`.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, FixedSizeListArray, PrimitiveArray, RecordBatch,
};

use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::batch::FIELDS;

/// The columns of a batch without lists.
pub(super) fn schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<Field> = schema.fields().iter().flat_map(|f| fields(f)).collect();
    Arc::new(Schema::new(fields))
}

fn fields(field: &Field) -> Vec<Field> {
    let DataType::FixedSizeList(item, size) = field.data_type() else {
        return vec![field.clone()];
    };
    names(field, usize::try_from(*size).unwrap_or(0))
        .map(|name| Field::new(name, item.data_type().clone(), true))
        .collect()
}

fn names(field: &Field, size: usize) -> impl Iterator<Item = String> {
    let whole = format!("{}:{size}", field.name());
    let fields = field.metadata().get(FIELDS).cloned().unwrap_or(whole);
    let numbered = |part: &str| {
        let (name, items) = part.split_once(':').unwrap_or((part, "0"));
        let items: usize = items.parse().unwrap_or(0);
        let names: Vec<String> = (0..items).map(|item| format!("{name}_{item}")).collect();
        names
    };
    let names: Vec<String> = fields.split(',').flat_map(numbered).collect();
    names.into_iter()
}

/// A batch of that schema.
pub(super) fn batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(columns);
    let columns = columns.collect::<Result<Vec<_>, _>>()?.concat();
    RecordBatch::try_new(Arc::clone(schema), columns)
}

fn columns(column: &ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
    let Some(list) = column.as_any().downcast_ref::<FixedSizeListArray>() else {
        return Ok(vec![Arc::clone(column)]);
    };
    match list.value_type() {
        DataType::Int8 => Ok(steps::<Int8Type>(list)),
        DataType::Int32 => Ok(steps::<Int32Type>(list)),
        DataType::UInt64 => Ok(steps::<UInt64Type>(list)),
        other => Err(ArrowError::CsvError(format!("a list of {other}"))),
    }
}

fn steps<T: ArrowPrimitiveType>(list: &FixedSizeListArray) -> Vec<ArrayRef> {
    let size = usize::try_from(list.value_length()).unwrap_or(0);
    let Some(items) = list.values().as_any().downcast_ref::<PrimitiveArray<T>>() else {
        return Vec::new();
    };
    let item = |at: usize| items.is_valid(at).then(|| items.value(at));
    (0..size)
        .map(|step| {
            let steps = (0..list.len()).map(|row| item(row * size + step));
            Arc::new(steps.collect::<PrimitiveArray<T>>()) as ArrayRef
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::Int32Array;

    use super::*;

    #[test]
    fn each_step_of_a_list_is_a_column() {
        let item = Arc::new(Field::new_list_field(DataType::Int32, true));
        let values = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let list = FixedSizeListArray::new(Arc::clone(&item), 2, values, None);
        let field = Field::new("splt", DataType::FixedSizeList(item, 2), true);
        let lists = Schema::new(vec![field]);
        let rows = RecordBatch::try_new(Arc::new(lists.clone()), vec![Arc::new(list)]).unwrap();
        let flat = batch(&rows.slice(0, 2), &schema(&lists)).unwrap();
        assert_eq!(flat.schema().field(1).name(), "splt_1");
        let expected = Int32Array::from(vec![None, Some(4)]);
        assert_eq!(flat.column(1).as_ref(), &expected as &dyn Array);
        let second = batch(&rows.slice(1, 1), &schema(&lists)).unwrap();
        assert_eq!(
            second.column(0).as_ref(),
            &Int32Array::from(vec![3]) as &dyn Array
        );
    }
}
