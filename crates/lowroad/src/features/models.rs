//! Models beside a live run: one that classifies flows in the kernel, which may be replaced, and one that
//! scores rows.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use features::kernel::{Image, ModelSlot};
use features::model::{ACTIONS, Classifier, Model};
use features::sink::{Mode, SchemaRef, Sink, UnscoredRows};
use serde_json::{Value, json};

use super::account;
use super::model;
use super::model_counters::{KernelAnswers, ModelCounters};
use super::output::Output;
use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(next_help_heading = "Models")]
pub(super) struct Models {
    /// Classify flows in the kernel with this model, and apply its actions to their packets; replace the
    /// file to use another one
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Only count the actions of --model
    #[arg(long, requires = "model")]
    shadow: bool,
    /// Write the scores of this model, of trees or in ONNX, beside each row
    #[arg(long, value_name = "FILE")]
    score: Option<PathBuf>,
}

impl Models {
    /// Reads both models, and refuses those that are inconsistent.
    pub(super) fn load(&self) -> Result<LiveModels, Failure> {
        let kernel = self.model.as_deref();
        let kernel = kernel.map(|path| KernelModel::open(path, self.shadow));
        Ok(LiveModels {
            kernel: kernel.transpose()?,
            rows: self
                .score
                .as_deref()
                .map(model::load_classifier)
                .transpose()?,
            unscored: None,
        })
    }
}

/// The models of a live run.
#[derive(Debug)]
pub(super) struct LiveModels {
    kernel: Option<KernelModel>,
    /// None once the sink has it.
    rows: Option<Classifier>,
    unscored: Option<UnscoredRows>,
}

impl LiveModels {
    /// The schema that rows must have.
    pub(super) fn schema(&self) -> Option<&str> {
        self.rows.as_ref().map(Classifier::schema)
    }

    /// Whether the model that scores rows has this column as an input.
    pub(super) fn needs(&self, column: &str) -> bool {
        let model = self.rows.as_ref();
        model.is_some_and(|model| model.inputs().any(|input| input == column))
    }

    pub(super) fn slot(&self) -> Option<Arc<ModelSlot>> {
        self.kernel.as_ref().map(|kernel| Arc::clone(&kernel.slot))
    }

    /// The sink for rows, behind the model that scores them.
    pub(super) fn sink(
        &mut self,
        output: &Output,
        rows: &SchemaRef,
    ) -> Result<Box<dyn Sink>, Failure> {
        let scorer = self.rows.take().map(|model| model::scorer(model, rows));
        let scorer = scorer.transpose()?;
        let scores = scorer.is_some();
        let (sink, unscored) = output.create_scored(rows, Mode::Live, scorer)?;
        self.unscored = scores.then_some(unscored);
        Ok(sink)
    }

    /// Uses the new model if its file was replaced. Returns the counters so far.
    pub(super) fn update(&mut self) -> ModelCounters {
        if let Some(kernel) = &mut self.kernel {
            kernel.update();
        }
        ModelCounters {
            kernel: self.kernel.as_ref().map(KernelModel::totals),
            unscored: self.unscored.as_ref().map(UnscoredRows::rows),
        }
    }

    /// Lines after a run's account; none without models.
    pub(super) fn words(&self) -> String {
        let kernel = self.kernel.as_ref().map(KernelModel::words);
        let unscored = self.unscored.as_ref().map(UnscoredRows::rows);
        kernel.unwrap_or_default() + &account::without_score(unscored)
    }

    /// Adds the models to a run's account.
    pub(super) fn json(&self, account: &mut Value) {
        if let Some(kernel) = &self.kernel {
            account["model"] = kernel.json();
        }
        if let Some(unscored) = &self.unscored {
            account["unscored"] = unscored.rows().into();
        }
    }
}

/// The model in the kernel, and its file.
#[derive(Debug)]
struct KernelModel {
    path: PathBuf,
    stamp: Option<Stamp>,
    shadow: bool,
    slot: Arc<ModelSlot>,
    model: Model,
    /// The answers of models that were replaced.
    past: KernelAnswers,
}

/// Changes when a file is replaced or written: inode and modification time.
type Stamp = (u64, i64, i64);

impl KernelModel {
    fn open(path: &Path, shadow: bool) -> Result<Self, Failure> {
        let stamp = stamp(path);
        let model = model::load(path)?;
        let image = Image::of(&model)?;
        Ok(Self {
            path: path.to_owned(),
            stamp,
            shadow,
            slot: Arc::new(ModelSlot::new(image, shadow)),
            model,
            past: KernelAnswers::default(),
        })
    }

    /// Uses the new model if the file has changed. The old one stays in force if that is not valid.
    fn update(&mut self) {
        let now = stamp(&self.path);
        if now.is_none() || now == self.stamp {
            return;
        }
        self.stamp = now;
        match self.replace() {
            Ok(()) => tracing::info!("{} is in force", self.model.name),
            Err(why) => tracing::warn!("{} stays in force: {why}", self.model.name),
        }
    }

    fn replace(&mut self) -> Result<(), String> {
        let next = Model::load(&self.path).map_err(|error| error.to_string())?;
        let image = Image::of(&next).map_err(|error| error.to_string())?;
        let answers = self.slot.put(image).map_err(|error| error.to_string())?;
        let before = std::mem::replace(&mut self.model, next);
        self.past.add(&before, &answers);
        self.past.replaced += 1;
        Ok(())
    }

    /// The answers so far, of this model and those before it.
    fn totals(&self) -> KernelAnswers {
        let mut totals = self.past.clone();
        match self.slot.answers() {
            Ok(answers) => totals.add(&self.model, &answers),
            Err(error) => tracing::warn!("{error}"),
        }
        totals
    }

    fn words(&self) -> String {
        let KernelAnswers {
            flows,
            packets,
            replaced,
            ..
        } = self.totals();
        let flows: Vec<String> = flows
            .iter()
            .map(|(class, flows)| format!("{flows} {class}"))
            .collect();
        let actions = ACTIONS.iter().zip(packets);
        let actions: Vec<String> = actions
            .filter(|(_, packets)| *packets > 0)
            .map(|(action, packets)| format!("{packets} {action}"))
            .collect();
        let would = if self.shadow { "would be" } else { "were" };
        let or_none = |list: Vec<String>| {
            if list.is_empty() {
                "none".to_owned()
            } else {
                list.join(", ")
            }
        };
        let replaced = match replaced {
            0 => String::new(),
            times => format!("; replaced {times} times"),
        };
        format!(
            "model {}: flows: {}; packets that {would}: {}{replaced}\n",
            self.model.name,
            or_none(flows),
            or_none(actions)
        )
    }

    fn json(&self) -> Value {
        let totals = self.totals();
        let packets: serde_json::Map<String, Value> = ACTIONS
            .iter()
            .zip(totals.packets)
            .map(|(action, packets)| ((*action).to_owned(), packets.into()))
            .collect();
        json!({
            "name": self.model.name,
            "shadow": self.shadow,
            "asked": totals.asked,
            "flows": totals.flows,
            "packets": packets,
            "replaced": totals.replaced,
        })
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec()))
}
