//! An experiment's record as a table, with the columns of `lowroad report --parquet`.

use std::path::PathBuf;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use report::journal::Record;

use crate::error::{failed, input};
use crate::stream::C_STREAM;

/// Rows that are all in memory.
#[pyclass(frozen, module = "lowroad._native")]
#[derive(Debug)]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// The record's first line, as JSON.
    #[pyo3(get)]
    header: String,
}

#[pymethods]
impl Table {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may leave a wish for other types unheard.
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), C_STREAM)
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// Every trial of a record.jsonl, flagged ones too.
#[pyfunction]
pub(crate) fn read_record(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    let read = py.detach(move || Record::read(&path));
    let record = read.map_err(|error| input(py, &error))?;
    py.detach(|| table(&record))
        .map_err(|error| failed(py, &error))
}

fn table(record: &Record) -> Result<Table, Box<dyn std::error::Error + Send + Sync>> {
    let mut bytes = Vec::new();
    report::columns::write(record, &mut bytes)?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))?;
    let schema = reader.schema().clone();
    Ok(Table {
        schema,
        batches: reader.build()?.collect::<Result<_, _>>()?,
        header: serde_json::to_string(&record.header)?,
    })
}
