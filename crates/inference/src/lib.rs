//! Models asked about rows: trees as `features` compiles them, and whatever else is in ONNX, evaluated by
//! tract. A crate of its own, because a capture needs none of it.
//!
//! What a model's columns are, and that rows have them, is decided in `features::model` for both.

mod graph;
mod inputs;
mod network;
mod output;
mod plain;
mod trees;

use std::path::Path;

use arrow_schema::Schema;
use features::model::{Error, Model, Onnx, TreeScorer};
use features::sink::Scorer;

pub use network::{Network, NetworkScorer};

/// A model that rows can be put before.
#[derive(Clone, Debug)]
pub enum Classifier {
    Trees(Model),
    Network(Network),
}

impl Classifier {
    /// Reads a manifest and the file that it names, or a compiled model of trees.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Ok(match Onnx::load(path)? {
            Some(onnx) => Self::Network(Network::load(onnx)?),
            None => Self::Trees(Model::load(path)?),
        })
    }

    /// The schema that its columns are of.
    pub fn schema(&self) -> &str {
        match self {
            Self::Trees(model) => &model.schema,
            Self::Network(network) => &network.onnx().schema,
        }
    }

    /// Asks it about rows of this schema, or says why they do not fit.
    pub fn scorer(self, rows: &Schema) -> Result<Box<dyn Scorer>, Error> {
        Ok(match self {
            Self::Trees(model) => Box::new(TreeScorer::new(model, rows)?),
            Self::Network(network) => Box::new(network.scorer(rows)?),
        })
    }
}
