//! File formats: encode rows as chunks of bytes that are stored one after the other.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};

use super::parquet::Groups;
use crate::sink::ipfix::FileMessages;
use crate::sink::{Error, text};

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Parquet,
    Arrow,
    Csv,
    JsonLines,
    Ipfix,
}

impl Format {
    pub const ALL: [Self; 5] = [
        Self::Parquet,
        Self::Arrow,
        Self::Csv,
        Self::JsonLines,
        Self::Ipfix,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Ipfix => "ipfix",
        }
    }

    /// The format for the extension of a file's name.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        Self::ALL
            .into_iter()
            .find(|format| ending == Some(format.name()))
            .ok_or_else(|| Error::UnknownFormat {
                path: path.display().to_string(),
            })
    }
}

/// Bytes that are stored completely or not at all.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) rows: u64,
    /// The number of bytes that would complete the file after this chunk.
    pub(super) tail: usize,
}

/// Encodes the chunks of one file.
#[derive(Debug)]
pub(super) struct Encoder {
    path: String,
    writer: Writer,
}

enum Writer {
    Parquet(Box<Groups>),
    Arrow(Box<StreamWriter<Vec<u8>>>),
    Csv,
    JsonLines,
    Ipfix(FileMessages),
}

/// Bytes of the end marker of an Arrow stream.
const ARROW_END: usize = 8;

impl Encoder {
    /// Creates an encoder, and returns it with the header of the file.
    pub(super) fn start(
        format: Format,
        schema: &SchemaRef,
        path: &Path,
    ) -> Result<(Self, Chunk), Error> {
        let path = path.display().to_string();
        let mut head = Chunk::default();
        let writer = match format {
            Format::Parquet => {
                let (groups, start) = Groups::start(schema).map_err(parquet(&path))?;
                head = start;
                Writer::Parquet(Box::new(groups))
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(Vec::new(), schema);
                let mut writer = writer.map_err(arrow(&path))?;
                head.bytes = std::mem::take(writer.get_mut());
                head.tail = ARROW_END;
                Writer::Arrow(Box::new(writer))
            }
            Format::Csv => {
                // A file without rows still lists its columns.
                head.bytes = text::csv_header(schema)?;
                Writer::Csv
            }
            Format::JsonLines => {
                text::check_json(schema)?;
                Writer::JsonLines
            }
            Format::Ipfix => Writer::Ipfix(FileMessages::new(schema)?),
        };
        Ok((Self { path, writer }, head))
    }

    /// Encodes rows. Returns a chunk once there is enough data for one.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<Option<Chunk>, Error> {
        let (mut tail, path) = (0, &self.path);
        let bytes = match &mut self.writer {
            Writer::Parquet(groups) => return groups.rows(batch).map_err(parquet(path)),
            Writer::Arrow(writer) => {
                writer.write(batch).map_err(arrow(path))?;
                tail = ARROW_END;
                std::mem::take(writer.get_mut())
            }
            Writer::Csv => text::csv_rows(batch)?,
            Writer::JsonLines => text::json_lines(batch)?,
            Writer::Ipfix(messages) => messages.bytes(batch),
        };
        let rows = u64::try_from(batch.num_rows()).unwrap_or(0);
        Ok(Some(Chunk { bytes, rows, tail }))
    }

    /// Returns the rows that are in no chunk yet.
    pub(super) fn rest(&mut self) -> Result<Option<Chunk>, Error> {
        match &mut self.writer {
            Writer::Parquet(groups) => groups.rest().map_err(parquet(&self.path)),
            _ => Ok(None),
        }
    }

    /// Confirms that the last chunk is in the file.
    pub(super) fn stored(&mut self) {
        if let Writer::Parquet(groups) = &mut self.writer {
            groups.stored();
        }
    }

    /// Returns the bytes that complete a file with exactly the stored chunks.
    pub(super) fn tail(&mut self) -> Result<Vec<u8>, Error> {
        match &mut self.writer {
            Writer::Parquet(groups) => groups.tail().map_err(parquet(&self.path)),
            Writer::Arrow(writer) => {
                writer.finish().map_err(arrow(&self.path))?;
                Ok(std::mem::take(writer.get_mut()))
            }
            Writer::Csv | Writer::JsonLines | Writer::Ipfix(_) => Ok(Vec::new()),
        }
    }

    /// The approximate number of bytes that are in no chunk yet.
    pub(super) fn pending(&self) -> u64 {
        match &self.writer {
            Writer::Parquet(groups) => groups.pending(),
            _ => 0,
        }
    }
}

fn parquet(path: &str) -> impl FnOnce(::parquet::errors::ParquetError) -> Error {
    let path = path.to_owned();
    move |cause| Error::Parquet { path, cause }
}

fn arrow(path: &str) -> impl FnOnce(ArrowError) -> Error {
    let path = path.to_owned();
    move |cause| Error::Arrow { path, cause }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Parquet(_) => "parquet",
            Self::Arrow(_) => "arrow",
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Ipfix(_) => "ipfix",
        })
    }
}
