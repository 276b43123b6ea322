//! A model in ONNX. `lowroad-onnx` evaluates it on rows.

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use onnx_protocol::{Column as Input, Evaluator, LoadError, Model, PROGRAM, ScoreError};

use super::{Error, Onnx, Places, Quantity, Scores, Search, places};
use crate::sink::Scorer;

/// A model that fits its manifest, and the process that evaluates it.
#[derive(Debug)]
pub struct Network {
    onnx: Onnx,
    evaluator: Evaluator,
}

impl Network {
    /// Loads the file that a manifest names, and checks that it fits the manifest.
    pub fn load(onnx: Onnx, search: &Search) -> Result<Self, Error> {
        let path = onnx.file.clone();
        let evaluator = Evaluator::load(search, model(&onnx)).map_err(|error| match error {
            LoadError::Missing(missing) => Error::Missing {
                model: onnx.name.clone(),
                missing,
            },
            LoadError::Unreadable(error) => Error::io(&path, error),
            LoadError::Invalid(reason) => Error::Model(reason).at(&path),
        });
        Ok(Self {
            evaluator: evaluator?,
            onnx,
        })
    }

    /// The contents of the manifest.
    pub fn onnx(&self) -> &Onnx {
        &self.onnx
    }

    /// The number of operators that are evaluated per batch.
    pub fn operators(&self) -> usize {
        self.evaluator.operators()
    }

    /// Creates a scorer for rows of this schema.
    pub fn scorer(self, rows: &Schema) -> Result<NetworkScorer, Error> {
        Ok(NetworkScorer {
            places: places(&self.onnx.name, &self.onnx.columns, rows)?,
            network: self,
        })
    }
}

fn model(onnx: &Onnx) -> Model {
    let input = |column: &super::Column| Input {
        id: column.id.clone(),
        is_integer: column.quantity == Quantity::Integer,
        replaces_null: column.null.is_some(),
    };
    let columns = onnx.columns.iter().map(input).collect();
    let classes = onnx.classes.clone();
    Model::new(&onnx.file, columns, onnx.has_nulls, classes, onnx.threshold)
}

/// A model with the positions of its columns.
#[derive(Debug)]
pub struct NetworkScorer {
    network: Network,
    places: Places,
}

impl Scorer for NetworkScorer {
    fn classes(&self) -> &[String] {
        &self.network.onnx.classes
    }

    fn score(&mut self, rows: &RecordBatch) -> Result<Scores, String> {
        let Onnx { columns, name, .. } = &self.network.onnx;
        let inputs: Vec<Vec<f64>> = self.places.numbers(columns, rows).collect();
        let scores = self.network.evaluator.score(&inputs);
        let scores = scores.map_err(|error| match error {
            ScoreError::Invalid(why) => format!("the model {name} {why}"),
            ScoreError::Ended(why) => {
                format!("{PROGRAM}, which evaluates the model {name}, {why}")
            }
        })?;
        Ok(Scores {
            classes: scores.classes,
            probabilities: scores.probabilities,
        })
    }
}
