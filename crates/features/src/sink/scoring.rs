//! Adds a model's scores to rows. If rows back up before the output, they are written without scores.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};

use super::queue::DEPTH;
use super::{Error, SchemaRef, Sink};
use crate::model::Scores;

/// Computes classes and probabilities for rows of one schema.
pub trait Scorer: Send {
    /// The class names, in the order of the class numbers.
    fn classes(&self) -> &[String];

    /// A class and a probability for each row, NaN for rows without a result. The error is a message for the user.
    fn score(&mut self, rows: &RecordBatch) -> Result<Scores, String>;
}

/// The number of batches that wait in a queue, maintained by its writer.
#[derive(Clone, Debug, Default)]
pub struct Backlog(pub(super) Arc<AtomicUsize>);

impl Backlog {
    pub fn batches(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether more batches wait than can be scored in time.
    fn is_long(&self) -> bool {
        self.batches() > DEPTH / 2
    }
}

/// The number of rows written without a score so far.
#[derive(Clone, Debug, Default)]
pub struct UnscoredRows(Arc<AtomicU64>);

impl UnscoredRows {
    pub fn rows(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Adds two columns to rows before they reach another sink.
pub struct ScoringSink {
    inner: Box<dyn Sink>,
    scorer: Box<dyn Scorer>,
    schema: SchemaRef,
    backlog: Option<Backlog>,
    unscored: UnscoredRows,
    /// Rows that could not be scored.
    lost: u64,
}

impl ScoringSink {
    /// `inner` receives rows of [`scored_schema`]. With a backlog, rows are not scored while it is long.
    pub fn new(
        inner: Box<dyn Sink>,
        scorer: Box<dyn Scorer>,
        rows: &SchemaRef,
        backlog: Option<Backlog>,
    ) -> Self {
        Self {
            inner,
            scorer,
            schema: scored_schema(rows),
            backlog,
            unscored: UnscoredRows::default(),
            lost: 0,
        }
    }

    pub fn unscored(&self) -> UnscoredRows {
        self.unscored.clone()
    }

    fn columns(&mut self, rows: &RecordBatch) -> Result<[ArrayRef; 2], String> {
        if self.backlog.as_ref().is_some_and(Backlog::is_long) {
            let many = rows.num_rows();
            self.unscored.0.fetch_add(count(rows), Ordering::Relaxed);
            return Ok([
                Arc::new(StringArray::new_null(many)),
                Arc::new(Float64Array::new_null(many)),
            ]);
        }
        let scores = self.scorer.score(rows)?;
        let names = self.scorer.classes();
        let answers = scores.classes.iter().zip(scores.probabilities);
        let answers = answers.map(|(class, share)| (!share.is_nan()).then_some((class, share)));
        let answers: Vec<_> = answers.collect();
        let none = answers.iter().filter(|answer| answer.is_none()).count();
        self.unscored.0.fetch_add(number(none), Ordering::Relaxed);
        let classes = answers.iter().map(|answer| names.get(*answer.as_ref()?.0));
        let shares = answers.iter().map(|answer| answer.map(|(_, share)| share));
        Ok([
            Arc::new(classes.collect::<StringArray>()),
            Arc::new(shares.collect::<Float64Array>()),
        ])
    }
}

impl Sink for ScoringSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let added = self.columns(batch).map_err(|why| {
            self.lost += count(batch);
            Error::Scores(why)
        })?;
        let columns = batch.columns().iter().cloned().chain(added).collect();
        let scored = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        self.inner.write(&scored.map_err(Error::batch)?)
    }

    fn idle(&mut self) {
        self.inner.idle();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn lost(&self) -> u64 {
        self.inner.lost() + self.lost
    }
}

fn count(rows: &RecordBatch) -> u64 {
    number(rows.num_rows())
}

fn number(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for ScoringSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScoringSink").finish_non_exhaustive()
    }
}

/// The schema of rows with the columns of their scores.
pub fn scored_schema(rows: &SchemaRef) -> SchemaRef {
    let field = |name: &str, kind, unit: &str, definition: &str| {
        let metadata = HashMap::from([
            ("unit".to_owned(), unit.to_owned()),
            ("definition".to_owned(), definition.to_owned()),
            ("id".to_owned(), format!("model/{name}")),
        ]);
        Arc::new(Field::new(name, kind, true).with_metadata(metadata))
    };
    let added = [
        field(
            "class",
            DataType::Utf8,
            "",
            "What the model says the row is; null where there was no time to ask, or no answer.",
        ),
        field(
            "class_probability",
            DataType::Float64,
            "ratio",
            "How probable the model takes that to be.",
        ),
    ];
    let fields: Vec<_> = rows.fields().iter().cloned().chain(added).collect();
    Arc::new(Schema::new_with_metadata(fields, rows.metadata().clone()))
}
