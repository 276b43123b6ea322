//! The other side of the comparison: a virtual environment with NFStream, and its rows.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sys::require::{self, Class};

/// The release whose columns the schema has.
const RELEASE: &str = "nfstream==6.6.0";
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nfstream/run.py");

/// NFStream, installed.
pub(crate) struct NfStream {
    python: PathBuf,
}

/// What it shall do with tunnels.
#[derive(Clone, Copy)]
pub(crate) enum Decode {
    Outer,
    /// Its default.
    Inner,
}

/// One flow's columns by name.
pub(crate) type Row = HashMap<String, Value>;

/// The rows of one capture. Without rows there are no names.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) names: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl NfStream {
    /// Installs it once for all tests; reports the skip where that cannot be.
    pub(crate) fn install() -> Option<Self> {
        if !require::requested("compares with NFStream") {
            return None;
        }
        let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let python = require::python(Class::OptIn, home, &[RELEASE])?;
        Some(Self { python })
    }

    /// Its rows of each capture.
    pub(crate) fn run(&self, captures: &[PathBuf], decode: Decode) -> Vec<Rows> {
        let decode = decode.name();
        let output = Command::new(&self.python)
            .arg(RUN)
            .arg(decode)
            .args(captures)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let results = captures.iter().map(|capture| {
            let name = format!("{}.{decode}.jsonl", capture.display());
            parse(&fs::read_to_string(name).unwrap())
        });
        results.collect()
    }
}

impl Decode {
    fn name(self) -> &'static str {
        match self {
            Self::Outer => "outer",
            Self::Inner => "inner",
        }
    }
}

fn parse(text: &str) -> Rows {
    let mut lines = text.lines();
    let Some(names) = lines.next() else {
        return Rows::default();
    };
    let names: Vec<String> = serde_json::from_str(names).unwrap();
    let rows = lines.map(|line| {
        let values: Vec<Value> = serde_json::from_str(line).unwrap();
        assert_eq!(values.len(), names.len());
        names.iter().cloned().zip(values).collect()
    });
    Rows {
        rows: rows.collect(),
        names: names.clone(),
    }
}
