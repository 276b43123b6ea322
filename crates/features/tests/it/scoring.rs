//! Rows that are scored on their way to an output.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use features::model::{Model, Scores, TreeScorer};
use features::row_file::SavedRows;
use features::sink::{
    Backlog, FileSink, Format, Mode, Queue, Rotation, Scorer, ScoringSink, Sink, scored_schema,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel};
use parquet::file::properties::WriterProperties;

use crate::common::MemorySink;

fn saved() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/model/saved")
}

fn rows() -> RecordBatch {
    let mut rows = SavedRows::open(&saved().join("rows.parquet")).unwrap();
    rows.next().unwrap().unwrap()
}

#[test]
fn every_row_gets_its_class_whichever_file_it_comes_from() {
    let model = Model::load(&saved().join("forest-2.toml")).unwrap();
    let batch = rows();
    let expected = model.score(&model.bind(&batch.schema()).unwrap(), &batch);
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Parquet, Format::Arrow] {
        let path = folder.path().join("scored");
        let sink = FileSink::create(
            &path,
            format,
            &scored_schema(&batch.schema()),
            Rotation::default(),
            Mode::Whole,
        );
        let scorer = TreeScorer::new(model.clone(), &batch.schema()).unwrap();
        let mut scored = ScoringSink::new(
            Box::new(sink.unwrap()),
            Box::new(scorer),
            &batch.schema(),
            None,
        );
        scored.write(&batch).unwrap();
        scored.finish().unwrap();
        let written: Vec<RecordBatch> = SavedRows::open(&path)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let found: Vec<usize> = written
            .iter()
            .flat_map(|batch| {
                let classes = batch.column_by_name("class").unwrap().as_string::<i32>();
                let classes = classes
                    .iter()
                    .map(|class| usize::from(class == Some("class1")));
                classes.collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(found, expected.classes);
    }
}

#[test]
fn rows_are_read_however_another_program_compressed_them() {
    let batch = rows();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::GZIP(GzipLevel::default()),
    ] {
        let properties = WriterProperties::builder().set_compression(compression);
        let file = File::create(&path).unwrap();
        let writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build()));
        let mut writer = writer.unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let found = SavedRows::open(&path).unwrap().next().unwrap().unwrap();
        assert_eq!(found.columns(), batch.columns(), "{compression}");
    }
}

/// Says that it has rows, and answers once it is told to.
struct Slow(Sender<()>, Receiver<()>, Vec<String>);

impl Scorer for Slow {
    fn classes(&self) -> &[String] {
        &self.2
    }

    fn score(&mut self, rows: &RecordBatch) -> Result<Scores, String> {
        let _heard = self.0.send(());
        let _told = self.1.recv();
        Ok(Scores {
            classes: vec![0; rows.num_rows()],
            probabilities: vec![1.0; rows.num_rows()],
        })
    }
}

fn slow() -> (Receiver<()>, Sender<()>, Box<Slow>) {
    let ((says, begun), (go, wait)) = (channel(), channel());
    let slow = Slow(says, wait, vec!["benign".to_owned()]);
    (begun, go, Box::new(slow))
}

#[test]
fn rows_that_wait_too_long_go_without_a_score() {
    let batch = rows();
    let kept = MemorySink::default();
    let (begun, go, slow) = slow();
    let backlog = Backlog::default();
    let scored = ScoringSink::new(
        Box::new(kept.clone()),
        slow,
        &batch.schema(),
        Some(backlog.clone()),
    );
    let unscored = scored.unscored();
    let mut queue = Queue::start_counting(Box::new(scored), Mode::Live, backlog.clone()).unwrap();
    queue.write(&batch).unwrap();
    // Its thread has the first one in its hands, and waits.
    begun.recv().unwrap();
    assert_eq!(backlog.batches(), 0);
    for _ in 0..20 {
        queue.write(&batch).unwrap();
    }
    drop(go);
    queue.finish().unwrap();
    assert_eq!(queue.lost(), 0);
    let kept = kept.0.lock().unwrap();
    let nulls: Vec<bool> = kept
        .iter()
        .map(|batch| batch.column_by_name("class").unwrap().null_count() > 0)
        .collect();
    // 20 wait; as long as more than 16 do, none is scored.
    assert_eq!(nulls.len(), 21);
    let scored = |at: usize| at == 0 || at >= 4;
    for (at, null) in nulls.into_iter().enumerate() {
        assert_eq!(null, !scored(at), "batch {at}");
    }
    assert_eq!(
        unscored.rows(),
        3 * u64::try_from(batch.num_rows()).unwrap()
    );
}

/// Has an answer for every other row.
struct Halting(Vec<String>);

impl Scorer for Halting {
    fn classes(&self) -> &[String] {
        &self.0
    }

    fn score(&mut self, rows: &RecordBatch) -> Result<Scores, String> {
        let answer = |row| if row % 2 == 0 { 0.75 } else { f64::NAN };
        Ok(Scores {
            classes: vec![0; rows.num_rows()],
            probabilities: (0..rows.num_rows()).map(answer).collect(),
        })
    }
}

#[test]
fn rows_that_a_model_has_no_answer_for_are_written_and_counted() {
    let batch = rows();
    let kept = MemorySink::default();
    let halting = Box::new(Halting(vec!["benign".to_owned()]));
    let mut scored = ScoringSink::new(Box::new(kept.clone()), halting, &batch.schema(), None);
    let unscored = scored.unscored();
    scored.write(&batch).unwrap();
    let written = kept.0.lock().unwrap().remove(0);
    let half = batch.num_rows() / 2;
    assert_eq!(unscored.rows(), u64::try_from(half).unwrap());
    for name in ["class", "class_probability"] {
        let column = written.column_by_name(name).unwrap();
        assert_eq!(column.null_count(), half, "{name}");
        assert!(column.is_valid(0) && column.is_null(1), "{name}");
    }
}

#[test]
fn a_whole_input_waits_for_its_scores() {
    let batch = rows();
    let kept = MemorySink::default();
    let (_begun, go, slow) = slow();
    let scored = ScoringSink::new(Box::new(kept.clone()), slow, &batch.schema(), None);
    let unscored = scored.unscored();
    let mut queue = Queue::start(Box::new(scored), Mode::Whole).unwrap();
    for _ in 0..20 {
        queue.write(&batch).unwrap();
    }
    drop(go);
    queue.finish().unwrap();
    assert_eq!((kept.0.lock().unwrap().len(), unscored.rows()), (20, 0));
}
