//! The models that arms ask in the kernel, and whether userspace says the same of the flows' rows.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use features::model::Model;
use features::row_file::SavedRows;
use serde_json::{Value, json};
use splitmix::SplitMix64;

use crate::jobs::features::load::{Load, Measure};

/// The schema whose columns the models ask for.
pub(super) const SCHEMA: &str = "tree.v1";
/// Trained with scikit-learn to tell flows of captures apart; asked after the eighth packet.
const TRAINED_MODEL: &str = include_str!("../../../../../../experiments/models/depth-8.json");
/// Splits on every way through the tree that is complete.
const DEPTH: u32 = 8;
/// The columns that the tree uses, with the range of their values in the generator's flows, so that its splits
/// divide them.
const COLUMNS: [(&str, Range<u64>); 8] = [
    ("dst_port", 20_000..21_000),
    ("packets", 1..50),
    ("fwd_bytes", 100..5000),
    ("duration_ns", 0..500_000_000),
    ("iat_mean_ns", 0..20_000_000),
    ("fwd_iat_max_ns", 0..20_000_000),
    ("fwd_frame_mean_q8", 20_000..30_000),
    ("fwd_ttl_min", 0..128),
];

/// Whether a trial's rows can be asked for what the kernel was asked.
pub(super) fn has_rows(load: &Load, measure: Measure) -> bool {
    let schema = load.options.get("schema").and_then(toml::Value::as_str);
    measure == Measure::Cpu && schema == Some(SCHEMA)
}

/// Arms that are `xdp-flow` with a model in its shadow mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// The trained one, as it is.
    AtEighth,
    /// The trained one, after every packet.
    Every,
    /// A complete one, after every packet.
    CompleteEvery,
}

pub(super) const TREES: [(&str, Tree); 3] = [
    ("tree-at-8", Tree::AtEighth),
    ("tree-every", Tree::Every),
    ("tree-complete", Tree::CompleteEvery),
];

impl Tree {
    /// The model that an arm asks, if it does.
    pub(super) fn of(arm: &str) -> Option<Self> {
        let found = TREES.iter().find(|(name, _)| *name == arm);
        found.map(|(_, tree)| *tree)
    }

    /// The model, as a file has it.
    pub(super) fn model(self) -> Result<String> {
        let mut model = match self {
            Self::AtEighth | Self::Every => serde_json::from_str(TRAINED_MODEL)?,
            Self::CompleteEvery => complete(),
        };
        if self.asks_always() {
            model["packets"] = json!({ "first": 1, "last": u32::MAX });
        }
        Ok(model.to_string())
    }

    /// Whether its last answer is about the flow as its row has it.
    fn asks_always(self) -> bool {
        self != Self::AtEighth
    }

    /// How many flows at least have another class in the kernel's answers than by the same model in their
    /// rows; `None` where answers are older than rows.
    pub(super) fn differing(self, folder: &Path, answers: &Value) -> Result<Option<u64>> {
        if !self.asks_always() {
            return Ok(None);
        }
        let model = Model::load(&folder.join(FILE))?;
        let rows = SavedRows::open(&folder.join(ROWS)).map_err(anyhow::Error::msg)?;
        let places = model.bind(rows.schema())?;
        let mut expected = vec![0_u64; model.classes.len()];
        for batch in rows {
            for class in model.score(&places, &batch?).classes {
                expected[class] += 1;
            }
        }
        let mut differing = 0;
        for (class, expected) in model.classes.iter().zip(expected) {
            let found = answers["flows"][&class.name].as_u64();
            let found = found.with_context(|| format!("no class {}: {answers}", class.name))?;
            differing += found.abs_diff(expected);
        }
        // One that is in another class is missing in its own.
        Ok(Some(differing.div_ceil(2)))
    }
}

/// The model and the rows in a trial's folder.
pub(super) const FILE: &str = "model.json";
pub(super) const ROWS: &str = "flows.parquet";

/// A tree of two classes in which every way has as many splits, the same in every trial.
fn complete() -> Value {
    let mut random = SplitMix64::new(1);
    let splits = (1_usize << DEPTH) - 1;
    let split = |at: usize| {
        let input = at % COLUMNS.len();
        let values = &COLUMNS[input].1;
        let threshold = values.start + random.next_u64() % (values.end - values.start);
        json!({ "split": {
            "input": input, "threshold": threshold, "missing_left": false,
            "left": 2 * at + 1, "right": 2 * at + 2,
        }})
    };
    let mut nodes: Vec<Value> = (0..splits).map(split).collect();
    nodes.extend((0..=splits).map(|at| json!({ "leaf": at % 2 })));
    let column = |(name, _): &(&str, Range<u64>)| json!({ "id": format!("{SCHEMA}/{name}"), "quantity": "integer" });
    json!({
        "format": "lowroad-model-1",
        "name": "complete",
        "schema": SCHEMA,
        "columns": COLUMNS.iter().map(column).collect::<Vec<_>>(),
        "classes": [{ "name": "even", "action": "pass" }, { "name": "odd", "action": "pass" }],
        "link": { "sigmoid": 1.0 },
        "forest": {
            "scale": 0, "base": [0], "bound": 0,
            "trees": [{ "output": 0, "width": 1, "nodes": nodes }],
            "values": [0, 1],
        },
    })
}

#[cfg(test)]
mod tests {
    use features::kernel::Image;

    use super::*;

    #[test]
    fn every_model_is_one_of_depth_8_that_the_kernel_takes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for (name, tree) in TREES {
            std::fs::write(&path, tree.model().unwrap()).unwrap();
            let model = Model::load(&path).unwrap();
            assert_eq!(model.forest.depth(), 8, "{name}");
            let last = if name == "tree-at-8" { 8 } else { u32::MAX };
            assert_eq!(model.packets.last, last, "{name}");
            Image::of(&model).unwrap();
        }
    }
}
