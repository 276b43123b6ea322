//! The column of labels: what a row offers, and a sink that adds the label on the way to another one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::forms::bits;
use super::{COLUMN, Error, Labels, Subject};
use crate::sink::{self, Sink};

/// The names of columns that several schemas have for the same.
const SOURCES: &[&str] = &["src_ip", "Src IP", "sourceIPv4Address"];
const DESTINATIONS: &[&str] = &["dst_ip", "Dst IP", "destinationIPv4Address"];
const SOURCES_V6: &[&str] = &["sourceIPv6Address"];
const DESTINATIONS_V6: &[&str] = &["destinationIPv6Address"];
const SOURCE_PORTS: &[&str] = &["src_port", "Src Port", "sourceTransportPort"];
const DESTINATION_PORTS: &[&str] = &["dst_port", "Dst Port", "destinationTransportPort"];
const PROTOCOLS: &[&str] = &["protocol", "Protocol", "protocolIdentifier"];
const FIRSTS: &[&str] = &[
    "first_seen",
    "Timestamp",
    "bidirectional_first_seen_ms",
    "flowStartNanoseconds",
    "time",
];
const LASTS: &[&str] = &[
    "last_seen",
    "bidirectional_last_seen_ms",
    "flowEndNanoseconds",
    "time",
];
/// Where the last time is the first one and a duration in microseconds.
const DURATIONS: &[&str] = &["Flow Duration"];

/// Adds a column with labels to rows on their way to another sink.
pub struct Labeller {
    inner: Box<dyn Sink>,
    labels: Arc<Labels>,
    places: Places,
    schema: SchemaRef,
    rows: u64,
    labelled: u64,
    /// Rows that could not be labelled.
    lost: u64,
}

/// Where the columns are by which labels are joined.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// Of IPv4 or of both versions, and those of IPv6 where they are others.
    sources: [Option<usize>; 2],
    destinations: [Option<usize>; 2],
    ports: [usize; 2],
    protocol: usize,
    first: usize,
    last: Option<usize>,
    duration: Option<usize>,
}

impl Labeller {
    /// `inner` takes rows of [`labelled_schema`].
    pub fn new(inner: Box<dyn Sink>, labels: Arc<Labels>, rows: &SchemaRef) -> Result<Self, Error> {
        Ok(Self {
            inner,
            labels,
            places: Places::of(rows)?,
            schema: labelled_schema(rows)?,
            rows: 0,
            labelled: 0,
            lost: 0,
        })
    }

    /// Refuses rows without the columns by which labels are joined.
    pub fn check(rows: &SchemaRef) -> Result<(), Error> {
        Places::of(rows).map(|_| ())
    }

    fn column(&self, rows: &RecordBatch) -> Result<StringArray, String> {
        let subjects = self.places.subjects(rows)?;
        let labels = subjects
            .iter()
            .map(|subject| self.labels.label(subject.as_ref()?));
        Ok(labels.collect())
    }
}

impl Sink for Labeller {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), sink::Error> {
        let count = u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        let labels = self.column(batch).map_err(|why| {
            self.lost += count;
            sink::Error::Labels(why)
        })?;
        self.rows += count;
        let unlabelled = u64::try_from(labels.null_count()).unwrap_or(0);
        self.labelled += count.saturating_sub(unlabelled);
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(labels));
        let labelled = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        self.inner.write(&labelled.map_err(sink::Error::batch)?)
    }

    fn idle(&mut self) {
        self.inner.idle();
    }

    fn finish(&mut self) -> Result<(), sink::Error> {
        if self.rows > 0 && self.labelled == 0 {
            tracing::warn!(
                "no row has a label: compare the times and addresses of the labels with those of the rows"
            );
        }
        self.inner.finish()
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn lost(&self) -> u64 {
        self.inner.lost() + self.lost
    }
}

impl std::fmt::Debug for Labeller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Labeller").finish_non_exhaustive()
    }
}

/// The columns of rows, and that of their labels.
pub fn labelled_schema(rows: &SchemaRef) -> Result<SchemaRef, Error> {
    if rows.field_with_name(COLUMN).is_ok() {
        return Err(Error::Already);
    }
    let metadata = HashMap::from([
        ("unit".to_owned(), String::new()),
        (
            "definition".to_owned(),
            "What the file of labels says of the flow; null where none of its lines matches."
                .to_owned(),
        ),
        ("id".to_owned(), "labels/label".to_owned()),
    ]);
    let field = Arc::new(Field::new(COLUMN, DataType::Utf8, true).with_metadata(metadata));
    let fields: Vec<_> = rows.fields().iter().cloned().chain([field]).collect();
    let schema = Schema::new_with_metadata(fields, rows.metadata().clone());
    Ok(Arc::new(schema))
}

