//! Models that `train.py` has made from invented rows, one for each way in which programs write them.

use std::path::{Path, PathBuf};

use super::{assert_agrees, manifests, rows};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/saved")
}

#[test]
fn every_kind_says_what_scikit_learn_says() {
    let models = manifests(&folder());
    assert_eq!(models.len(), 11);
    for model in models {
        assert_agrees(&model, &rows());
    }
}

#[test]
fn a_threshold_moves_the_second_of_two_classes() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("network-2.toml");
    std::fs::copy(folder().join("network-2.onnx"), path.with_extension("onnx")).unwrap();
    let text = std::fs::read_to_string(folder().join("network-2.toml")).unwrap();
    let counts = ["0.01", "0.5", "0.99"].map(|threshold| {
        std::fs::write(&path, format!("threshold = {threshold}\n{text}")).unwrap();
        let (scores, _) = super::score(&path, &rows());
        scores.classes.iter().filter(|class| **class == 1).count()
    });
    assert!(counts[0] > counts[1] && counts[1] > counts[2], "{counts:?}");
}
