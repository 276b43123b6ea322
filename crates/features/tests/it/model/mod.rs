//! Models of trees: compiled, they decide as the programs that trained them do.

mod refusals;
mod saved_models;
mod training;

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use features::model::Model;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;

/// The rows of a Parquet file, as one batch.
fn rows(path: &Path) -> RecordBatch {
    let file = File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let mut reader = reader.with_batch_size(1 << 20).build().unwrap();
    reader.next().unwrap().unwrap()
}

/// What a model's own program says of the same rows.
#[derive(Deserialize)]
struct Expectation {
    classes: Vec<usize>,
    /// 0 where its own sums, which are rounded, do not tell two classes apart.
    certain: Vec<u8>,
}

/// Every certain class is the same; how many are not certain.
fn assert_agrees(path: &Path, rows: &RecordBatch) -> usize {
    let name = path.display();
    let model = Model::load(path).unwrap_or_else(|error| panic!("{error}"));
    let places = model.bind(&rows.schema()).unwrap();
    let scores = model.score(&places, rows);
    let said = std::fs::read(path.with_extension("json")).unwrap();
    let said: Expectation = serde_json::from_slice(&said).unwrap();
    assert_eq!(scores.classes.len(), said.classes.len(), "{name}");
    for (row, certain) in said.certain.iter().enumerate() {
        let (ours, theirs) = (scores.classes[row], said.classes[row]);
        assert!(
            ours == theirs || *certain == 0,
            "{name}, row {row}: {ours}, not {theirs}"
        );
    }
    assert!(scores.probabilities.iter().all(|p| (0.0..=1.0).contains(p)));
    let most = said.classes.iter().max();
    assert!(most > Some(&0), "{name} says one class of every row");
    said.certain.iter().filter(|certain| **certain == 0).count()
}