impl Places {
    fn of(rows: &Schema) -> Result<Self, Error> {
        let find = |names: &[&'static str]| {
            let mut places = names.iter().filter_map(|name| rows.index_of(name).ok());
            places.next()
        };
        let needed = |names: &[&'static str]| {
            find(names).ok_or_else(|| Error::NoColumn(names.first().copied().unwrap_or("")))
        };
        let addresses = |names: &[&'static str], others: &[&'static str]| {
            let places = [find(names), find(others)];
            match places {
                [None, None] => needed(names).map(|_| places),
                _ => Ok(places),
            }
        };
        let places = Self {
            sources: addresses(SOURCES, SOURCES_V6)?,
            destinations: addresses(DESTINATIONS, DESTINATIONS_V6)?,
            ports: [needed(SOURCE_PORTS)?, needed(DESTINATION_PORTS)?],
            protocol: needed(PROTOCOLS)?,
            first: needed(FIRSTS)?,
            last: find(LASTS),
            duration: find(DURATIONS),
        };
        // Refuses other types before the first row.
        let empty = RecordBatch::new_empty(Arc::new(rows.clone()));
        places.subjects(&empty).map_err(Error::Type)?;
        Ok(places)
    }

    /// What each row offers, or none where it has no addresses; or the column whose type is not supported.
    fn subjects(&self, rows: &RecordBatch) -> Result<Vec<Option<Subject>>, String> {
        let sources = addresses(rows, self.sources)?;
        let destinations = addresses(rows, self.destinations)?;
        let [from, to] = [
            integers(rows, self.ports[0])?,
            integers(rows, self.ports[1])?,
        ];
        let protocols = integers(rows, self.protocol)?;
        let firsts = times(rows, self.first)?;
        let lasts = match (self.last, self.duration) {
            (Some(last), _) => times(rows, last)?,
            (None, Some(duration)) => add_durations(&firsts, &microseconds(rows, duration)?),
            (None, None) => firsts.clone(),
        };
        let subject = |row: usize| {
            let (first_ns, _) = firsts[row]?;
            Some(Subject {
                first_ns,
                last_ns: lasts[row].map_or(first_ns, |(_, last_ns)| last_ns),
                addresses: [sources[row]?, destinations[row]?],
                ports: [from[row], to[row]].map(|port| {
                    port.and_then(|port| u16::try_from(port).ok())
                        .unwrap_or_default()
                }),
                protocol: u8::try_from(protocols[row]?).ok()?,
            })
        };
        Ok((0..rows.num_rows()).map(subject).collect())
    }
}

/// The first and the last nanosecond that a time stands for.
type Time = Option<(i64, i64)>;

fn name(rows: &RecordBatch, place: usize) -> String {
    rows.schema_ref().field(place).name().clone()
}

fn addresses(rows: &RecordBatch, places: [Option<usize>; 2]) -> Result<Vec<Option<u128>>, String> {
    let mut all = vec![None; rows.num_rows()];
    for place in places.into_iter().flatten() {
        let column = rows.column(place);
        let text = |row: usize| match column.data_type() {
            DataType::LargeUtf8 => column.as_string::<i64>().value(row),
            _ => column.as_string::<i32>().value(row),
        };
        if !matches!(column.data_type(), DataType::Utf8 | DataType::LargeUtf8) {
            return Err(name(rows, place));
        }
        for (row, address) in all.iter_mut().enumerate() {
            if !column.is_null(row) {
                *address = text(row).parse::<IpAddr>().ok().map(bits).or(*address);
            }
        }
    }
    Ok(all)
}

fn integers(rows: &RecordBatch, place: usize) -> Result<Vec<Option<i64>>, String> {
    macro_rules! values {
        ($type:ty) => {
            rows.column(place)
                .as_primitive::<$type>()
                .iter()
                .map(|value| value.and_then(|value| i64::try_from(value).ok()))
                .collect()
        };
    }
    Ok(match rows.column(place).data_type() {
        DataType::UInt8 => values!(UInt8Type),
        DataType::UInt16 => values!(UInt16Type),
        DataType::UInt32 => values!(UInt32Type),
        DataType::UInt64 => values!(UInt64Type),
        DataType::Int64 => values!(Int64Type),
        _ => return Err(name(rows, place)),
    })
}

fn times(rows: &RecordBatch, place: usize) -> Result<Vec<Time>, String> {
    let column = rows.column(place);
    let (values, unit_ns): (Vec<Option<i64>>, i64) = match column.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let column = column.as_primitive::<TimestampNanosecondType>();
            (column.iter().collect(), 1)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let column = column.as_primitive::<TimestampMicrosecondType>();
            (column.iter().collect(), 1000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            let column = column.as_primitive::<TimestampMillisecondType>();
            (column.iter().collect(), 1_000_000)
        }
        DataType::Int64 if name(rows, place).ends_with("_ms") => {
            (integers(rows, place)?, 1_000_000)
        }
        _ => return Err(name(rows, place)),
    };
    let range = |value: i64| {
        let first = value.saturating_mul(unit_ns);
        (first, first.saturating_add(unit_ns - 1))
    };
    Ok(values.into_iter().map(|value| value.map(range)).collect())
}

fn microseconds(rows: &RecordBatch, place: usize) -> Result<Vec<Option<f64>>, String> {
    match rows.column(place).data_type() {
        DataType::Float64 => {
            let column = rows.column(place).as_primitive::<Float64Type>();
            Ok(column.iter().collect())
        }
        _ => Err(name(rows, place)),
    }
}

fn add_durations(firsts: &[Time], durations: &[Option<f64>]) -> Vec<Time> {
    let pairs = firsts.iter().zip(durations);
    let later = pairs.map(|(first, duration)| {
        let (first, last) = (*first)?;
        #[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
        let duration_ns = (duration.unwrap_or_default() * 1000.0) as i64;
        Some((first, last.saturating_add(duration_ns)))
    });
    later.collect()
}
