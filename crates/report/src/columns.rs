//! A record as a Parquet file: a row for each trial, a column for each thing that a trial holds, and the
//! header as JSON in the file's metadata under `lowroad.header`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde::Serialize;

use crate::journal::Record;
use crate::record::Trial;

/// Where the record's header is in the file's metadata.
const HEADER: &str = "lowroad.header";

/// The record cannot be written as Parquet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error("a part of the record has no JSON form: {0}")]
    Json(#[from] serde_json::Error),
}

/// The cells of a column, one for each trial; empty where the trial has no value.
enum Cells {
    Text(Vec<Option<ByteArray>>),
    Number(Vec<Option<f64>>),
    /// Unsigned.
    Count(Vec<Option<i64>>),
}

struct Column {
    name: String,
    cells: Cells,
}

/// Writes every trial, flagged ones too. Maps of a trial are columns of their own (`values.delay_p50`);
/// the environment, histograms and stacks are JSON as in record.jsonl.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(record: &Record, out: impl Write + Send) -> Result<(), Error> {
    let columns = columns(&record.trials)?;
    let fields = columns
        .iter()
        .map(Column::field)
        .collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("trial")
        .with_fields(fields)
        .build()?;
    let header = serde_json::to_string(&record.header)?;
    let properties = WriterProperties::builder()
        .set_created_by(concat!("lowroad ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(HEADER.to_owned(), header)]))
        .build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut rows = file.next_row_group()?;
    let mut columns = columns.iter();
    while let Some(mut writer) = rows.next_column()? {
        if let Some(column) = columns.next() {
            column.cells.write(&mut writer)?;
        }
        writer.close()?;
    }
    rows.close()?;
    file.close()?;
    Ok(())
}

fn columns(trials: &[Trial]) -> Result<Vec<Column>, Error> {
    let mut all = vec![
        text("arm", trials, |trial| Some(trial.arm.clone())),
        count("repeat", trials, |trial| Some(trial.repeat.into())),
        count("attempt", trials, |trial| Some(trial.attempt.into())),
        text("load", trials, |trial| Some(trial.load.clone())),
        count("block", trials, |trial| Some(trial.block as u64)),
        count("order", trials, |trial| Some(trial.order as u64)),
        count("seed", trials, |trial| Some(trial.seed)),
        number("at_s", trials, |trial| Some(trial.at_s)),
        text("flags", trials, |trial| Some(trial.flags.join("; "))),
        text("violations", trials, |trial| {
            Some(trial.violations.join("; "))
        }),
        json("environment", trials, |trial| Some(&trial.environment))?,
    ];
    for name in names(trials, |trial| &trial.values) {
        all.push(number(&format!("values.{name}"), trials, |trial| {
            trial.values.get(name).copied()
        }));
    }
    for name in names(trials, |trial| &trial.counts) {
        all.push(count(&format!("counts.{name}"), trials, |trial| {
            trial.counts.get(name).copied()
        }));
    }
    for name in names(trials, |trial| &trial.histograms) {
        let column = format!("histograms.{name}");
        all.push(json(&column, trials, |trial| trial.histograms.get(name))?);
    }
    for name in names(trials, |trial| &trial.cpu) {
        all.push(number(&format!("cpu.{name}"), trials, |trial| {
            trial.cpu.get(name).copied()
        }));
    }
    all.push(json("stacks", trials, |trial| trial.stacks.as_ref())?);
    if trials.iter().any(|trial| !trial.spans.is_empty()) {
        all.push(json("spans", trials, |trial| Some(&trial.spans))?);
    }
    for name in names(trials, |trial| &trial.noise) {
        all.push(number(&format!("noise.{name}"), trials, |trial| {
            trial.noise.get(name).copied()
        }));
    }
    Ok(all)
}

/// Every key that a map has in any trial.
fn names<'a, V: 'a>(
    trials: &'a [Trial],
    map: impl Fn(&'a Trial) -> &'a BTreeMap<String, V>,
) -> BTreeSet<&'a String> {
    trials.iter().flat_map(|trial| map(trial).keys()).collect()
}

fn text(name: &str, trials: &[Trial], of: impl Fn(&Trial) -> Option<String>) -> Column {
    let cell = |trial| Some(ByteArray::from(of(trial)?.into_bytes()));
    Column::new(name, Cells::Text(trials.iter().map(cell).collect()))
}

fn number(name: &str, trials: &[Trial], of: impl Fn(&Trial) -> Option<f64>) -> Column {
    Column::new(name, Cells::Number(trials.iter().map(of).collect()))
}

fn count(name: &str, trials: &[Trial], of: impl Fn(&Trial) -> Option<u64>) -> Column {
    let cell = |trial| of(trial).map(u64::cast_signed);
    Column::new(name, Cells::Count(trials.iter().map(cell).collect()))
}

fn json<'a, T: Serialize + 'a>(
    name: &str,
    trials: &'a [Trial],
    of: impl Fn(&'a Trial) -> Option<&'a T>,
) -> Result<Column, Error> {
    let cell = |trial| match of(trial) {
        Some(value) => Ok(Some(ByteArray::from(serde_json::to_vec(value)?))),
        None => Ok(None),
    };
    let cells = trials.iter().map(cell).collect::<Result<_, Error>>()?;
    Ok(Column::new(name, Cells::Text(cells)))
}

impl Column {
    fn new(name: &str, cells: Cells) -> Self {
        Self {
            name: name.to_owned(),
            cells,
        }
    }

    fn field(&self) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self.cells {
            Cells::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Cells::Number(_) => (Physical::DOUBLE, None),
            Cells::Count(_) => {
                let unsigned = LogicalType::integer(64, false);
                (Physical::INT64, Some(unsigned))
            }
        };
        let field = Type::primitive_type_builder(&self.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(field))
    }
}

impl Cells {
    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Text(cells) => {
                let (values, levels) = present(cells);
                to.typed::<ByteArrayType>()
                    .write_batch(&values, Some(&levels), None)
            }
            Self::Number(cells) => {
                let (values, levels) = present(cells);
                to.typed::<DoubleType>()
                    .write_batch(&values, Some(&levels), None)
            }
            Self::Count(cells) => {
                let (values, levels) = present(cells);
                to.typed::<Int64Type>()
                    .write_batch(&values, Some(&levels), None)
            }
        }
        .map(|_written| ())
    }
}

/// The values there are, and for each row whether it has one: 1 or 0, as Parquet wants it.
fn present<T: Clone>(cells: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    let levels = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    (cells.iter().flatten().cloned().collect(), levels)
}
