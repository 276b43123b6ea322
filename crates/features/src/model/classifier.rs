//! A model that rows are scored with: trees in this process, or a network in another.

use std::path::Path;

use arrow_schema::Schema;

use super::{Error, Model, Network, Onnx, Search, TreeScorer};
use crate::sink::Scorer;

/// A model that rows can be put before.
#[derive(Debug)]
pub enum Classifier {
    Trees(Model),
    Network(Network),
}

impl Classifier {
    /// Reads a manifest and the file that it names, or a compiled model of trees. `search` says where the program
    /// is that evaluates ONNX.
    pub fn load(path: &Path, search: &Search) -> Result<Self, Error> {
        Ok(match Onnx::load(path)? {
            Some(onnx) => Self::Network(Network::load(onnx, search)?),
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

    /// The names of its inputs among the columns of its schema.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let columns = match self {
            Self::Trees(model) => &model.columns,
            Self::Network(network) => &network.onnx().columns,
        };
        columns
            .iter()
            .filter_map(|column| Some(column.id.split_once('/')?.1))
    }

    /// Asks it about rows of this schema, or says why they do not fit.
    pub fn scorer(self, rows: &Schema) -> Result<Box<dyn Scorer>, Error> {
        Ok(match self {
            Self::Trees(model) => Box::new(TreeScorer::new(model, rows)?),
            Self::Network(network) => Box::new(network.scorer(rows)?),
        })
    }
}
