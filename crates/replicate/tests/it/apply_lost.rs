//! The effects of a power failure or a full disk on a log and its replica.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::mount::{MsFlags, mount};
use replicate::apply::{Error, Gate, Options, Replica, StepReport};
use replicate::log::{self, Durability, Writer, compact};
use replicate::record::{Change, Entry, Kind};

use crate::bed::file_system::{Format, within};
use crate::bed::trees::extended;
use crate::common::{data, epoch, file, link, mode, new, start};

fn write(log: &Path, at_ns: u64, entries: &[Entry]) {
    let options = log::Options {
        durability: Durability::OnRequest,
        segment: 20_000,
    };
    // Programs that other tests start hold the lock until they have called `exec`.
    let mut writer = loop {
        match Writer::open(log, options) {
            Err(log::Error::Busy(_)) => thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    for entry in entries {
        writer.append(at_ns, entry.clone()).unwrap();
    }
    writer.sync().unwrap();
}

fn begun() -> Vec<Entry> {
    vec![
        start(),
        mode(2, 0o755),
        new(11, Kind::Regular),
        data(11, 0, b"first"),
        mode(11, 0o644),
        link(2, "file", 11),
        epoch(1),
    ]
}

fn apply(log: &Path, to: &Path) -> Result<Option<StepReport>, Error> {
    let mut replica = Replica::open(log, to, Options::default())?;
    let applied = replica.apply(None)?;
    replica.end()?;
    Ok(applied)
}

fn copied(from: &Path, to: PathBuf) -> PathBuf {
    let done = Command::new("cp").arg("-a").args([from, &to]).status();
    assert!(done.unwrap().success());
    to
}

#[test]
fn a_log_that_lost_its_end_is_waited_for_and_told_from_another() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = |name: &str| folder.path().join(name);
    let (log, to) = (place("log"), place("replica"));
    write(&log, 5, &begun());
    let lost = copied(&log, place("lost"));
    let other = copied(&log, place("other"));
    let first = copied(&log, place("first"));
    let later = [data(11, 0, b"later"), epoch(2)];
    write(&log, 6, &later);
    apply(&log, &to).unwrap().unwrap();
    let short = apply(&lost, &to);
    assert!(
        matches!(short, Err(Error::Short { epoch: 2, .. })),
        "{short:?}"
    );
    // The lost records are sent again, with more after them.
    write(&lost, 6, &later);
    assert_eq!(apply(&lost, &to).unwrap(), None);
    write(&lost, 9, &[data(11, 0, b"third"), epoch(3)]);
    apply(&lost, &copied(&to, place("copy"))).unwrap().unwrap();
    // The source itself lost them, and writes other records with the same numbers.
    write(&other, 8, &[data(11, 0, b"other"), epoch(2)]);
    let behind = apply(&other, &to);
    assert!(
        matches!(behind, Err(Error::Behind { epoch: 2, .. })),
        "{behind:?}"
    );
    assert_eq!(fs::read(to.join("tree/file")).unwrap(), b"later");
    // Or with an epoch that ends before or after that number.
    let third = copied(&first, place("third"));
    write(&third, 8, &[epoch(2), data(11, 0, b"third"), epoch(3)]);
    let behind = apply(&third, &to);
    assert!(
        matches!(behind, Err(Error::Behind { epoch: 2, .. })),
        "{behind:?}"
    );
}

/// Only the log that an interrupted step was of tells what the step has left.
#[test]
fn a_step_that_was_cut_off_is_not_finished_by_another_log() {
    let attribute = |value: &[u8]| {
        Entry::Change(Change::Extended {
            file: file(11),
            all: vec![(b"user.a".to_vec(), value.to_vec())],
        })
    };
    let value = |to: &Path| extended(&to.join("tree/file"))[0].1.clone();
    let mut refused = 0;
    for calls in 0.. {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let place = |name: &str| folder.path().join(name);
        let (log, to) = (place("log"), place("replica"));
        let mut entries = begun();
        entries.insert(4, attribute(b"1"));
        write(&log, 5, &entries);
        apply(&log, &to).unwrap().unwrap();
        let short = copied(&log, place("short"));
        let other = copied(&log, place("other"));
        write(&log, 6, &[attribute(b"2"), epoch(2)]);
        let closing = Options {
            gate: Gate::closing_after(calls),
            ..Options::default()
        };
        let cut = Replica::open(&log, &to, closing).and_then(|mut replica| replica.apply(None));
        if cut.is_ok() {
            break;
        }
        // The log has lost its end or has another one, and has no record of the file.
        let new = [new(12, Kind::Regular), mode(12, 0o600), link(2, "new", 12)];
        write(&other, 8, &new);
        write(&other, 8, &[epoch(2)]);
        for (log, name) in [(&short, "one"), (&other, "two")] {
            let to = copied(&to, place(name));
            match apply(log, &to) {
                Ok(_) => assert_eq!(value(&to), b"1", "{calls} calls"),
                Err(Error::Short { .. } | Error::Behind { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        apply(&log, &to).unwrap().unwrap();
        assert_eq!(value(&to), b"2");
    }
    assert!(refused > 0);
}

#[test]
fn an_attribute_that_finds_no_place_is_left_out_and_counted() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "disk") else {
            return;
        };
        let (log, to) = (bed.scratch().join("log"), disk.join("replica"));
        let mut entries = begun();
        let attributes = [("user.large", 20_000), ("user.small", 3)];
        let all = attributes.map(|(name, size)| (name.as_bytes().to_vec(), vec![b'x'; size]));
        entries.insert(
            4,
            Entry::Change(Change::Extended {
                file: file(11),
                all: all.to_vec(),
            }),
        );
        write(&log, 5, &entries);
        let applied = apply(&log, &to).unwrap().unwrap();
        assert_eq!(applied.left.extended, 1);
        assert_eq!(extended(&to.join("tree/file")), all[1..]);
        write(&log, 6, &[data(11, 0, b"later"), epoch(2)]);
        apply(&log, &to).unwrap().unwrap();
        assert_eq!(fs::read(to.join("tree/file")).unwrap(), b"later");
    });
}

#[test]
fn attributes_that_change_places_find_room_and_what_does_not_fit_keeps_no_old_value() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "disk") else {
            return;
        };
        let (log, to) = (bed.scratch().join("log"), disk.join("replica"));
        let of = |sizes: [(&str, usize); 2]| {
            let all = sizes.map(|(name, size)| (name.as_bytes().to_vec(), vec![b'x'; size]));
            let change = Change::Extended {
                file: file(11),
                all: all.to_vec(),
            };
            (all, Entry::Change(change))
        };
        let (_, first) = of([("user.a", 10), ("user.b", 3000)]);
        let mut entries = begun();
        entries.insert(4, first);
        write(&log, 5, &entries);
        apply(&log, &to).unwrap().unwrap();
        let (all, second) = of([("user.a", 3000), ("user.b", 10)]);
        write(&log, 6, &[second, epoch(2)]);
        let applied = apply(&log, &to).unwrap().unwrap();
        assert_eq!(applied.left.extended, 0);
        assert_eq!(extended(&to.join("tree/file")), all);
        let (all, third) = of([("user.a", 20_000), ("user.b", 20)]);
        write(&log, 7, &[third, epoch(3)]);
        let applied = apply(&log, &to).unwrap().unwrap();
        assert_eq!(applied.left.extended, 1);
        assert_eq!(extended(&to.join("tree/file")), all[1..]);
    });
}

