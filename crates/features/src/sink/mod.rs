//! The outputs for rows: files in common formats, a pipe to another program, or a collector. Every accepted row is
//! either in the output or counted as lost.

mod dial;
mod file;
pub mod ipfix;
mod kafka;
mod message;
mod nats;
mod queue;
mod scoring;
mod shared;
mod text;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType};
use datapath::{Classify, ErrorClass};
use parquet::errors::ParquetError;

pub use self::nats::NatsSink;
pub use arrow_schema::SchemaRef;
pub(crate) use file::FrameFiles;
pub use file::{FileSink, Format, Rotation, Series};
pub use kafka::KafkaSink;
pub use queue::Queue;
pub use scoring::{Backlog, Scorer, ScoringSink, UnscoredRows, scored_schema};
pub use shared::{Completion, Shared};
pub use text::json_lines;

/// The name of standard output among files.
const STANDARD_OUTPUT: &str = "-";

/// Writes record batches of one schema.
pub trait Sink: Send {
    /// Writes a batch. After an error it accepts no more, and the data written before remains readable.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error>;

    /// Performs periodic work. Called from time to time while there is nothing to write.
    fn idle(&mut self) {}

    /// Writes the remaining data and completes the output. Only [`Self::lost`] may be called afterwards.
    fn finish(&mut self) -> Result<(), Error>;

    /// Removes an output to which nothing was written. Called instead of [`Self::finish`] for a run that has not begun.
    fn abandon(&mut self) {}

    /// Rows that were passed to the sink but are not in the output. Exact after [`Self::finish`].
    fn lost(&self) -> u64;
}

/// The behavior when an output does not accept rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The input can wait, and an error ends the run. No row is skipped.
    Whole,
    /// Traffic does not wait. Rows are lost and counted until the output accepts them again.
    Live,
}

impl Mode {
    /// The time for which a sink retries to deliver to an unreachable peer. It is shorter for live runs, where a user
    /// waits.
    pub(crate) fn delivery_timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Whole => 30,
            Self::Live => 3,
        })
    }
}

/// Discards rows, to measure the cost of the stages before the sink.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _batch: &RecordBatch) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }
}

/// The reason that rows could not be written. The message includes the cause. No error returns it as its `source`,
/// because a printed error chain would then contain it twice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    #[error("{path}: {cause}")]
    Parquet { path: String, cause: ParquetError },
    #[error("{path}: {cause}")]
    Arrow { path: String, cause: ArrowError },
    #[error("a batch of rows: {0}")]
    Batch(ArrowError),
    #[error(
        "{path}: the name says no format: end it in .parquet, .arrow, .csv, .jsonl or .ipfix, or name one with --format"
    )]
    UnknownFormat { path: String },
    #[error(
        "column {column} has the type {kind}, which {format} output does not support; write Parquet or Arrow"
    )]
    TextType {
        column: String,
        kind: DataType,
        format: &'static str,
    },
    #[error(
        "column {column} has a timestamp before year -262143 or after year 262142; write Parquet or Arrow"
    )]
    TextTime { column: String },
    #[error("column {0} is no IPFIX information element; use --schema ipfix")]
    NoElement(String),
    #[error("{path}: is a folder")]
    IsAFolder { path: String },
    #[error("{path}: another run is writing this file; end it, or choose another name")]
    InUse { path: String },
    #[error("{path}: only files can be rotated")]
    NotAFile { path: String },
    #[error("nats://{0}: names no subject; write nats://HOST:PORT/SUBJECT")]
    NoSubject(String),
    #[error("the frames have several link types, and a pcap file has one")]
    LinkTypes,
    #[error("scoring: {0}")]
    Scores(String),
    #[error(
        "--anonymize: a value is not of its column's kind and has no pseudonym; its batch is not written"
    )]
    Pseudonyms,
    #[error("labels: the type of column {0} is not supported")]
    Labels(String),
    #[error("kafka://{0}: names no topic; write kafka://HOST:PORT/TOPIC")]
    NoTopic(String),
    #[error("the output's thread: {0}")]
    Thread(std::io::Error),
    #[error("the output takes nothing more")]
    Stuck,
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::UnknownFormat { .. }
            | Self::NoElement(_)
            | Self::NoSubject(_)
            | Self::NoTopic(_)
            | Self::IsAFolder { .. }
            | Self::InUse { .. }
            | Self::NotAFile { .. } => ErrorClass::Input,
            Self::Io { .. }
            | Self::Parquet { .. }
            | Self::Arrow { .. }
            | Self::Batch(_)
            | Self::TextType { .. }
            | Self::TextTime { .. }
            | Self::LinkTypes
            | Self::Scores(_)
            | Self::Labels(_)
            | Self::Pseudonyms
            | Self::Thread(_)
            | Self::Stuck => ErrorClass::Failed,
        }
    }
}

impl Error {
    /// Whether the reader of standard output has closed the pipe, as `head` does. It wants no more rows.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io { path, cause } if path == STANDARD_OUTPUT && cause.kind() == ErrorKind::BrokenPipe)
    }

    pub(crate) fn batch(source: ArrowError) -> Self {
        Self::Batch(source)
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |cause| Self::Io { path, cause }
    }

    fn address(address: &str) -> impl FnOnce(std::io::Error) -> Self {
        let path = address.to_owned();
        move |cause| Self::Io { path, cause }
    }

    pub(crate) fn thread(source: std::io::Error) -> Self {
        Self::Thread(source)
    }
}
