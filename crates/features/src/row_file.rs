//! Rows that were written before: Parquet files, and Arrow's file and stream formats.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A file of rows, read a batch at a time.
pub struct SavedRows {
    schema: SchemaRef,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
}

/// Rows of a batch.
const BATCH: usize = 1024;

impl SavedRows {
    /// Whether a file's name says that it holds rows.
    pub fn is_named_so(path: &Path) -> bool {
        let ending = path.extension().and_then(|ending| ending.to_str());
        matches!(ending, Some("parquet" | "arrow"))
    }

    /// Opens a file, of a format that its first bytes tell.
    pub fn open(path: &Path) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut file = File::open(path).map_err(|error| wrong(&error))?;
        let mut magic = Vec::new();
        let read = (&mut file).take(6).read_to_end(&mut magic);
        read.and_then(|_| file.rewind())
            .map_err(|error| wrong(&error))?;
        if magic.starts_with(b"PAR1") {
            Self::parquet(file).map_err(|error| wrong(&error))
        } else if magic == b"ARROW1" {
            let reader = FileReader::try_new_buffered(file, None);
            let reader = reader.map_err(|error| wrong(&error))?;
            Ok(Self::of(reader.schema(), reader))
        } else {
            let reader = StreamReader::try_new(BufReader::new(file), None);
            let reader = reader.map_err(|error| wrong(&error))?;
            Ok(Self::of(reader.schema(), reader))
        }
    }

    fn parquet(file: File) -> Result<Self, parquet::errors::ParquetError> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let reader = reader.with_batch_size(BATCH).build()?;
        Ok(Self::of(
            arrow_array::RecordBatchReader::schema(&reader),
            reader,
        ))
    }

    fn of(
        schema: SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    ) -> Self {
        Self {
            schema,
            batches: Box::new(batches),
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Iterator for SavedRows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl std::fmt::Debug for SavedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedRows")
            .field("columns", &self.schema.fields().len())
            .finish_non_exhaustive()
    }
}
