//! A model in ONNX, planned for any number of rows, and asked about them.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use onnx_protocol::Model;
use tract_onnx::prelude::{InferenceModelExt, IntoRunnable, TypedRunnableModel};

use crate::budget;
use crate::graph::{Graph, describe};
use crate::inputs::Inputs;
use crate::output::{self, Scores};

/// A model that fits its manifest.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    model: Model,
    inputs: Inputs,
    plan: Arc<TypedRunnableModel>,
}

/// Why there is no model.
#[derive(Debug)]
pub(crate) enum LoadError {
    File(io::Error),
    /// Goes on after the file's name.
    Model(String),
}

/// Rows for the trial run of a model: the same number in every column.
const TRIAL_ROWS: [f64; 3] = [0.0, 1.0, 1e6];

impl Network {
    /// Reads the file that a manifest names, and refuses what does not fit.
    pub(crate) fn load(model: Model) -> Result<Self, LoadError> {
        let path = model.file();
        let size = std::fs::metadata(&path).map_err(LoadError::File)?.len();
        budget::limit_memory(size)
            .and_then(|()| budget::limit_loading(size))
            .map_err(LoadError::File)?;
        let bytes = std::fs::read(&path).map_err(LoadError::File)?;
        // What tract takes for granted of a file it asserts.
        let network = catch_unwind(AssertUnwindSafe(|| Self::read(model, &path, &bytes)));
        let network = network.unwrap_or_else(|panic| Err(meaning(&*panic)));
        network.map_err(LoadError::Model)
    }

    fn read(manifest: Model, path: &Path, bytes: &[u8]) -> Result<Self, String> {
        let graph = Graph::read(bytes)?;
        check_labels(graph.labels.as_deref(), &manifest.classes)?;
        let unsaid = manifest.columns.iter().find(|column| !column.replaces_null);
        if let Some(column) = unsaid.filter(|_| manifest.has_nulls && !graph.knows_missing) {
            let id = &column.id;
            return Err(format!(
                "does not say what becomes of a missing value, and {id} may be null: {}",
                null_remedy(id)
            ));
        }
        let inputs = Inputs::of(&graph.inputs(), &manifest.columns, manifest.has_nulls)?;
        let folder = path.parent().unwrap_or(path);
        let mut model = graph.parse(folder)?;
        let rows = model.symbols.new_with_prefix("rows");
        for (at, fact) in inputs.facts(&rows).enumerate() {
            let set = model.set_input_fact(at, fact);
            set.map_err(|error| describe(&error))?;
        }
        let plan = model.into_optimized().and_then(IntoRunnable::into_runnable);
        let network = Self {
            model: manifest,
            inputs,
            plan: plan.map_err(|error| describe(&error))?,
        };
        network.try_out()?;
        Ok(network)
    }

    /// Columns that a batch has.
    pub(crate) fn columns(&self) -> usize {
        self.model.columns.len()
    }

    /// Operators that are evaluated for each batch.
    pub(crate) fn operators(&self) -> usize {
        self.plan.model().nodes().len()
    }

    /// The class of each row and its probability, given the values of all columns. Errors go on after the model's
    /// name.
    pub(crate) fn score(&self, columns: &[Vec<f64>]) -> Result<Scores, String> {
        let numbers = self.numbers(columns)?;
        let Model {
            classes, threshold, ..
        } = &self.model;
        Ok(output::scores(&numbers, classes.len(), *threshold))
    }

    /// Probabilities come out, whatever goes in, or it is not asked at all.
    fn try_out(&self) -> Result<(), String> {
        let columns = vec![TRIAL_ROWS.to_vec(); self.model.columns.len()];
        let numbers = self.numbers(&columns)?;
        let mut rows = numbers.chunks_exact(self.model.classes.len());
        if !rows.all(output::is_shares) {
            return Err("gives numbers that are not probabilities: let it end in Softmax, or in Sigmoid for the second of two classes".to_owned());
        }
        Ok(())
    }

    fn numbers(&self, columns: &[Vec<f64>]) -> Result<Vec<f64>, String> {
        let rows = columns.first().map_or(0, Vec::len);
        let tensors = self
            .inputs
            .tensors(columns)
            .map_err(|error| describe(&error))?;
        let outputs = self
            .plan
            .run(tensors.into())
            .map_err(|error| describe(&error))?;
        let output = outputs.first().ok_or("gives nothing")?;
        output::numbers(output, rows, self.model.classes.len())
    }
}

/// What a panic of tract says about a model.
fn meaning(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>();
    let what = match message.is_some_and(|message| message.starts_with("failed to allocate")) {
        true => "takes more memory than a model of its size may",
        false => "does not hang together",
    };
    what.to_owned()
}

/// What to do about nulls.
pub(crate) fn null_remedy(id: &str) -> String {
    format!("say what the training put there, {{ id = \"{id}\", null = -1 }}")
}

/// Names are for people, and mean something; numbers are a training's own, and not among these.
fn check_labels(labels: Option<&[String]>, classes: &[String]) -> Result<(), String> {
    let Some(labels) = labels else { return Ok(()) };
    if labels.len() != classes.len() {
        let (found, named) = (labels.len(), classes.len());
        return Err(format!(
            "distinguishes {found} classes, and the manifest names {named}"
        ));
    }
    for (label, class) in labels.iter().zip(classes) {
        if label.parse::<f64>().is_err() && label != class {
            return Err(format!(
                "calls {label} what the manifest calls {class}: give the classes in its order"
            ));
        }
    }
    Ok(())
}
