//! A model in ONNX, planned for any number of rows, and asked about them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use features::model::{Error, Onnx, Places, Scores, places};
use features::sink::Scorer;
use tract_onnx::prelude::{InferenceModelExt, IntoRunnable, TypedRunnableModel};

use crate::graph::{Graph, said};
use crate::inputs::Inputs;
use crate::output;

/// A model that fits its manifest.
#[derive(Clone, Debug)]
pub struct Network {
    onnx: Onnx,
    inputs: Inputs,
    plan: Arc<TypedRunnableModel>,
}

/// Rows by which a model is tried before it is asked: the same number in every column.
const TRIED: [f64; 3] = [0.0, 1.0, 1e6];

impl Network {
    /// Reads the file that a manifest names, and refuses what does not fit.
    pub fn load(onnx: Onnx) -> Result<Self, Error> {
        let path = onnx.file.clone();
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        // What tract takes for granted of a file it asserts.
        let network = catch_unwind(AssertUnwindSafe(|| Self::read(onnx, &bytes)));
        let network = network.unwrap_or_else(|_| Err("does not hang together".to_owned()));
        network.map_err(|why| Error::Model(why).at(&path))
    }

    fn read(onnx: Onnx, bytes: &[u8]) -> Result<Self, String> {
        let graph = Graph::read(bytes)?;
        check_labels(graph.labels.as_deref(), &onnx.classes)?;
        let unsaid = onnx.columns.iter().find(|column| column.null.is_none());
        if let Some(column) = unsaid.filter(|_| onnx.has_nulls && !graph.knows_missing) {
            let id = &column.id;
            return Err(format!(
                "does not say what becomes of a missing value, and {id} may be null: {}",
                say(id)
            ));
        }
        let inputs = Inputs::of(&graph.inputs(), &onnx.columns, onnx.has_nulls)?;
        let folder = onnx.file.parent().unwrap_or(&onnx.file);
        let mut model = graph.parse(folder)?;
        let rows = model.symbols.new_with_prefix("rows");
        for (at, fact) in inputs.facts(&rows).enumerate() {
            let set = model.set_input_fact(at, fact);
            set.map_err(|error| said(&error))?;
        }
        let plan = model.into_optimized().and_then(IntoRunnable::into_runnable);
        let network = Self {
            onnx,
            inputs,
            plan: plan.map_err(|error| said(&error))?,
        };
        network.try_out()?;
        Ok(network)
    }

    /// What the manifest says.
    pub fn onnx(&self) -> &Onnx {
        &self.onnx
    }

    /// Operators that are evaluated for each batch.
    pub fn operators(&self) -> usize {
        self.plan.model().nodes().len()
    }

    /// Asks it about rows of this schema.
    pub fn scorer(self, rows: &Schema) -> Result<NetworkScorer, Error> {
        Ok(NetworkScorer {
            places: places(&self.onnx.name, &self.onnx.columns, rows)?,
            network: self,
        })
    }

    /// Probabilities come out, whatever goes in, or it is not asked at all.
    fn try_out(&self) -> Result<(), String> {
        let columns = vec![TRIED.to_vec(); self.onnx.columns.len()];
        let numbers = self.numbers(&columns)?;
        let mut rows = numbers.chunks_exact(self.onnx.classes.len());
        if !rows.all(output::is_shares) {
            return Err("gives numbers that are no probabilities: let it end in Softmax, or in Sigmoid for the second of two classes".to_owned());
        }
        Ok(())
    }

    fn numbers(&self, columns: &[Vec<f64>]) -> Result<Vec<f64>, String> {
        let rows = columns.first().map_or(0, Vec::len);
        let tensors = self.inputs.tensors(columns).map_err(|error| said(&error))?;
        let outputs = self
            .plan
            .run(tensors.into())
            .map_err(|error| said(&error))?;
        let output = outputs.first().ok_or("gives nothing")?;
        output::numbers(output, rows, self.onnx.classes.len())
    }
}

/// What to do about nulls.
pub(crate) fn say(id: &str) -> String {
    format!("say what the training put there, {{ id = \"{id}\", null = -1 }}")
}

/// Names are for people, and mean something; numbers are a training's own, and not among these.
fn check_labels(labels: Option<&[String]>, classes: &[String]) -> Result<(), String> {
    let Some(labels) = labels else { return Ok(()) };
    if labels.len() != classes.len() {
        let (found, named) = (labels.len(), classes.len());
        return Err(format!(
            "tells {found} classes apart, and the manifest names {named}"
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

/// A model and where its columns are.
#[derive(Clone, Debug)]
pub struct NetworkScorer {
    network: Network,
    places: Places,
}

impl Scorer for NetworkScorer {
    fn classes(&self) -> &[String] {
        &self.network.onnx.classes
    }

    fn score(&mut self, rows: &RecordBatch) -> Result<Scores, String> {
        let Onnx {
            columns,
            classes,
            threshold,
            name,
            ..
        } = &self.network.onnx;
        let inputs: Vec<Vec<f64>> = self.places.numbers(columns, rows).collect();
        let numbers = self.network.numbers(&inputs);
        let numbers = numbers.map_err(|why| format!("the model {name} {why}"))?;
        Ok(output::scores(&numbers, classes.len(), *threshold))
    }
}
