//! The size limit of a log and its reported size. A reader at the end does not list the folder.

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use replicate::log::{
    CompactionReport, DiskUsage, Durability, Error, Options, Reader, Writer, compact,
    compact_while, foldable, seal, try_room,
};
use replicate::record::Kind;
use replicate::restore::{self, restore};
use replicate::service::keep::Keep;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::common::{data, epoch, link, mode, new, start};

/// Far longer than any wait here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn writer(log: &Path, segment: u64) -> Writer {
    let options = Options {
        durability: Durability::OnRequest,
        segment,
    };
    Writer::open(log, options).unwrap()
}

/// Creates a file that is rewritten repeatedly.
fn begin(writer: &mut Writer) {
    for entry in [
        start(),
        mode(2, 0o755),
        new(10, Kind::Regular),
        mode(10, 0o644),
        link(2, "file", 10),
    ] {
        writer.append(1, entry).unwrap();
    }
}

fn go_on(writer: &mut Writer, epochs: std::ops::RangeInclusive<u64>) {
    for number in epochs {
        let byte = number.to_le_bytes()[0];
        writer.append(1, data(10, 0, &[byte; 1000])).unwrap();
        writer.append(1, epoch(number)).unwrap();
    }
    writer.sync().unwrap();
}

/// The byte that fills the restored file.
fn restored(log: &Path, epoch: Option<u64>) -> Result<u8, restore::Error> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    restore(log, epoch, &out, restore::Options::default())?;
    let bytes = fs::read(out.join("file")).unwrap();
    assert_eq!(bytes, [bytes[0]; 1000]);
    Ok(bytes[0])
}

fn names(log: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    all.sort();
    all
}

#[test]
fn it_says_what_it_takes_and_what_can_be_folded() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path();
    assert_eq!(DiskUsage::of(log).unwrap(), DiskUsage::default());
    assert_eq!(foldable(log, 0).unwrap(), None);
    assert!(matches!(seal(log), Err(Error::NoLog(_))));
    let mut writer = writer(log, 10_000);
    begin(&mut writer);
    go_on(&mut writer, 1..=95);
    let stored = DiskUsage::of(log).unwrap();
    assert_eq!((stored.base, stored.first_epoch), (0, Some(1)));
    assert!((95_000..120_000).contains(&stored.bytes), "{stored:?}");
    // The log has a writer, which owns the last segment.
    assert!(!seal(log).unwrap());
    let last = foldable(log, 0).unwrap().unwrap();
    assert!((80..95).contains(&last), "{last}");
    let half = foldable(log, 50_000).unwrap().unwrap();
    assert!((30..50).contains(&half), "{half}");
    assert_eq!(foldable(log, 200_000).unwrap(), None);
    // Sealing a log again changes nothing.
    let before = names(log);
    let mut turns = 0;
    let ended = compact_while(log, half, &mut |_| {
        turns += 1;
        turns < 100
    });
    assert!(matches!(ended, Err(Error::Interrupted(_))), "{ended:?}");
    assert_eq!(names(log).len(), before.len() + 1, "but for a lock");
    let CompactionReport {
        epoch,
        before,
        after,
    } = compact(log, half).unwrap();
    assert_eq!(epoch, half);
    let now = DiskUsage::of(log).unwrap();
    assert_eq!(now.first_epoch, Some(half));
    assert_eq!(now.base, after);
    assert_eq!(now.bytes + before, stored.bytes + after);
    assert_eq!(restored(log, Some(half)).unwrap(), half.to_le_bytes()[0]);
    assert!(restored(log, Some(half - 1)).is_err());
    drop(writer);
    assert!(seal(log).unwrap());
    assert_eq!(foldable(log, 0).unwrap(), Some(95));
    compact(log, 95).unwrap();
    assert_eq!(foldable(log, 0).unwrap(), None);
    assert_eq!(DiskUsage::of(log).unwrap().first_epoch, Some(95));
    assert_eq!(restored(log, None).unwrap(), 95);
    try_room(log).unwrap();
    assert!(!log.join("room.tmp").exists());
}

#[test]
fn a_log_that_grows_is_kept_to_its_size_while_it_is_written() {
    const SIZE: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path();
    let mut writer = writer(log, SIZE / 8);
    begin(&mut writer);
    go_on(&mut writer, 1..=100);
    let keep = Keep::begin(log, SIZE).unwrap();
    let mut last = 100;
    for _ in 0..3 {
        go_on(&mut writer, last + 1..=last + 2000);
        last += 2000;
        let since = Instant::now();
        while DiskUsage::of(log).unwrap().bytes > SIZE {
            assert!(since.elapsed() < TIMEOUT);
            thread::sleep(Duration::from_millis(20));
        }
        let stored = DiskUsage::of(log).unwrap();
        let first = stored.first_epoch.unwrap();
        // Half of it stays unfolded.
        assert!(stored.bytes - stored.base >= SIZE / 2, "{stored:?}");
        assert!(first + 400 < last, "{first} of {last}");
        assert_eq!(restored(log, Some(first)).unwrap(), first.to_le_bytes()[0]);
        assert_eq!(restored(log, None).unwrap(), last.to_le_bytes()[0]);
    }
    drop(keep);
}

#[test]
fn who_reads_the_end_of_a_log_does_not_list_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path();
    let mut writer = writer(log, 2000);
    begin(&mut writer);
    go_on(&mut writer, 1..=20);
    let mut readers = [
        Reader::open(log).unwrap(),
        // It begins after the last record.
        Reader::open_after(log, writer.number()).unwrap(),
    ];
    let mut last = 20;
    for round in 0..3 {
        for reader in &mut readers {
            while reader.read().unwrap().is_some() {}
        }
        assert_eq!(
            listings(log, || {
                for reader in &mut readers {
                    for _ in 0..10 {
                        assert!(reader.read().unwrap().is_none());
                    }
                }
            }),
            0
        );
        // Across following segments, and across a base that replaces the segment being read.
        go_on(&mut writer, last + 1..=last + 10);
        if round == 1 {
            compact(log, last - 1).unwrap();
        }
        last += 10;
        for reader in &mut readers {
            let mut reached = 0;
            while let Some(located) = reader.read().unwrap() {
                reached = located.record.number;
            }
            assert_eq!(reached, writer.number());
        }
    }
}

/// How many times a folder is listed meanwhile.
fn listings(folder: &Path, meanwhile: impl FnOnce()) -> usize {
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, folder, WatchFlags::OPEN).unwrap();
    meanwhile();
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut room);
    let mut count = 0;
    while let Ok(event) = events.next() {
        count += usize::from(event.events().contains(ReadFlags::ISDIR));
    }
    count
}
