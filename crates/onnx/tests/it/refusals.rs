//! A model that does not fit is refused by one line that names the file and the remedy.

use std::path::Path;

use arrow_schema::{DataType, Field, Schema};
use features::row_file::SavedRows;
use sys::require;

use super::{load, rows, stored_models};

/// The error for a saved model whose manifest or file has been changed, by the same number of bytes.
fn refusal(name: &str, manifest: (&str, &str), model: (&[u8], &[u8])) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let file = |ending: &str| stored_models::folder().join(format!("{name}.{ending}"));
    let text = std::fs::read_to_string(file("toml")).unwrap();
    assert!(text.contains(manifest.0), "{}", manifest.0);
    let path = scratch.path().join(format!("{name}.toml"));
    std::fs::write(&path, text.replacen(manifest.0, manifest.1, 1)).unwrap();
    let mut bytes = std::fs::read(file("onnx")).unwrap();
    let (from, to) = model;
    assert_eq!(from.len(), to.len());
    if !from.is_empty() {
        let mut places = bytes.windows(from.len());
        let at = places.position(|found| found == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    std::fs::write(path.with_extension("onnx"), bytes).unwrap();
    error_of(&path)
}

fn error_of(path: &Path) -> String {
    let error = load(path).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

const UNCHANGED_TEXT: (&str, &str) = ("", "");
const UNCHANGED_FILE: (&[u8], &[u8]) = (b"", b"");

/// Each case has a model, the text of its manifest that is replaced, the new text, and the error.
fn assert_refused(cases: &[(&str, &str, &str, &str)]) {
    for (model, from, to, why) in cases {
        let error = refusal(model, (from, to), UNCHANGED_FILE);
        assert!(error.contains(why), "{to}: {error}");
    }
}

#[test]
fn files_and_columns_that_do_not_fit() {
    assert_refused(&[
        (
            "plain-3",
            "onnx = \"",
            "trees = \"",
            "plain-3.onnx: is no text",
        ),
        (
            "plain-3",
            "onnx",
            "trees = \"a\"\nonnx",
            "names neither trees nor onnx, or both",
        ),
        ("plain-3", "onnx = \"", "onnx = \"no/", "No such file"),
        (
            "plain-3",
            "flow.v1/packets",
            "flow.v1/packet",
            "is no column",
        ),
        (
            "plain-3",
            "flow.v1/packets",
            "flow.v1/src_ip",
            "is text, no number",
        ),
        (
            "plain-3",
            "schema = \"flow",
            "schema = \"tree",
            "tree.v1 for its schema",
        ),
        (
            "plain-3",
            "{ id = \"flow.v1/bytes\", null = -1 },",
            "",
            "has 6 inputs, and the manifest names 5 columns",
        ),
        (
            "columns-2",
            "{ id = \"flow.v1/bytes\", null = -1 },",
            "",
            "has 6 inputs, and the manifest names 5 columns",
        ),
        (
            "columns-2",
            "flow.v1/bytes",
            "flow.v1/fwd_bytes",
            "calls input 2 bytes, and the manifest flow.v1/fwd_bytes",
        ),
    ]);
}

#[test]
fn classes_and_nulls_that_do_not_fit() {
    assert_refused(&[
        (
            "plain-3",
            "{ name = \"2\" },",
            "",
            "distinguishes 3 classes, and the manifest names 2",
        ),
        (
            "forest-3",
            "\"scan\"",
            "\"skan\"",
            "calls scan what the manifest calls skan",
        ),
        (
            "forest-3",
            "{ name = \"scan\" },",
            "",
            "distinguishes 3 classes",
        ),
        (
            "plain-2",
            "columns",
            "threshold = 1.0\ncolumns",
            "a probability",
        ),
        (
            "plain-3",
            "columns",
            "threshold = 0.7\ncolumns",
            "for two classes",
        ),
        (
            "plain-2",
            "columns",
            "packets = { first = 1, last = 2 }\ncolumns",
            "the kernel does not ask",
        ),
        (
            "plain-2",
            "\"1\"",
            "\"1\", action = \"drop\"",
            "the kernel does not ask",
        ),
        (
            "plain-2",
            "iat_min_ns\", null = -1",
            "iat_min_ns\"",
            "missing value, and flow.v1/iat_min_ns may be null: say what the training put there",
        ),
        (
            "forest-2",
            "bytes\", null = -1",
            "bytes\"",
            "missing value, and flow.v1/bytes may be null",
        ),
    ]);
}

#[test]
fn files_that_are_not_evaluated() {
    for (model, from, to, why) in [
        (
            "plain-3",
            "Gemm",
            "Gimm",
            "plain-3.onnx: has the operator Gimm, which is not evaluated here: export",
        ),
        (
            "plain-3",
            "Softmax",
            "Sigmoid",
            "not probabilities: let it end in Softmax",
        ),
        (
            "forest-3",
            "BRANCH_LEQ",
            "BRANCH_GTE",
            "TreeEnsembleClassifier: asks by BRANCH_GTE",
        ),
        (
            "linear-2",
            "replaced_value_float",
            "replaced_value_fluat",
            "Imputer: only missing numbers",
        ),
    ] {
        let error = refusal(model, UNCHANGED_TEXT, (from.as_bytes(), to.as_bytes()));
        assert!(error.contains(why), "{to}: {error}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("plain-3.toml");
    std::fs::copy(stored_models::folder().join("plain-3.toml"), &path).unwrap();
    for bytes in [&b""[..], b"no model at all", b"{}"] {
        std::fs::write(path.with_extension("onnx"), bytes).unwrap();
        let error = error_of(&path);
        assert!(
            error.contains("plain-3.onnx: is not ONNX that can be read"),
            "{error}"
        );
    }
}

#[test]
fn rows_of_another_kind() {
    let network = || load(&stored_models::folder().join("plain-3.toml")).unwrap();
    let schema = SavedRows::open(&rows()).unwrap().schema().clone();
    let with = |change: fn(Field) -> Field| {
        let fields = schema.fields().iter();
        let fields: Vec<Field> = fields.map(|field| change(field.as_ref().clone())).collect();
        let Err(error) = network().scorer(&Schema::new(fields)) else {
            panic!("these rows are taken");
        };
        error.to_string()
    };
    let error = with(|field| field.clone().with_name(format!("my_{}", field.name())));
    assert!(error.contains("have no column packets"), "{error}");
    let error = with(|field| field.with_metadata([("id".into(), "cic.v1/x".into())].into()));
    assert!(error.contains("packets is cic.v1/x"), "{error}");
    let error = with(|field| field.with_data_type(DataType::Utf8));
    assert!(error.contains("have packets as Utf8"), "{error}");
}

/// Damage is refused or does no harm: scores are probabilities or none.
#[test]
fn damaged_files() {
    let scratch = tempfile::tempdir().unwrap();
    let rows = rows();
    for name in ["forest-2", "gradient-3", "plain-3", "linear-2"] {
        let path = scratch.path().join(format!("{name}.toml"));
        std::fs::copy(stored_models::folder().join(format!("{name}.toml")), &path).unwrap();
        let whole = std::fs::read(stored_models::folder().join(format!("{name}.onnx"))).unwrap();
        let mut random = 7_u64;
        let mut next = move |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % below
        };
        for _ in 0..40 * require::fuzz() {
            let mut bytes = whole.clone();
            for _ in 0..=next(3) {
                let at = next(bytes.len());
                match next(3) {
                    0 => bytes[at] = u8::try_from(next(256)).unwrap(),
                    1 => bytes[at] ^= 1 << next(8),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            std::fs::write(path.with_extension("onnx"), bytes).unwrap();
            if let Ok(model) = load(&path) {
                let batches = SavedRows::open(&rows).unwrap();
                let mut scorer = model.scorer(batches.schema()).unwrap();
                for batch in batches {
                    let scores = scorer.score(&batch.unwrap()).unwrap();
                    let fine = |share: &f64| share.is_nan() || (0.0..=1.0).contains(share);
                    assert!(scores.probabilities.iter().all(fine));
                }
            }
        }
    }
}
