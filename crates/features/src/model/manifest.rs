//! `model.toml`: the definitions of a model's inputs and classes.

use std::path::Path;

use serde::Deserialize;

use super::action::Action;
use super::compile::{Input, compile};
use super::forest::Forest;
use super::quantity::Quantity;
use super::{Class, Column, Error, FORMAT, Model, Onnx, Packets, import, known};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    name: String,
    /// The file saved by the training program, beside the manifest. Either this or `onnx` is present.
    trees: Option<String>,
    onnx: Option<String>,
    /// The schema that the columns are of.
    schema: String,
    /// The model's inputs in its order.
    columns: Vec<Entry>,
    classes: Vec<Class>,
    /// The least probability of the second of two classes.
    threshold: Option<f64>,
    packets: Option<Packets>,
}

/// `"tree.v1/packets"`, or `{ id = "flow.v1/iat_min_ns", null = -1 }`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Id(String),
    Filled(ColumnDefault),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnDefault {
    id: String,
    /// The value that the training used for missing values.
    null: Option<i64>,
}

impl Manifest {
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::model(&one_line(&error.to_string())))
    }

    /// Whether the manifest names a model in ONNX.
    pub(super) fn is_onnx(&self) -> bool {
        self.onnx.is_some()
    }

    /// Reads the trees, and compiles them.
    pub(super) fn model(self, folder: &Path) -> Result<Model, Error> {
        let trees = match (&self.trees, &self.onnx) {
            (Some(trees), None) => trees,
            (None, Some(_)) => {
                return Err(Error::model(
                    "is ONNX, which rows are scored with; trees are what is compiled, and what the kernel asks",
                ));
            }
            _ => return Err(Error::model("names neither trees nor onnx, or both")),
        };
        let path = folder.join(trees);
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        let forest = import::read(&bytes).map_err(|error| error.at(&path))?;
        let (columns, inputs) = self.inputs(trees, &forest)?;
        self.check_classes(trees, &forest)?;
        let threshold = self.threshold()?;
        Ok(Model {
            format: FORMAT.to_owned(),
            columns,
            packets: self.packets.unwrap_or_default(),
            link: forest.link,
            forest: compile(&forest, &inputs, threshold)?,
            name: self.name,
            schema: self.schema,
            classes: self.classes,
        })
    }

    /// The contents of a manifest for a model in ONNX.
    pub(super) fn onnx(self, folder: &Path) -> Result<Onnx, Error> {
        let Some(file) = self.onnx.as_ref().filter(|_| self.trees.is_none()) else {
            return Err(Error::model("names neither trees nor onnx, or both"));
        };
        let acts = |class: &Class| class.action != Action::Pass;
        if self.packets.is_some() || self.classes.iter().any(acts) {
            return Err(Error::model(
                "is ONNX, which the kernel does not ask: leave packets and actions out",
            ));
        }
        if self.classes.len() < 2 {
            return Err(Error::model("names fewer than two classes"));
        }
        let columns = self.columns()?;
        for column in &columns {
            known(&self.schema, column)?;
        }
        Ok(Onnx {
            file: folder.join(file),
            columns,
            threshold: self.threshold()?,
            has_nulls: self.schema != super::NEVER_NULL,
            name: self.name,
            schema: self.schema,
            classes: self.classes.into_iter().map(|class| class.name).collect(),
        })
    }

    fn threshold(&self) -> Result<f64, Error> {
        let threshold = self.threshold.unwrap_or(0.5);
        if !(threshold > 0.0 && threshold < 1.0) {
            return Err(Error::model("threshold is a probability between 0 and 1"));
        }
        if self.threshold.is_some() && self.classes.len() != 2 {
            return Err(Error::model(
                "threshold is for two classes; of more, the most probable is taken",
            ));
        }
        Ok(threshold)
    }

    fn columns(&self) -> Result<Vec<Column>, Error> {
        self.columns.iter().map(Entry::column).collect()
    }

    fn inputs(&self, trees: &str, forest: &Forest) -> Result<(Vec<Column>, Vec<Input>), Error> {
        let columns = self.columns()?;
        if columns.len() != forest.inputs {
            return Err(Error::model(&format!(
                "names {} columns, and {trees} has {} inputs",
                columns.len(),
                forest.inputs
            )));
        }
        let mut inputs = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let description = known(&self.schema, column)?;
            let theirs = forest.names.as_ref().map(|names| names[at].as_str());
            if let Some(theirs) = theirs.filter(|theirs| !column.is_called(theirs)) {
                return Err(Error::model(&format!(
                    "column {} is {}, and {trees} calls its input {theirs}: give the columns in the order of the training",
                    at + 1,
                    column.id
                )));
            }
            inputs.push(Input {
                name: description.name.to_owned(),
                quantity: column.quantity,
                nullable: column.null.is_none() && self.schema != super::NEVER_NULL,
            });
        }
        Ok((columns, inputs))
    }

    fn check_classes(&self, trees: &str, forest: &Forest) -> Result<(), Error> {
        if self.classes.len() != forest.classes {
            return Err(Error::model(&format!(
                "names {} classes, and {trees} has {}",
                self.classes.len(),
                forest.classes
            )));
        }
        for (class, label) in self.classes.iter().zip(forest.labels.iter().flatten()) {
            // Numeric labels are specific to a training run, but names carry meaning and must match.
            if label.parse::<f64>().is_err() && *label != class.name {
                return Err(Error::model(&format!(
                    "class {} is called {label} in {trees}: give the classes in its order",
                    class.name
                )));
            }
        }
        Ok(())
    }
}

impl Entry {
    fn column(&self) -> Result<Column, Error> {
        let (id, null) = match self {
            Self::Id(id) => (id, None),
            Self::Filled(filled) => (&filled.id, filled.null),
        };
        let description = super::describe(id)?;
        let quantity = Quantity::of(description.kind)
            .ok_or_else(|| Error::model(&format!("{id} is {}, no number", description.kind)))?;
        Ok(Column {
            id: id.clone(),
            quantity,
            null,
        })
    }
}

/// TOML's errors show the line in several.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(" ").trim().to_owned()
}
