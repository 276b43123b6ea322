//! The capture that a run writes: the packets of its rows, whole whatever happens, and none lost silently.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use features::filter::{Rules, Selection};
use features::pcap::{Captures, Progress, Run, Summary};
use features::recording::{Recording, RecordingCounters};
use features::sink::{Error, Mode, Nowhere, Series};
use features::{Options, schema};
use packet::pcap::{OwnedFrame, Reader, Writer};

use crate::common::disk::mount_disk;
use crate::common::json_rows;

fn mix(packets: usize) -> Vec<u8> {
    loadgen::mix::write(Vec::new(), packets, 3).unwrap()
}

fn run(filter: &str) -> Run {
    let rules = Rules {
        filter: (!filter.is_empty()).then(|| filter.to_owned()),
        ..Rules::default()
    };
    let selection = Selection::new(rules).unwrap();
    Run {
        options: Options {
            selection,
            ..Options::default()
        },
        schema: schema::find("flow.v1").unwrap(),
    }
}

/// What a run over the capture has recorded, and what it says of it.
fn record(
    run: &Run,
    capture: &[u8],
    recording: Recording,
) -> (Summary, RecordingCounters, Result<(), Error>) {
    let recorder = Some(recording.recorder());
    let progress = Progress::default();
    let summary = run.run_recorded(
        Captures::one(capture),
        Box::new(Nowhere),
        recorder,
        &progress,
    );
    let (recorded, finished) = recording.finish();
    (summary, recorded, finished)
}

/// Every frame of a file, which must be readable to its end.
fn frames(path: &Path) -> Vec<OwnedFrame> {
    let reader = Reader::new(File::open(path).unwrap()).unwrap();
    reader.map(|frame| frame.unwrap()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_capture_of_a_filtered_run_makes_the_same_rows_without_the_filter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tcp.pcap");
    let (capture, filtered) = (mix(4000), run("tcp"));
    let recording = Recording::start(&path, Series::default(), Mode::Whole).unwrap();
    let (summary, recorded, finished) = record(&filtered, &capture, recording);
    finished.unwrap();
    let kept = summary.counters.exported.packets;
    assert!(kept > 0 && kept < 4000);
    assert_eq!(
        recorded,
        RecordingCounters {
            packets: kept,
            lost: 0
        }
    );
    assert_eq!(frames(&path).len() as u64, kept);
    let again = fs::read(&path).unwrap();
    assert_eq!(
        json_rows(&run(""), &again).1,
        json_rows(&filtered, &capture).1
    );
    assert_eq!(files(folder.path()), [path]);
}

#[test]
fn frames_that_were_cut_off_keep_their_length() {
    let mut writer = Writer::new(Vec::new(), 1).unwrap();
    let whole = frames_of(&mix(1));
    writer.write_cut(7, 1400, &whole[0].frame[..44]).unwrap();
    let capture = writer.finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let recording = Recording::start(&path, Series::default(), Mode::Whole).unwrap();
    record(&run(""), &capture, recording).2.unwrap();
    assert_eq!(frames(&path), frames_of(&capture));
}

fn frames_of(capture: &[u8]) -> Vec<OwnedFrame> {
    Reader::new(capture)
        .unwrap()
        .map(|frame| frame.unwrap())
        .collect()
}

#[test]
fn of_a_series_the_latest_files_stay_and_each_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring.pcap");
    let (capture, size) = (mix(20_000), 1 << 20);
    let series = |files| Series {
        size: Some(size),
        files,
    };
    let all = Recording::start(&path, series(None), Mode::Whole).unwrap();
    let (_, recorded, finished) = record(&run(""), &capture, all);
    finished.unwrap();
    let every = files(folder.path());
    assert!(every.len() > 4, "{every:?}");
    assert!(
        every
            .iter()
            .all(|file| fs::metadata(file).unwrap().len() <= size)
    );
    let packets: usize = every.iter().map(|file| frames(file).len()).sum();
    assert_eq!(packets as u64, recorded.packets);
    every.iter().for_each(|file| fs::remove_file(file).unwrap());

    let ring = Recording::start(&path, series(Some(2)), Mode::Whole).unwrap();
    let (_, again, finished) = record(&run(""), &capture, ring);
    finished.unwrap();
    assert_eq!(again, recorded);
    let latest = files(folder.path());
    assert_eq!(latest.len(), 2, "{latest:?}");
    let last = |files: &[PathBuf]| {
        files
            .iter()
            .flat_map(|f| frames(f))
            .map(|f| f.timestamp_ns)
            .max()
    };
    assert_eq!(
        last(&latest),
        frames_of(&capture).last().map(|frame| frame.timestamp_ns)
    );
}

#[test]
fn a_run_without_packets_leaves_an_empty_capture_and_one_that_never_began_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    drop(Recording::start(&path, Series::default(), Mode::Live).unwrap());
    assert!(files(folder.path()).is_empty());
    let recording = Recording::start(&path, Series::default(), Mode::Live).unwrap();
    assert_eq!(recording.finish().0, RecordingCounters::default());
    assert!(frames(&path).is_empty());
}

#[test]
fn several_link_types_do_not_fit_into_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::start(
        &folder.path().join("a.pcap"),
        Series::default(),
        Mode::Whole,
    );
    let recording = recording.unwrap();
    for link_type in [1, 101] {
        let mut writer = Writer::new(Vec::new(), link_type).unwrap();
        let frame = &frames_of(&mix(1))[0].frame;
        // Without its Ethernet header where there is none.
        let from = if link_type == 1 { 0 } else { 14 };
        writer.write(7, &frame[from..]).unwrap();
        let capture = writer.finish().unwrap();
        let recorder = Some(recording.recorder());
        run("").run_recorded(
            Captures::one(capture.as_slice()),
            Box::new(Nowhere),
            recorder,
            &Progress::default(),
        );
    }
    let (recorded, finished) = recording.finish();
    assert_eq!(
        recorded,
        RecordingCounters {
            packets: 1,
            lost: 1
        }
    );
    assert!(finished.unwrap_err().to_string().contains("link types"));
}

#[test]
fn a_full_disk_leaves_a_capture_of_whole_packets_and_an_exact_count() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // More than waits for the disk at most: whoever reads it comes to wait, and sees that the disk is full.
    let capture = mix(60_000);
    for mode in [Mode::Whole, Mode::Live] {
        thread::scope(|scope| {
            let ran = scope.spawn(|| {
                mount_disk(folder.path(), 1500);
                let path = folder.path().join("a.pcap");
                let recording = Recording::start(&path, Series::default(), mode).unwrap();
                let (summary, recorded, finished) = record(&run(""), &capture, recording);
                assert!(finished.unwrap_err().to_string().contains("No space left"));
                let packets = frames(&path).len() as u64;
                assert!(packets > 0 && recorded.lost > 0, "{recorded:?}");
                assert_eq!(packets, recorded.packets);
                // A run that loses nothing ends there, a live one goes on.
                let seen = summary.counters.seen.packets;
                assert_eq!(seen == 60_000, mode == Mode::Live);
                assert_eq!(recorded.packets + recorded.lost, seen);
                assert_eq!(files(folder.path()), [path]);
            });
            ran.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}
