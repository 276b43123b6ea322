//! Files: what is readable after what, and whether every row is in one or counted as lost.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use features::pcap::{Captures, Progress};
use features::sink::{FileSink, Format, Mode, Queue, Rotation, SchemaRef, Sink};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::common::disk::mount_disk;
use crate::common::{capture, run, wait_until};

const ROWS: usize = 1024;

fn schema() -> SchemaRef {
    let field = |name: &str| Field::new(name, DataType::UInt64, true);
    let fields = vec![field("a"), field("b"), field("c"), field("d")];
    // As much as definitions of columns are: a footer is longer than a disk's block.
    let about = ("about".to_owned(), "what it means ".repeat(2000));
    Arc::new(Schema::new_with_metadata(fields, HashMap::from([about])))
}

/// Numbers that no compression makes shorter.
struct Noise(u64);

impl Noise {
    fn batch(&mut self) -> RecordBatch {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        };
        let mut column = || Arc::new((0..ROWS).map(|_| next()).collect::<UInt64Array>()) as _;
        let columns = vec![column(), column(), column(), column()];
        RecordBatch::try_new(schema(), columns).unwrap()
    }
}

fn create(path: &Path, format: Format, rotation: Rotation, mode: Mode) -> FileSink {
    FileSink::create(path, format, &schema(), rotation, mode).unwrap()
}

/// Rows of a file, which must be readable to its end.
fn rows(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let rows = match Format::of(path).unwrap() {
        Format::Parquet => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let batches = reader.build().unwrap();
            batches.map(|batch| batch.unwrap().num_rows()).sum()
        }
        Format::Arrow => {
            let reader = arrow_ipc::reader::StreamReader::try_new(file, None).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).sum()
        }
        Format::Csv => {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.ends_with('\n'));
            assert!(text.lines().all(|line| line.split(',').count() == 4));
            text.lines().count() - 1
        }
        Format::JsonLines => {
            let text = fs::read_to_string(path).unwrap();
            let lines = text.lines();
            lines
                .inspect(|line| drop(serde_json::from_str::<serde_json::Value>(line).unwrap()))
                .count()
        }
        Format::Ipfix => panic!("tested elsewhere"),
    };
    u64::try_from(rows).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs on a thread whose disk at the returned folder has so many KiB.
fn with_small_disk(kib: u32, work: impl FnOnce(&Path) + Send) {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let ran = scope.spawn(|| {
            mount_disk(folder.path(), kib);
            work(folder.path());
        });
        ran.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn numbers_of_every_kind_are_read_as_they_were_written() {
    let columns: [(&str, ArrayRef); 7] = [
        (
            "u8",
            Arc::new(UInt8Array::from(vec![Some(u8::MAX), None, Some(0)])),
        ),
        (
            "u16",
            Arc::new(UInt16Array::from(vec![None, Some(u16::MAX), Some(0)])),
        ),
        (
            "u32",
            Arc::new(UInt32Array::from(vec![u32::MAX, 0, u32::MAX / 2 + 1])),
        ),
        (
            "u64",
            Arc::new(UInt64Array::from(vec![u64::MAX, 0, u64::MAX / 2 + 1])),
        ),
        (
            "i64",
            Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(i64::MIN), None])),
        ),
        ("signed", {
            let lists = [
                [Some(i32::MIN), Some(i32::MAX)],
                [Some(-1), None],
                [None, None],
            ];
            let lists = lists.map(Some);
            Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
                lists, 2,
            ))
        }),
        ("unsigned", {
            let lists = [[Some(u64::MAX), Some(0)], [Some(1), None], [None, None]];
            let lists = lists.map(Some);
            Arc::new(FixedSizeListArray::from_iter_primitive::<UInt64Type, _, _>(
                lists, 2,
            ))
        }),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    let mut sink = FileSink::create(
        &path,
        Format::Parquet,
        &batch.schema(),
        Rotation::default(),
        Mode::Whole,
    )
    .unwrap();
    // More than a row group.
    for _ in 0..8192 {
        sink.write(&batch).unwrap();
    }
    sink.finish().unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let mut read = 0;
    for again in builder.with_batch_size(3).build().unwrap() {
        assert_eq!(again.unwrap(), batch);
        read += 1;
    }
    assert_eq!(read, 8192);
}

