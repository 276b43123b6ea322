//! Models beside a live run: one that the kernel asks, which may be replaced, and one that scores rows.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use control::metrics::Text;
use features::kernel::{Answers, Image, ModelSlot};
use features::model::{ACTIONS, Model};
use features::sink::{Mode, SchemaRef, Sink, Unscored};
use inference::Classifier;
use serde_json::{Value, json};

use super::model;
use super::output::Output;
use super::pcap;
use super::score;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Models {
    /// Ask this model in the kernel, and do with packets what it says of their flow; another is asked as
    /// soon as the file is replaced
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Only count what --model would do
    #[arg(long, requires = "model")]
    shadow: bool,
    /// Write beside each row what this model says of it, of trees or in ONNX
    #[arg(long, value_name = "FILE")]
    score: Option<PathBuf>,
}

impl Models {
    /// Reads both, and refuses what does not fit.
    pub(super) fn load(&self) -> Result<Judges, Failure> {
        let kernel = self.model.as_deref();
        let kernel = kernel.map(|path| Watched::open(path, self.shadow));
        Ok(Judges {
            kernel: kernel.transpose()?,
            rows: self.score.as_deref().map(score::asked).transpose()?,
            unscored: None,
        })
    }
}

/// The models of a live run, and what they have said.
#[derive(Debug)]
pub(super) struct Judges {
    kernel: Option<Watched>,
    /// Until rows are put before it.
    rows: Option<Classifier>,
    unscored: Option<Unscored>,
}

/// What is told of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    kernel: Option<Totals>,
    /// Rows that were written without a score.
    unscored: Option<u64>,
}

impl Judges {
    /// The schema that rows must have.
    pub(super) fn schema(&self) -> Option<&str> {
        self.rows.as_ref().map(Classifier::schema)
    }

    pub(super) fn slot(&self) -> Option<Arc<ModelSlot>> {
        self.kernel.as_ref().map(|kernel| Arc::clone(&kernel.slot))
    }

    /// The sink for rows, by way of the model that scores them.
    pub(super) fn sink(
        &mut self,
        output: &Output,
        rows: &SchemaRef,
    ) -> Result<Box<dyn Sink>, Failure> {
        let scorer = self.rows.take().map(|model| score::scorer(model, rows));
        let scorer = scorer.transpose()?;
        let scores = scorer.is_some();
        let (sink, unscored) = output.create_scored(rows, Mode::Live, scorer)?;
        self.unscored = scores.then_some(unscored);
        Ok(sink)
    }

    /// Puts a model in force whose file was replaced; what all have said so far.
    pub(super) fn look(&mut self) -> Told {
        if let Some(kernel) = &mut self.kernel {
            kernel.look();
        }
        Told {
            kernel: self.kernel.as_ref().map(Watched::totals),
            unscored: self.unscored.as_ref().map(Unscored::rows),
        }
    }

    /// Lines behind a run's account; none without models.
    pub(super) fn words(&self) -> String {
        let kernel = self.kernel.as_ref().map(Watched::words);
        let unscored = self.unscored.as_ref().map(Unscored::rows);
        kernel.unwrap_or_default() + &pcap::without_score(unscored)
    }

    /// What is added to a run's account.
    pub(super) fn json(&self, account: &mut Value) {
        if let Some(kernel) = &self.kernel {
            account["model"] = kernel.json();
        }
        if let Some(unscored) = &self.unscored {
            account["unscored"] = unscored.rows().into();
        }
    }
}

impl Told {
    pub(super) fn metrics(&self, text: &mut Text) {
        if let Some(unscored) = self.unscored {
            let help = "Rows that were written without a score.";
            text.counter("lowroad_features_unscored_rows_total", help)
                .sample(&[], unscored);
        }
        let Some(kernel) = &self.kernel else { return };
        let help = "Flows by the class that the model in the kernel gave them.";
        let family = text.counter("lowroad_features_model_flows_total", help);
        for (class, flows) in &kernel.flows {
            family.sample(&[("class", class)], *flows);
        }
        let help = "Packets of flows with a class, by what the model does with them.";
        let family = text.counter("lowroad_features_model_packets_total", help);
        for (action, packets) in ACTIONS.iter().zip(kernel.packets) {
            family.sample(&[("action", action)], packets);
        }
    }
}

/// The model in the kernel, by the file that it came from.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    stamp: Option<Stamp>,
    shadow: bool,
    slot: Arc<ModelSlot>,
    model: Model,
    /// Of models that were replaced.
    past: Totals,
}

/// What changes when a file is replaced or written.
type Stamp = (u64, i64, i64);

/// Answers under the names that they have.
#[derive(Clone, Debug, Default)]
struct Totals {
    asked: u64,
    /// Flows by class.
    flows: BTreeMap<String, u64>,
    /// Packets by action.
    packets: [u64; ACTIONS.len()],
    replaced: u64,
}

impl Watched {
    fn open(path: &Path, shadow: bool) -> Result<Self, Failure> {
        let stamp = stamp(path);
        let model = model::load(path)?;
        let image = Image::of(&model).map_err(|error| model::failure(&error))?;
        Ok(Self {
            path: path.to_owned(),
            stamp,
            shadow,
            slot: Arc::new(ModelSlot::new(image, shadow)),
            model,
            past: Totals::default(),
        })
    }

    /// Puts what the file has now in force, where it has changed. A model that does not fit is said and
    /// left.
    fn look(&mut self) {
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
    fn totals(&self) -> Totals {
        let mut totals = self.past.clone();
        match self.slot.answers() {
            Ok(answers) => totals.add(&self.model, &answers),
            Err(error) => tracing::warn!("{error}"),
        }
        totals
    }

    fn words(&self) -> String {
        let Totals {
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

impl Totals {
    fn add(&mut self, model: &Model, answers: &Answers) {
        self.asked += answers.asked;
        for (class, flows) in model.classes.iter().zip(answers.flows) {
            *self.flows.entry(class.name.clone()).or_default() += flows;
        }
        for (sum, packets) in self.packets.iter_mut().zip(answers.packets) {
            *sum += packets;
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_models_have_said_is_told_under_its_names() {
        let told = Told {
            kernel: Some(Totals {
                asked: 5,
                flows: BTreeMap::from([("benign".to_owned(), 3), ("attack".to_owned(), 2)]),
                packets: [7, 8, 9, 10],
                replaced: 1,
            }),
            unscored: Some(4),
        };
        let mut text = Text::new();
        told.metrics(&mut text);
        let text = text.to_string();
        for line in [
            "lowroad_features_unscored_rows_total 4",
            "lowroad_features_model_flows_total{class=\"attack\"} 2",
            "lowroad_features_model_flows_total{class=\"benign\"} 3",
            "lowroad_features_model_packets_total{action=\"pass\"} 7",
            "lowroad_features_model_packets_total{action=\"drop\"} 8",
            "lowroad_features_model_packets_total{action=\"sample\"} 9",
            "lowroad_features_model_packets_total{action=\"mark\"} 10",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}: {text}");
        }
        let mut nothing = Text::new();
        Told::default().metrics(&mut nothing);
        assert_eq!(nothing.to_string(), Text::new().to_string());
    }
}
