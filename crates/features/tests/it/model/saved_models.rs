//! Models that `train.py` made of made-up rows, one for each format and each corner of it.

use std::path::{Path, PathBuf};

use features::model::Model;

use super::{assert_agrees, rows};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/model/saved")
}

#[test]
fn every_format_decides_as_its_program() {
    let rows = rows(&folder().join("rows.parquet"));
    let mut models = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            let uncertain = assert_agrees(&path, &rows);
            assert_eq!(uncertain, 0, "{}: rows without a class", path.display());
            models += 1;
        }
    }
    assert!(models >= 8, "{models} of 8 models were found");
}

#[test]
fn a_compiled_model_is_the_model() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["forest-2", "lightgbm-3"] {
        let model = Model::load(&folder().join(name).with_extension("toml")).unwrap();
        let path = scratch.path().join(name).with_extension("json");
        std::fs::write(&path, model.to_json()).unwrap();
        assert_eq!(Model::load(&path).unwrap(), model);
    }
}