#[test]
fn a_full_disk_ends_a_run_with_a_readable_file_and_an_exact_count() {
    for format in [
        Format::Parquet,
        Format::Arrow,
        Format::Csv,
        Format::JsonLines,
    ] {
        for kib in [5000, 5123, 6144] {
            with_small_disk(kib, |disk| {
                let path = disk.join("flows").with_extension(format.name());
                let mut sink = create(&path, format, Rotation::default(), Mode::Whole);
                let mut noise = Noise(7);
                let mut given = 0;
                let error = loop {
                    given += ROWS as u64;
                    if let Err(error) = sink.write(&noise.batch()) {
                        break error.to_string();
                    }
                };
                assert!(error.contains("No space left"), "{error}");
                let _ = sink.finish();
                let kept = rows(&path);
                assert!(kept > 0);
                assert_eq!(kept + sink.lost(), given, "{format:?} on {kib} KiB");
                assert_eq!(files(disk), [path]);
            });
        }
    }
}

#[test]
fn packets_that_a_full_disk_kept_from_being_read_are_counted() {
    let capture = capture(4000);
    let frames = packet::pcap::Reader::new(capture.as_slice()).unwrap();
    let frames = u64::try_from(frames.count()).unwrap();
    for format in [Format::Arrow, Format::Csv, Format::JsonLines] {
        for threads in [1, 3] {
            for counts_rest in [true, false] {
                with_small_disk(512, |disk| {
                    let run = run("flow.v1");
                    let path = disk.join("flows").with_extension(format.name());
                    let (none, rows) = (Rotation::default(), run.arrow_schema());
                    let sink = FileSink::create(&path, format, &rows, none, Mode::Whole);
                    let progress = Progress::default();
                    progress.counts_rest.store(counts_rest, Ordering::Relaxed);
                    let threads = NonZeroU32::new(threads).unwrap();
                    let sink = Box::new(sink.unwrap());
                    let summary =
                        run.run_on(threads, Captures::one(capture.as_slice()), sink, &progress);
                    let counters = summary.counters;
                    let what = format!("{format:?}, {threads} threads: {counters:?}");
                    assert_eq!(counters.unaccounted(), 0, "{what}");
                    let unread = counters.seen.unread;
                    assert_eq!(counters.seen.packets == frames, counts_rest, "{what}");
                    assert_eq!(unread > 0, counts_rest, "{what}");
                    let said = summary.check().unwrap_err().to_string();
                    let rest = if counts_rest {
                        format!("{unread} packets were not read")
                    } else {
                        "the rest of the capture was not read".to_owned()
                    };
                    assert!(
                        said.contains("No space left") && said.contains(&rest),
                        "{said}"
                    );
                });
            }
        }
    }
}

#[test]
fn a_file_that_another_run_writes_is_refused_until_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.csv");
    let open = || {
        FileSink::create(
            &path,
            Format::Csv,
            &schema(),
            Rotation::default(),
            Mode::Whole,
        )
    };
    let mut noise = Noise(1);
    let mut first = open().unwrap();
    first.write(&noise.batch()).unwrap();
    let refused = open().unwrap_err().to_string();
    let expected = format!(
        "{}: another run is writing this file; end it, or choose another name",
        path.display()
    );
    assert_eq!(refused, expected);
    first.finish().unwrap();
    assert_eq!(rows(&path), ROWS as u64);
    // What a run left that was killed is no obstacle.
    fs::write(path.with_extension("csv.tmp"), "left").unwrap();
    let mut second = open().unwrap();
    for _ in 0..2 {
        second.write(&noise.batch()).unwrap();
    }
    second.finish().unwrap();
    assert_eq!(rows(&path), 2 * ROWS as u64);
    assert_eq!(files(folder.path()), [path]);
}

#[test]
fn two_runs_that_rotate_under_one_name_write_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.csv");
    let rotation = Rotation {
        size: Some(1 << 30),
        every: None,
    };
    let mut sinks = [1, 2].map(|_| create(&path, Format::Csv, rotation, Mode::Whole));
    for sink in &mut sinks {
        sink.write(&Noise(2).batch()).unwrap();
    }
    for sink in &mut sinks {
        sink.finish().unwrap();
    }
    let written: Vec<u64> = files(folder.path()).iter().map(|path| rows(path)).collect();
    assert_eq!(written, [ROWS as u64; 2]);
}

#[test]
fn there_is_room_for_the_end_also_when_others_fill_the_disk() {
    for format in [Format::Parquet, Format::Arrow, Format::Csv] {
        with_small_disk(20_000, |disk| {
            let path = disk.join("flows").with_extension(format.name());
            let mut sink = create(&path, format, Rotation::default(), Mode::Whole);
            let (mut noise, mut given) = (Noise(5), 0);
            let mut put = |sink: &mut FileSink| {
                given += ROWS as u64;
                sink.write(&noise.batch())
            };
            for _ in 0..2 * 64 {
                put(&mut sink).unwrap();
            }
            fill(&disk.join("ballast"));
            while put(&mut sink).is_ok() {}
            let kept = rows(&path);
            assert!(kept >= 2 * 65_536, "{format:?}: {kept}");
            assert_eq!(kept + sink.lost(), given);
        });
    }
}

