//! A batch of rows: Arrow's arrays for whoever takes them as they are, dictionaries for whoever does not.

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{
    Float64Type, Int8Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, RecordBatch, RecordBatchIterator, StructArray,
};
use arrow_schema::DataType;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::error::failed;
use crate::stream::C_STREAM;

/// Rows of one schema.
#[pyclass(frozen, module = "lowroad._native")]
#[derive(Debug)]
pub(crate) struct Batch(pub(crate) RecordBatch);

#[pymethods]
impl Batch {
    /// Schema and array, as Arrow's C structures.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A producer may leave a wish for other types unheard.
        drop(requested_schema);
        let schema = FFI_ArrowSchema::try_from(self.0.schema().as_ref());
        let schema = schema.map_err(|error| failed(py, &error))?;
        let array = FFI_ArrowArray::new(&StructArray::from(self.0.clone()).to_data());
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    /// The same as a stream of one batch.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let reader = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), C_STREAM)
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// A dictionary for each row, by column; times are nanoseconds since 1970.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows: Vec<Bound<'py, PyDict>> =
            (0..self.0.num_rows()).map(|_| PyDict::new(py)).collect();
        for (field, column) in self.0.schema().fields().iter().zip(self.0.columns()) {
            let name = field.name().into_pyobject(py)?;
            for (row, value) in rows.iter().zip(values(py, column)?) {
                row.set_item(&name, value)?;
            }
        }
        PyList::new(py, rows)
    }
}

type Values<'py> = Vec<Option<Bound<'py, PyAny>>>;

fn values<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Values<'py>> {
    match column.data_type() {
        DataType::UInt8 => numbers::<UInt8Type>(py, column),
        DataType::UInt16 => numbers::<UInt16Type>(py, column),
        DataType::UInt32 => numbers::<UInt32Type>(py, column),
        DataType::UInt64 => numbers::<UInt64Type>(py, column),
        DataType::Int8 => numbers::<Int8Type>(py, column),
        DataType::Int32 => numbers::<Int32Type>(py, column),
        DataType::Int64 => numbers::<Int64Type>(py, column),
        DataType::Float64 => numbers::<Float64Type>(py, column),
        DataType::Timestamp(..) => numbers::<TimestampNanosecondType>(py, column),
        DataType::Boolean => all(py, column.as_boolean().iter()),
        DataType::Utf8 => all(py, column.as_string::<i32>().iter()),
        DataType::FixedSizeList(..) => {
            let lists = column.as_fixed_size_list();
            lists
                .iter()
                .map(|list| match list {
                    Some(list) => Ok(Some(PyList::new(py, values(py, &list)?)?.into_any())),
                    None => Ok(None),
                })
                .collect()
        }
        other => Err(PyTypeError::new_err(format!("a column of {other}"))),
    }
}

fn numbers<'py, T: ArrowPrimitiveType>(py: Python<'py>, column: &ArrayRef) -> PyResult<Values<'py>>
where
    T::Native: IntoPyObject<'py>,
{
    all(py, column.as_primitive::<T>().iter())
}

fn all<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    cells: impl Iterator<Item = Option<T>>,
) -> PyResult<Values<'py>> {
    cells
        .map(|cell| match cell {
            Some(cell) => Ok(Some(cell.into_bound_py_any(py)?)),
            None => Ok(None),
        })
        .collect()
}
