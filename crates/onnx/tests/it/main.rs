//! Models in ONNX: what scikit-learn says of rows is said here, and what does not fit is refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budget;
mod process;
mod refusals;
mod session;
mod stored_models;
mod training;

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use features::model::{Classifier, Error, Scores, Search};
use features::row_file::SavedRows;

/// Sums of single precision, in another order.
const ROUNDING: f64 = 2e-5;

/// Made-up rows of `flow.v1`, with nulls.
fn rows() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../features/tests/it/model/saved/rows.parquet")
}

/// Loads a model, those in ONNX by the program of this build.
fn load(model: &Path) -> Result<Classifier, Error> {
    let search = Search::in_folder_of(Path::new(env!("CARGO_BIN_EXE_lowroad-onnx")));
    Classifier::load(model, &search)
}

/// What a model says of a file's rows, batch by batch, and the names of its classes.
fn score(model: &Path, rows: &Path) -> (Scores, Vec<String>) {
    let model = load(model).unwrap_or_else(|error| panic!("{error}"));
    let rows = SavedRows::open(rows).unwrap();
    let mut scorer = model.scorer(rows.schema()).unwrap();
    let mut all = Scores::default();
    for batch in rows {
        let batch: RecordBatch = batch.unwrap();
        let scores = scorer.score(&batch).unwrap();
        all.classes.extend(scores.classes);
        all.probabilities.extend(scores.probabilities);
    }
    (all, scorer.classes().to_vec())
}

/// Every row's probability is scikit-learn's, and its class, unless two are as probable.
fn assert_agrees(model: &Path, rows: &Path) {
    let name = model.display();
    let said = std::fs::read(model.with_extension("json")).unwrap();
    let said: Vec<Vec<f64>> = serde_json::from_slice(&said).unwrap();
    let (scores, classes) = score(model, rows);
    assert_eq!(scores.classes.len(), said.len(), "{name}");
    let mut met = vec![false; classes.len()];
    let answers = scores.classes.iter().zip(&scores.probabilities);
    for (row, ((class, share), said)) in answers.zip(&said).enumerate() {
        let most = said.iter().copied().fold(0.0, f64::max);
        let theirs = said[*class];
        assert!(
            (theirs - share).abs() < ROUNDING && most - theirs < ROUNDING,
            "{name}, row {row}: class {class} with {share} of {said:?}"
        );
        met[*class] = true;
    }
    assert!(
        met.iter().all(|met| *met),
        "{name} never says one of {classes:?}"
    );
}

/// The manifests of a folder.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    found.sort();
    found
}
