//! Parquet as chunks: each chunk is a row group, and a footer can be written for the first groups alone.
//!
//! The library counts a row group as written once it has encoded it. Only this module knows whether the bytes reached
//! the disk, so it also creates the footer of a truncated file.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::format::Chunk;

/// Rows of a row group. A complete group can be read even if later groups are missing. The memory of a group is reused
/// for the next ones, if it is small.
const GROUP: usize = 16_384;
/// The maximum size of a footer's entry for a column in a row group: names, offsets, encodings, and two statistics of
/// at most 64 bytes.
const COLUMN_FOOTER: usize = 512;

pub(super) struct Groups {
    writer: ArrowWriter<Vec<u8>>,
    /// Of a file without rows, beginning included.
    empty: usize,
    columns: usize,
    stored: usize,
    /// Once the library has finished.
    metadata: Option<ParquetMetaData>,
}

impl Groups {
    pub(super) fn start(schema: &SchemaRef) -> Result<(Self, Chunk), ParquetError> {
        let empty = writer(schema)?.into_inner()?.len();
        let mut groups = Self {
            writer: writer(schema)?,
            empty,
            columns: 0,
            stored: 0,
            metadata: None,
        };
        let head = groups.chunk(0)?;
        Ok((groups, head))
    }

    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<Option<Chunk>, ParquetError> {
        self.writer.write(batch)?;
        if self.writer.in_progress_rows() < GROUP {
            return Ok(None);
        }
        self.rest()
    }

    pub(super) fn rest(&mut self) -> Result<Option<Chunk>, ParquetError> {
        let rows = u64::try_from(self.writer.in_progress_rows()).unwrap_or(0);
        if rows == 0 {
            return Ok(None);
        }
        self.writer.flush()?;
        let columns = |group: &RowGroupMetaData| group.num_columns();
        self.columns += self.writer.flushed_row_groups().last().map_or(0, columns);
        self.chunk(rows).map(Some)
    }

    fn chunk(&mut self, rows: u64) -> Result<Chunk, ParquetError> {
        Ok(Chunk {
            bytes: self.take()?,
            rows,
            tail: self.empty + self.columns * COLUMN_FOOTER,
        })
    }

    fn take(&mut self) -> Result<Vec<u8>, ParquetError> {
        self.writer.sync()?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    pub(super) fn stored(&mut self) {
        self.stored = self.writer.flushed_row_groups().len();
    }

    pub(super) fn tail(&mut self) -> Result<Vec<u8>, ParquetError> {
        if self.metadata.is_none() {
            self.metadata = Some(self.writer.finish()?);
            let whole = self.take()?;
            if self.stored == self.writer.flushed_row_groups().len() {
                return Ok(whole);
            }
        }
        let Some(metadata) = &self.metadata else {
            return Ok(Vec::new());
        };
        let mut footer = Vec::new();
        let kept = first_groups(metadata, self.stored);
        ParquetMetaDataWriter::new(&mut footer, &kept).finish()?;
        Ok(footer)
    }

    pub(super) fn pending(&self) -> u64 {
        u64::try_from(self.writer.in_progress_size()).unwrap_or(0)
    }
}

fn writer(schema: &SchemaRef) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
    let mut properties = WriterProperties::builder()
        // Numeric values of flows seldom repeat, so a dictionary costs more time than it saves space.
        .set_dictionary_enabled(false)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // This module ends the row groups.
        .set_max_row_group_row_count(None)
        // No page index, because space for it would have to be reserved as well.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for field in schema.fields() {
        properties = encoded(properties, field);
    }
    ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties.build()))
}

/// Chooses the encoding of a column by its type.
fn encoded(properties: WriterPropertiesBuilder, field: &Field) -> WriterPropertiesBuilder {
    let name = field.name().clone();
    match field.data_type() {
        // Text repeats, and the bits of packets have only three values.
        DataType::Utf8 => {
            properties.set_column_dictionary_enabled(ColumnPath::new(vec![name]), true)
        }
        DataType::FixedSizeList(item, _) => {
            let path = vec![name, "list".to_owned(), item.name().clone()];
            let path = ColumnPath::new(path);
            if *item.data_type() == DataType::Int8 {
                properties.set_column_dictionary_enabled(path, true)
            } else {
                properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
            }
        }
        // Most numbers are small. After bit packing they hardly compress, and compression is not worth the time.
        kind if kind.is_integer() => {
            let path = ColumnPath::new(vec![name]);
            properties
                .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                .set_column_compression(path, Compression::UNCOMPRESSED)
        }
        _ => properties,
    }
}

/// The metadata of a file with only the first row groups.
fn first_groups(metadata: &ParquetMetaData, count: usize) -> ParquetMetaData {
    let of = metadata.file_metadata();
    let groups = metadata.row_groups()[..count].to_vec();
    let file = FileMetaData::new(
        of.version(),
        groups.iter().map(RowGroupMetaData::num_rows).sum(),
        of.created_by().map(str::to_owned),
        of.key_value_metadata().cloned(),
        of.schema_descr_ptr(),
        of.column_orders().cloned(),
    );
    ParquetMetaData::new(file, groups)
}