/// Takes every block that is left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let page = [0; 4096];
    while file.write_all(&page).is_ok() {}
}

#[test]
fn a_live_run_goes_on_when_there_is_room_again() {
    for format in [Format::Parquet, Format::Csv] {
        with_small_disk(8192, |disk| {
            let ballast = disk.join("ballast");
            File::create(&ballast)
                .unwrap()
                .write_all(&vec![1; 5 << 20])
                .unwrap();
            let path = disk.join("flows").with_extension(format.name());
            let mut sink = create(&path, format, Rotation::default(), Mode::Live);
            let (mut noise, mut given) = (Noise(9), 0);
            let mut put = |sink: &mut FileSink| {
                given += ROWS as u64;
                sink.write(&noise.batch()).unwrap();
            };
            wait_until("the disk is full", || {
                put(&mut sink);
                sink.lost() > 0
            });
            fs::remove_file(&ballast).unwrap();
            wait_until("another file", || {
                put(&mut sink);
                files(disk).len() == 2
            });
            sink.finish().unwrap();
            let kept: u64 = files(disk).iter().map(|path| rows(path)).sum();
            assert_eq!(kept + sink.lost(), given);
        });
    }
}

#[test]
fn files_are_rotated_by_size_and_appear_complete() {
    for format in [
        Format::Parquet,
        Format::Arrow,
        Format::Csv,
        Format::JsonLines,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.v1").with_extension(format.name());
        let rotation = Rotation {
            size: Some(200_000),
            every: None,
        };
        let mut sink = create(&path, format, rotation, Mode::Whole);
        let mut noise = Noise(3);
        for _ in 0..40 {
            sink.write(&noise.batch()).unwrap();
            for file in files(folder.path()) {
                if file.extension().is_some_and(|ending| ending != "tmp") {
                    assert!(rows(&file) > 0);
                }
            }
        }
        sink.finish().unwrap();
        let files = files(folder.path());
        assert!(files.len() > 3, "{files:?}");
        assert_eq!(
            files.iter().map(|file| rows(file)).sum::<u64>(),
            40 * ROWS as u64
        );
        assert_eq!(sink.lost(), 0);
    }
}

/// How many files of the folder are whole.
fn complete(folder: &Path) -> usize {
    let ended = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "parquet");
    files(folder).iter().filter(|path| ended(path)).count()
}

#[test]
fn a_file_without_rows_is_not_rotated() {
    let folder = tempfile::tempdir().unwrap();
    // Due at any time.
    let rotation = Rotation {
        size: None,
        every: Some(Duration::ZERO),
    };
    let path = folder.path().join("flows.parquet");
    let mut sink = create(&path, Format::Parquet, rotation, Mode::Live);
    sink.idle();
    assert_eq!(complete(folder.path()), 0);
    sink.write(&Noise(1).batch()).unwrap();
    sink.idle();
    assert_eq!(complete(folder.path()), 1, "one with rows is");
    sink.finish().unwrap();
    assert_eq!(complete(folder.path()), 1);
}

#[test]
fn files_are_rotated_by_time_also_when_nothing_comes() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation {
        size: None,
        every: Some(Duration::from_millis(1)),
    };
    let path = folder.path().join("flows.parquet");
    let mut sink = create(&path, Format::Parquet, rotation, Mode::Live);
    sink.write(&Noise(1).batch()).unwrap();
    wait_until("the file is complete", || {
        sink.idle();
        complete(folder.path()) == 1
    });
    sink.finish().unwrap();
    assert_eq!(complete(folder.path()), 1);
}

#[test]
fn a_run_that_has_not_begun_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    fs::write(&path, "as it was").unwrap();
    let sink = create(&path, Format::Parquet, Rotation::default(), Mode::Live);
    drop(Queue::start(Box::new(sink), Mode::Live).unwrap());
    assert_eq!(files(folder.path()), std::slice::from_ref(&path));
    assert_eq!(fs::read_to_string(&path).unwrap(), "as it was");
}

#[test]
fn a_run_without_rows_leaves_an_empty_file() {
    for format in [
        Format::Parquet,
        Format::Arrow,
        Format::Csv,
        Format::JsonLines,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows").with_extension(format.name());
        let mut sink = create(&path, format, Rotation::default(), Mode::Whole);
        sink.finish().unwrap();
        assert!(fs::exists(&path).unwrap());
        if format != Format::Csv && format != Format::JsonLines {
            assert_eq!(rows(&path), 0);
        }
    }
}
