//! The evaluator as a process: batches of any size, an end at any time, nothing left behind.

use std::fs;
use std::path::{Path, PathBuf};

use features::model::{Classifier, Search};
use features::row_file::SavedRows;
use features::sink::Scorer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onnx_protocol::memory::MAX_BATCH;
use onnx_protocol::{Column, Evaluator, Model, PROGRAM};
use tempfile::TempDir;

use super::{rows, stored_models};

/// The evaluator under a path of its own, by which its process is found.
struct Link {
    _folder: TempDir,
    program: PathBuf,
}

impl Link {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = folder.path().join(PROGRAM);
        fs::hard_link(env!("CARGO_BIN_EXE_lowroad-onnx"), &program).unwrap();
        Self {
            program: fs::canonicalize(program).unwrap(),
            _folder: folder,
        }
    }

    fn search(&self) -> Search {
        Search::in_folder_of(&self.program)
    }

    fn scorer(&self) -> Box<dyn Scorer> {
        let model = stored_models::folder().join("network-3.toml");
        let model = Classifier::load(&model, &self.search()).unwrap();
        let rows = SavedRows::open(&rows()).unwrap();
        model.scorer(rows.schema()).unwrap()
    }

    /// The process that runs it.
    fn process(&self) -> Option<Pid> {
        let is_ours = |path: &Path| {
            fs::read_link(path.join("exe")).is_ok_and(|program| program == self.program)
        };
        let mut processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
        let process = processes.find(|entry| is_ours(&entry.path()))?;
        let number = process.file_name().to_str()?.parse().ok()?;
        Some(Pid::from_raw(number))
    }
}

fn exists(process: Pid) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// `plain-2` without its manifest.
fn plain(link: &Link) -> Evaluator {
    let column = |number: u32| Column {
        id: format!("flow.v1/{number}"),
        is_integer: false,
        replaces_null: true,
    };
    let classes = ["0", "1"].map(str::to_owned).to_vec();
    let columns = (0..6).map(column).collect();
    let file = stored_models::folder().join("plain-2.onnx");
    let model = Model::new(&file, columns, true, classes, 0.5);
    Evaluator::load(&link.search(), model).unwrap()
}

#[test]
fn batches_grow_and_are_split() {
    let link = Link::new();
    let mut evaluator = plain(&link);
    let column = |by: usize, rows: usize| {
        let values = [0.0, 1.0, 5.0, 70.0, 900.0];
        (0..rows).map(|row| values[(row + by) % 5]).collect()
    };
    let mut score = |rows| {
        let columns: Vec<Vec<f64>> = (0..6).map(|by| column(by, rows)).collect();
        evaluator.score(&columns).unwrap()
    };
    let few = score(5);
    assert_eq!(few.probabilities.len(), 5);
    let in_parts = MAX_BATCH / (6 * size_of::<f64>()) + 3;
    for rows in [1, 1000, 100_000, 4, in_parts] {
        let scores = score(rows);
        assert_eq!(
            (scores.classes.len(), scores.probabilities.len()),
            (rows, rows)
        );
        let same = |(row, share): (usize, &f64)| (share - few.probabilities[row % 5]).abs() < 1e-6;
        assert!(scores.probabilities.iter().enumerate().all(same), "{rows}");
        let same = |(row, class): (usize, &usize)| *class == few.classes[row % 5];
        assert!(scores.classes.iter().enumerate().all(same), "{rows}");
    }
    assert!(evaluator.score(&[]).unwrap().classes.is_empty());
}

#[test]
fn a_killed_evaluator_is_an_error() {
    let link = Link::new();
    let mut scorer = link.scorer();
    let batch = SavedRows::open(&rows()).unwrap().next().unwrap().unwrap();
    scorer.score(&batch).unwrap();
    let process = link.process().unwrap();
    kill(process, Signal::SIGKILL).unwrap();
    let error = scorer.score(&batch).unwrap_err();
    let start =
        "lowroad-onnx, which evaluates the model network-3, ended early (signal: 9 (SIGKILL))";
    assert!(error.starts_with(start), "{error}");
    assert_eq!(scorer.score(&batch), Err(error));
    assert!(!exists(process), "a zombie is left");
}

#[test]
fn signals_to_a_group_do_not_end_it() {
    let link = Link::new();
    let mut scorer = link.scorer();
    let batch = SavedRows::open(&rows()).unwrap().next().unwrap().unwrap();
    let process = link.process().unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        kill(process, signal).unwrap();
    }
    scorer.score(&batch).unwrap();
}

#[test]
fn nothing_is_left_after_a_drop() {
    let link = Link::new();
    let scorer = link.scorer();
    let process = link.process().unwrap();
    drop(scorer);
    assert!(!exists(process));
}
