//! A log continues only with its own tree.

use std::fs;
use std::path::Path;
use std::time::Duration;

use replicate::capture::{Capture, Error, LogState, Options};
use replicate::log::{self, Reader, Writer};
use replicate::record::Entry;

use super::running::{Place, Running, shell, starts};
use crate::bed::file_system::{Bed, Format, within};

/// Longer than a shared machine takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Has a log of a tree with a file.
fn logged(place: &Place) {
    shell(&place.tree, "echo one >one");
    let mut running = Running::start(place);
    running.wait("ready");
    running.kill();
    place.check(&[]);
}

/// The error of a capture of this tree with this log.
fn refusal(tree: &Path, log: &Path) -> String {
    let resumed = Capture::resume(tree, Options::default(), LogState::read(log).unwrap());
    let error = resumed.map(drop).unwrap_err();
    assert!(matches!(error, Error::OtherTree { .. }), "{error}");
    error.to_string()
}

fn on(format: Format, check: impl FnOnce(&Bed, &Path, &Place) + Send) {
    within(|bed| {
        let Some(disk) = bed.follow(format, "source") else {
            return;
        };
        let place = Place::new(&disk, bed.scratch(), 0);
        logged(&place);
        check(bed, &disk, &place);
        assert_eq!(starts(&place.log), 1);
        // It is as it was for its own tree.
        let mut running = Running::start(&place);
        running.wait("ready");
        running.kill();
        place.check(&[]);
        assert_eq!(starts(&place.log), 1);
    });
}

#[test]
fn a_log_of_another_directory_is_refused() {
    on(Format::Ext4, |_, disk, place| {
        let other = disk.join("other");
        fs::create_dir(&other).unwrap();
        let said = refusal(&other, &place.log);
        assert!(said.contains("root was inode"), "{said}");
        assert!(!said.contains("this one is on"), "{said}");
        assert!(said.contains("--fresh"), "{said}");
    });
}

#[test]
fn a_log_of_another_file_system_is_refused_although_the_inodes_are_the_same() {
    for format in [Format::Ext4, Format::Xfs, Format::Btrfs] {
        on(format, |bed, _, place| {
            let (Some(root), Some(other)) = (bed.mount(format, "root"), bed.mount(format, "other"))
            else {
                return;
            };
            let (root, other) = (root.parent().unwrap(), other.parent().unwrap());
            // Where the roots of both have one inode and generation, only the file system differs.
            let log = place.log.with_extension("root");
            let mut writer = Writer::open(&log, log::Options::default()).unwrap();
            let mut capture = Capture::start(root, Options::default()).unwrap();
            let mut take = |entry| {
                writer.append(0, entry).unwrap();
            };
            assert!(capture.catch_up(LIMIT, &mut take).unwrap());
            drop(capture);
            writer.sync().unwrap();
            let said = refusal(other, &log);
            assert!(said.contains("this one is on"), "{format:?}: {said}");
        });
    }
}

#[test]
fn a_tree_that_was_renamed_is_the_same() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "source") else {
            return;
        };
        let mut place = Place::new(&disk, bed.scratch(), 0);
        logged(&place);
        let moved = disk.join("moved");
        fs::rename(&place.tree, &moved).unwrap();
        place.tree = moved;
        logged(&place);
        assert_eq!(starts(&place.log), 1);
    });
}

#[test]
fn a_log_that_does_not_tell_its_tree_goes_on_and_tells_it_then() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "source") else {
            return;
        };
        let mut place = Place::new(&disk, bed.scratch(), 0);
        logged(&place);
        // As an earlier version has written it.
        let (new, old) = (place.log.clone(), place.log.with_extension("old"));
        let mut reader = Reader::open(&new).unwrap();
        let mut writer = Writer::open(&old, log::Options::default()).unwrap();
        while let Some(located) = reader.read().unwrap() {
            if !matches!(located.record.entry, Entry::Source(_)) {
                writer
                    .append(located.record.at_ns, located.record.entry)
                    .unwrap();
            }
        }
        drop(writer);
        place.log = old;
        let other = disk.join("other");
        fs::create_dir(&other).unwrap();
        let said = refusal(&other, &place.log);
        assert!(said.contains("root was inode"), "{said}");
        logged(&place);
        assert_eq!(starts(&place.log), 1);
        let mut reader = Reader::open(&place.log).unwrap();
        let mut sources = 0;
        while let Some(located) = reader.read().unwrap() {
            sources += usize::from(matches!(located.record.entry, Entry::Source(_)));
        }
        assert_eq!(sources, 1);
    });
}
