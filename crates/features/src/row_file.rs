//! Rows that were written before: Parquet files, and Arrow's file and stream formats.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::root_as_message;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A file of rows, read a batch at a time.
pub struct SavedRows {
    schema: SchemaRef,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
}

/// Rows of a batch.
const BATCH: usize = 1024;
const DAMAGE_HINT: &str = "is damaged: write the rows again";

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
        let opened = if magic.starts_with(b"PAR1") {
            catch(|| Self::parquet(file).map_err(|error| error.to_string()))
        } else if magic == b"ARROW1" {
            catch(|| {
                let reader = FileReader::try_new_buffered(file, None);
                let reader = reader.map_err(|error| error.to_string())?;
                Ok(Self::of(reader.schema(), reader))
            })
        } else {
            check_stream(&mut file).and_then(|()| {
                catch(|| {
                    let reader = StreamReader::try_new(BufReader::new(file), None);
                    let reader = reader.map_err(|error| error.to_string())?;
                    Ok(Self::of(reader.schema(), reader))
                })
            })
        };
        opened.map_err(|error| wrong(&error))
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

/// Runs a reader of Arrow or Parquet. These panic on some damaged files instead of returning an error.
fn catch<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    result.unwrap_or_else(|_| Err(DAMAGE_HINT.to_owned()))
}

/// Refuses a stream whose lengths go beyond the file: the reader of the stream allocates what they ask for.
fn check_stream(file: &mut File) -> Result<(), String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let mut at = 0;
    while let Some(length) = message(file, at, size - at)? {
        at += length;
        file.seek(SeekFrom::Start(at))
            .map_err(|error| error.to_string())?;
    }
    file.rewind().map_err(|error| error.to_string())
}

/// The length of the message that begins at an offset, with its body; none at the end of the stream. Those before Arrow 0.15
/// have no marker before the length of their metadata.
fn message(file: &mut File, at: u64, left: u64) -> Result<Option<u64>, String> {
    let no_stream = || "is neither Parquet nor an Arrow file or stream".to_owned();
    if left < 4 {
        return Ok(None);
    }
    let mut head = [0; 8];
    let present = if left < 8 { 4 } else { 8 };
    file.read_exact(&mut head[..present])
        .map_err(|error| error.to_string())?;
    let [a, b, c, d, length @ ..] = head;
    let first = u32::from_le_bytes([a, b, c, d]);
    let (prefix, length) = match first {
        u32::MAX => (8, u64::from(u32::from_le_bytes(length))),
        length => (4, u64::from(length)),
    };
    if length == 0 {
        return Ok(None);
    }
    if length > left - prefix {
        return Err(no_stream());
    }
    file.seek(SeekFrom::Start(at + prefix))
        .map_err(|error| error.to_string())?;
    let mut metadata = Vec::new();
    file.take(length)
        .read_to_end(&mut metadata)
        .map_err(|error| error.to_string())?;
    let body = root_as_message(&metadata).map_err(|_| no_stream())?;
    match u64::try_from(body.bodyLength()) {
        Ok(body) if body <= left - prefix - length => Ok(Some(prefix + length + body)),
        _ => Err("has a message that is longer than the file".to_owned()),
    }
}

impl Iterator for SavedRows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = panic::catch_unwind(AssertUnwindSafe(|| self.batches.next()));
        next.unwrap_or_else(|_| {
            // The reader is in no defined state after a panic.
            self.batches = Box::new(std::iter::empty());
            Some(Err(ArrowError::ParseError(DAMAGE_HINT.to_owned())))
        })
    }
}

impl std::fmt::Debug for SavedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedRows")
            .field("columns", &self.schema.fields().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::Schema;

    use super::*;

    fn open(content: &[u8]) -> Result<SavedRows, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        SavedRows::open(file.path())
    }

    #[test]
    fn text_is_refused_before_memory_is_used() {
        for text in [&b"src,dst,packets\n10.0.0.1,10.0.0.2,7\n"[..], b"a,b\n1"] {
            let error = open(text).unwrap_err();
            assert!(
                error.ends_with("is neither Parquet nor an Arrow file or stream"),
                "{error}"
            );
        }
    }

    #[test]
    fn message_beyond_the_file_is_refused() {
        let mut stream = Vec::new();
        let mut writer = StreamWriter::try_new(&mut stream, &Schema::empty()).unwrap();
        writer
            .write(&RecordBatch::new_empty(Schema::empty().into()))
            .unwrap();
        writer.finish().unwrap();
        drop(writer);
        assert_eq!(open(&stream).unwrap().count(), 1);
        stream[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(open(&stream).is_err());
    }

    #[test]
    fn panic_of_a_reader_is_an_error_and_ends_the_rows() {
        let hostile = std::iter::from_fn(|| unreachable!("as a reader of Arrow does"));
        let rows: Vec<_> = SavedRows::of(Schema::empty().into(), hostile).collect();
        assert_eq!(rows.len(), 1);
        assert!(rows[0].is_err());
    }
}
