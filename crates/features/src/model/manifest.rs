//! `model.toml`: what a model's inputs are, and what its classes mean.

use std::path::Path;

use serde::Deserialize;

use super::compile::{Input, compile};
use super::forest::Forest;
use super::quantity::Quantity;
use super::{Class, Column, Error, FORMAT, Model, Packets, import, known};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    name: String,
    /// The file that the training has saved, beside the manifest.
    trees: String,
    /// The schema that the columns are of.
    schema: String,
    /// The model's inputs in its order.
    columns: Vec<Entry>,
    classes: Vec<Class>,
    /// The least probability of the second of two classes.
    threshold: Option<f64>,
    #[serde(default)]
    packets: Packets,
}

/// `"tree.v1/packets"`, or `{ id = "flow.v1/iat_min_ns", null = -1 }`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Id(String),
    Filled(Filled),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filled {
    id: String,
    /// What the training put where there was no value.
    null: Option<i64>,
}

impl Manifest {
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::model(&one_line(&error.to_string())))
    }

    /// Reads the trees, and compiles them.
    pub(super) fn model(self, folder: &Path) -> Result<Model, Error> {
        let path = folder.join(&self.trees);
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        let forest = import::read(&bytes).map_err(|error| error.at(&path))?;
        let (columns, inputs) = self.inputs(&forest)?;
        self.check_classes(&forest)?;
        let threshold = self.threshold.unwrap_or(0.5);
        if !(threshold > 0.0 && threshold < 1.0) {
            return Err(Error::model("threshold is a probability between 0 and 1"));
        }
        if self.threshold.is_some() && forest.classes != 2 {
            return Err(Error::model(
                "threshold is for two classes; of more, the most probable is taken",
            ));
        }
        Ok(Model {
            format: FORMAT.to_owned(),
            name: self.name,
            schema: self.schema,
            columns,
            classes: self.classes,
            packets: self.packets,
            link: forest.link,
            forest: compile(&forest, &inputs, threshold)?,
        })
    }

    fn inputs(&self, forest: &Forest) -> Result<(Vec<Column>, Vec<Input>), Error> {
        let columns: Result<Vec<Column>, Error> = self.columns.iter().map(Entry::column).collect();
        let columns = columns?;
        if columns.len() != forest.inputs {
            return Err(Error::model(&format!(
                "names {} columns, and {} has {} inputs",
                columns.len(),
                self.trees,
                forest.inputs
            )));
        }
        let mut inputs = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let description = known(&self.schema, column)?;
            let theirs = forest.names.as_ref().map(|names| names[at].as_str());
            if let Some(theirs) = theirs.filter(|theirs| !column.is_called(theirs)) {
                return Err(Error::model(&format!(
                    "column {} is {}, and {} calls its input {theirs}: give the columns in the order of the training",
                    at + 1,
                    column.id,
                    self.trees
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

    fn check_classes(&self, forest: &Forest) -> Result<(), Error> {
        if self.classes.len() != forest.classes {
            return Err(Error::model(&format!(
                "names {} classes, and {} has {}",
                self.classes.len(),
                self.trees,
                forest.classes
            )));
        }
        for (class, label) in self.classes.iter().zip(forest.labels.iter().flatten()) {
            // Numbers are a training's own; names are for people, and mean something.
            if label.parse::<f64>().is_err() && *label != class.name {
                return Err(Error::model(&format!(
                    "class {} is called {label} in {}: give the classes in its order",
                    class.name, self.trees
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
