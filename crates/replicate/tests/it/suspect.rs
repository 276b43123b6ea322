//! Parts that are reported as suspect are read again, and the next epoch contains them.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use replicate::log::Reader;
use replicate::record::{Change, Entry, Origin, Part};
use replicate::verify::{Scope, verify};

use crate::bed::file_system::{Format, within};
use crate::bed::recording::Recording;

const ALL: Part = Part::Range {
    offset: 0,
    length: u64::MAX,
};

/// The entries of the log after an epoch.
fn since(log: &Path, epoch: u64) -> Vec<Entry> {
    let mut reader = Reader::open(log).unwrap();
    let (mut all, mut begun) = (Vec::new(), false);
    while let Some(located) = reader.read().unwrap() {
        if begun {
            all.push(located.record.entry);
        } else {
            begun = located.record.entry == Entry::Epoch { number: epoch };
        }
    }
    all
}

fn count(entries: &[Entry], what: impl Fn(&Change) -> bool) -> usize {
    let changes = entries.iter().filter_map(|entry| match entry {
        Entry::Change(change) => Some(change),
        _ => None,
    });
    changes.filter(|change| what(change)).count()
}

#[test]
fn what_is_suspected_is_read_and_settled() {
    within(|bed| {
        for format in [Format::Ext4, Format::Xfs, Format::Btrfs] {
            let Some(disk) = bed.follow(format, &format!("{format:?}")) else {
                continue;
            };
            let (tree, log) = (
                disk.join("tree"),
                bed.scratch().join(format!("{format:?}.log")),
            );
            fs::create_dir_all(tree.join("deep")).unwrap();
            fs::write(tree.join("deep/file"), [7; 100_000]).unwrap();
            fs::write(tree.join("other"), "other").unwrap();
            let mut recording = Recording::start(&tree, &log);
            recording.catch_up();
            let before = recording.epoch();

            recording.suspect("deep/file", &[ALL, Part::Attributes]);
            recording.catch_up();
            assert!(recording.epoch() > before);
            let said = since(&log, before);
            let doubts = count(&said, |change| matches!(change, Change::Doubt { .. }));
            let settled = count(&said, |change| matches!(change, Change::Settled { .. }));
            assert_eq!(
                (doubts, settled),
                (3, 3),
                "names, bytes, attributes: {said:?}"
            );
            let read: usize = said.iter().map(bytes).sum();
            assert_eq!(read, 100_000, "nothing of another file");

            // Only the parts that its kind can have are read. For a missing file, only the
            // directory is read.
            let before = recording.epoch();
            for (path, parts) in [
                ("deep", &[ALL, Part::Names][..]),
                ("none/x", &[ALL]),
                ("", &[]),
            ] {
                recording.suspect(path, parts);
            }
            recording.catch_up();
            assert!(recording.epoch() > before);
            let said = since(&log, before);
            assert_eq!(said.iter().map(bytes).sum::<usize>(), 0, "{said:?}");
            let names = |change: &Change| {
                matches!(
                    change,
                    Change::Doubt {
                        part: Part::Names,
                        ..
                    }
                )
            };
            assert_eq!(count(&said, names), 2, "the root's and deep's: {said:?}");

            let scope = Scope {
                owners: true,
                privileged: true,
            };
            let on = &mut |_: &_| ControlFlow::Continue(());
            let verdict = verify(&log, None, &tree, scope, on).unwrap();
            assert!(verdict.equal(), "{verdict:?}");
        }
    });
}

fn bytes(entry: &Entry) -> usize {
    match entry {
        Entry::Change(Change::Data { bytes, origin, .. }) => {
            assert_eq!(*origin, Origin::ReadBack);
            bytes.len()
        }
        _ => 0,
    }
}