#[test]
fn a_compaction_without_room_takes_none() {
    within(|bed| {
        let disk = bed.scratch().join("small");
        fs::create_dir(&disk).unwrap();
        let sized = |flags, size| {
            mount(Some("tmpfs"), &disk, Some("tmpfs"), flags, Some(size)).unwrap();
        };
        sized(MsFlags::empty(), "size=1M");
        let log = disk.join("log");
        write(&log, 5, &begun());
        for at in 0..9 {
            write(&log, 5, &[data(11, at * 65_536, &[5; 65_536])]);
        }
        write(&log, 5, &[epoch(2), data(11, 0, b"later"), epoch(3)]);
        let full = compact(&log, 2);
        assert!(matches!(full, Err(log::Error::Io { .. })), "{full:?}");
        let names = fs::read_dir(&log).unwrap();
        let mut left = names.map(|entry| entry.unwrap().file_name());
        assert!(!left.any(|name| name == "compact.tmp"));
        write(&log, 5, &[data(11, 0, &[6; 65_536]), epoch(4)]);
        sized(MsFlags::MS_REMOUNT, "size=4M");
        compact(&log, 2).unwrap();
        let to = bed.scratch().join("replica");
        assert_eq!(apply(&log, &to).unwrap().unwrap().epoch, 4);
    });
}
