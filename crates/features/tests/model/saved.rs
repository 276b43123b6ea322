//! Models that `train.py` made of made-up rows, one for each format and each corner of it.

use std::path::{Path, PathBuf};

use features::model::Model;

use super::{assert_agrees, rows};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model/saved")
}

#[test]
fn every_format_decides_as_its_program() {
    let rows = rows(&folder().join("rows.parquet"));
    for name in [
        "tree-3",
        "forest-2",
        "gradient-3",
        "histogram-2",
        "xgboost-2",
        "xgboost-3",
        "lightgbm-3",
        "lightgbm-zero",
    ] {
        let path = folder().join(name).with_extension("toml");
        assert_eq!(
            assert_agrees(&path, &rows),
            0,
            "{name}: rows without a class"
        );
    }
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
