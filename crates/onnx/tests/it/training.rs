//! Models that the test trains on the flows of captures.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use features::Options;
use features::pcap::Run;
use features::schema;
use features::sink::{FileSink, Format, Mode, Rotation, Sink};
use features::stream::CaptureStream;
use sys::require::{self, Class};

use super::{assert_agrees, manifests};

const NEEDS: [&str; 5] = [
    "scikit-learn==1.9.1",
    "skl2onnx==1.20.0",
    "onnx==1.23.2",
    "pandas==3.1.1",
    "pyarrow==26.0.1",
];
const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn models_of_real_flows_say_what_scikit_learn_says() {
    if !require::requested("trains models with scikit-learn and writes them in ONNX") {
        return;
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let python = || require::python(Class::OptIn, home, &NEEDS);
    let (Some(corpus), Some(python)) = (require::corpus(), python()) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for schema in ["tree.v1", "cic.v1"] {
        let rows = scratch.path().join(schema).with_extension("parquet");
        write(schema, &corpus.join("pcap"), &rows);
        let folder = scratch.path().join(format!("{schema}-models"));
        let training = Command::new(&python)
            .arg(Path::new(HERE).join("tests/it/train.py"))
            .args([&rows, &folder])
            .arg("large")
            .env("OMP_NUM_THREADS", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&training.stderr);
        assert!(training.status.success(), "{schema}: {said}");
        let models = manifests(&folder);
        assert_eq!(models.len(), 11, "{schema}");
        for model in models {
            assert_agrees(&model, &rows);
        }
    }
}

/// The flows of every capture, in one file.
fn write(schema: &str, captures: &Path, path: &Path) {
    let schema = schema::find(schema).unwrap();
    let options = Options::default();
    let rows = features::arrow_schema(schema, &options);
    let (rotation, mode) = (Rotation::default(), Mode::Whole);
    let mut file = FileSink::create(path, Format::Parquet, &rows, rotation, mode).unwrap();
    for entry in std::fs::read_dir(captures).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "md") {
            continue;
        }
        let run = Run {
            options: options.clone(),
            schema,
        };
        // One of them breaks off: the rows of what came before count as well.
        let rows = CaptureStream::start(run, File::open(path).unwrap()).unwrap();
        for batch in rows.map_while(Result::ok) {
            file.write(&batch).unwrap();
        }
    }
    file.finish().unwrap();
}
