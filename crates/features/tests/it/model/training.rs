//! Models that are trained now, on the rows of real captures.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use features::pcap::Progress;
use features::sink::{FileSink, Format, Mode, Rotation, Sink};
use sys::require::{self, Class};

use super::{assert_agrees, rows};
use crate::common;

const NEEDS: [&str; 4] = [
    "scikit-learn==1.9.1",
    "xgboost-cpu==3.2.0",
    "lightgbm==4.7.0",
    "pyarrow==26.0.1",
];
const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn models_of_real_flows_decide_as_their_programs() {
    let Some(python) = python() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let trained = ["tree.v1", "flow.v1", "cic.v1"].map(|schema| {
        let parquet = scratch.path().join(schema).with_extension("parquet");
        write(schema, &parquet);
        let folder = scratch.path().join(format!("{schema}-models"));
        let training = train(&python, &parquet, &folder);
        (schema, parquet, folder, training)
    });
    for (schema, parquet, folder, training) in trained {
        let said = training.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{schema}: {errors}");
        let rows = rows(&parquet);
        let mut models = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "toml") {
                let uncertain = assert_agrees(&path, &rows);
                assert!(
                    uncertain * 20 < rows.num_rows(),
                    "{uncertain} are uncertain"
                );
                models += 1;
            }
        }
        assert_eq!(models, 16, "{schema}");
    }
}

/// The flows of every capture, in one file.
fn write(schema: &str, path: &Path) {
    let schema = common::run(schema);
    let rows = schema.arrow_schema();
    let file = FileSink::create(
        path,
        Format::Parquet,
        &rows,
        Rotation::default(),
        Mode::Whole,
    );
    let mut file = file.unwrap();
    let kept = common::MemorySink::default();
    for (_, capture) in common::captures() {
        schema.run(&capture[..], Box::new(kept.clone()), &Progress::default());
    }
    for batch in kept.0.lock().unwrap().iter() {
        file.write(batch).unwrap();
    }
    file.finish().unwrap();
}

/// Begins to train. One thread for each: where others work on the same CPUs, OpenMP's threads wait for one
/// another in loops, for many times the time of the work.
fn train(python: &Path, rows: &Path, folder: &Path) -> Child {
    Command::new(python)
        .arg(Path::new(HERE).join("tests/it/model/train.py"))
        .arg(Path::new(HERE).join("../../python/lowroad/trees.py"))
        .args([rows, folder])
        .arg("large")
        .env("OMP_NUM_THREADS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A Python that has what models are trained with; reports the skip where that cannot be.
fn python() -> Option<PathBuf> {
    if !require::requested("trains models with scikit-learn, XGBoost and LightGBM") {
        return None;
    }
    require::python(Class::OptIn, Path::new(env!("CARGO_TARGET_TMPDIR")), &NEEDS)
}
