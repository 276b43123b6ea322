//! A model of trees as a sink asks it.

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::{Error, Model, Places, Scores};
use crate::sink::Scorer;

/// A model and where its columns are.
#[derive(Clone, Debug)]
pub struct TreeScorer {
    model: Model,
    places: Places,
    classes: Vec<String>,
}

impl TreeScorer {
    /// For rows of this schema.
    pub fn new(model: Model, rows: &Schema) -> Result<Self, Error> {
        Ok(Self {
            places: model.bind(rows)?,
            classes: model
                .classes
                .iter()
                .map(|class| class.name.clone())
                .collect(),
            model,
        })
    }
}

impl Scorer for TreeScorer {
    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn score(&mut self, rows: &RecordBatch) -> Result<Scores, String> {
        Ok(self.model.score(&self.places, rows))
    }
}
