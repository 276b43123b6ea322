//! Models of trees: read as they were trained, compiled to integers, and asked about rows. Those in ONNX
//! are evaluated by another program, `lowroad-onnx` (`network`).
//!
//! A manifest says which columns a model's inputs are, by schema and name: definitions that never
//! change. What does not fit is refused. The kernel evaluates the same integers (`crate::kernel`).

mod action;
mod classifier;
mod compile;
pub mod forest;
pub mod import;
mod integer;
mod manifest;
mod network;
mod quantity;
mod rows;
mod scorer;

pub use action::{ACTIONS, Action, Class};
pub use classifier::Classifier;
pub use integer::{IntegerForest, IntegerNode, IntegerTree, MISSING};
pub use network::{Network, NetworkScorer};
pub use onnx_protocol::Search;
pub use quantity::Quantity;
pub use rows::{Places, Scores, places};
pub use scorer::TreeScorer;

use std::path::{Path, PathBuf};

use arrow_schema::Schema as ArrowSchema;
use datapath::{Classify, ErrorClass, Missing};
use serde::{Deserialize, Serialize};

use crate::schema::{self, Description};
use forest::Link;
use manifest::Manifest;

/// Of a compiled model.
const FORMAT: &str = "lowroad-model-1";
/// The schema that has no nulls.
const NEVER_NULL: &str = "tree.v1";

/// A model, compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    format: String,
    pub name: String,
    /// The schema that its columns are of.
    pub schema: String,
    pub columns: Vec<Column>,
    pub classes: Vec<Class>,
    /// When it is asked in the kernel.
    #[serde(default)]
    pub packets: Packets,
    link: Link,
    pub forest: IntegerForest,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Schema and name: the definition.
    pub id: String,
    pub quantity: Quantity,
    /// The value used for null; by default the trees define its direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<i64>,
}

/// The contents of a manifest for a model in ONNX.
#[derive(Clone, Debug, PartialEq)]
pub struct Onnx {
    pub name: String,
    pub file: PathBuf,
    /// The schema that its columns are of.
    pub schema: String,
    /// The inputs, in the model's order.
    pub columns: Vec<Column>,
    /// Whether the schema's columns may be null.
    pub has_nulls: bool,
    pub classes: Vec<String>,
    /// The least probability of the second of two classes.
    pub threshold: f64,
}

/// The packets of a flow after which a model is asked in the kernel: from the first to the last of
/// these, until its answer is a class with another action than to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    pub first: u32,
    pub last: u32,
}

impl Default for Packets {
    fn default() -> Self {
        Self { first: 8, last: 8 }
    }
}

/// The reason that a model could not be loaded, or rows could not be scored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}: {what}")]
    In { path: String, what: String },
    #[error("the model {0}")]
    Model(String),
    #[error("{0}")]
    Rows(String),
    /// This machine cannot evaluate the model.
    #[error("{model}: {}; {}", missing.what, missing.remedy)]
    Missing { model: String, missing: Missing },
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. } | Self::In { .. } | Self::Model(_) | Self::Rows(_) => ErrorClass::Input,
            Self::Missing { .. } => ErrorClass::Missing,
        }
    }

    fn missing(&self) -> Vec<(String, Missing)> {
        match self {
            Self::Missing { model, missing } => vec![(model.clone(), missing.clone())],
            _ => Vec::new(),
        }
    }
}

impl Error {
    pub fn model(what: &str) -> Self {
        Self::Model(what.to_owned())
    }

    pub fn io(path: &Path, source: std::io::Error) -> Self {
        let path = path.display().to_string();
        Self::Io { path, source }
    }

    /// The same, with the file that the model is in.
    pub fn at(self, path: &Path) -> Self {
        match self {
            Self::Model(what) => Self::In {
                path: path.display().to_string(),
                what,
            },
            other => other,
        }
    }
}

impl Model {
    /// Reads a manifest (`.toml`) and compiles the trees that it names, or reads what was compiled.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        let model = if is_compiled(&text) {
            Self::compiled(&text)
        } else {
            let folder = path.parent().unwrap_or_else(|| Path::new("."));
            Manifest::read(&text).and_then(|manifest| manifest.model(folder))
        };
        let model = model.map_err(|error| error.at(path))?;
        model.check().map_err(|error| error.at(path))?;
        Ok(model)
    }

    fn compiled(text: &str) -> Result<Self, Error> {
        let model: Self = serde_json::from_str(text).map_err(|error| {
            Error::model(&format!("is no compiled model that can be read: {error}"))
        })?;
        if model.format != FORMAT {
            let what = format!("is of format {}; {FORMAT} is read", model.format);
            return Err(Error::Model(what));
        }
        Ok(model)
    }

    /// Finds the model's columns among those of rows.
    pub fn bind(&self, rows: &ArrowSchema) -> Result<Places, Error> {
        places(&self.name, &self.columns, rows)
    }

    /// As a file that [`Model::load`] reads.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn check(&self) -> Result<(), Error> {
        for column in &self.columns {
            let description = known(&self.schema, column)?;
            if Quantity::of(description.kind) != Some(column.quantity) {
                let what = format!("takes {} for another kind of number", column.id);
                return Err(Error::Model(what));
            }
        }
        if self.forest.base.len() != forest::outputs_of(self.classes.len()) {
            let what = "has outputs for another number of classes than it names";
            return Err(Error::model(what));
        }
        let Packets { first, last } = self.packets;
        if first == 0 || last < first {
            return Err(Error::model(
                "is asked from packets.first, at least 1, to packets.last, which is not before it",
            ));
        }
        let checked = self.forest.check(self.columns.len());
        checked.map_err(|why| Error::model(&why))
    }
}

impl Onnx {
    /// Reads a manifest; nothing where it is of trees.
    pub fn load(path: &Path) -> Result<Option<Self>, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        if is_compiled(&text) {
            return Ok(None);
        }
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let manifest = Manifest::read(&text).map_err(|error| error.at(path))?;
        let onnx = manifest.is_onnx().then(|| manifest.onnx(folder));
        onnx.transpose().map_err(|error| error.at(path))
    }
}

impl Column {
    /// Whether a training that calls an input so may mean this column.
    fn is_called(&self, name: &str) -> bool {
        self.id == name || self.id.split_once('/').is_some_and(|(_, own)| own == name)
    }
}

fn is_compiled(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The column that an id names.
fn describe(id: &str) -> Result<Description, Error> {
    let unknown = || {
        Error::Model(format!(
            "names {id}, which is no column: lowroad features schema NAME lists those of a schema, as NAME/COLUMN"
        ))
    };
    let (schema, name) = id.split_once('/').ok_or_else(unknown)?;
    let columns = schema::find(schema).ok_or_else(unknown)?.columns();
    let column = columns.into_iter().find(|column| column.name == name);
    column.ok_or_else(unknown)
}

/// The column of a model's, which must be of its schema.
fn known(schema: &str, column: &Column) -> Result<Description, Error> {
    if column.id.split_once('/').map(|(own, _)| own) != Some(schema) {
        let what = format!(
            "has {} among its columns, and {schema} for its schema",
            column.id
        );
        return Err(Error::Model(what));
    }
    describe(&column.id)
}
