//! What a replica's file system cannot hold is omitted, counted and remembered, and the rest is
//! applied.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use replicate::apply::{Options, Replica, StepReport};
use replicate::record::{Attributes, Change, Entry, Kind};
use replicate::restore::{self, restore};

use crate::applying::{check, folder, stopped};
use crate::bed::file_system::within;
use crate::common::{data, epoch, file, link, mode, new, size, start, unlink};
use crate::follow::shell;
use crate::histories;

/// More than ext4 supports with blocks of 4 KiB.
const TOO_LARGE: u64 = 1 << 45;
/// The limit of names of an inode on ext4, and of directories in a directory without `dir_nlink`.
const LINKS: u64 = 65_000;

/// A log, and a replica on ext4 with limits.
struct Place {
    log: PathBuf,
    to: PathBuf,
}

impl Place {
    fn make(scratch: &Path) -> Self {
        shell(
            scratch,
            "truncate -s 1G image
             mkfs.ext4 -q -F -I 128 -N 140000 -O ^dir_nlink,^metadata_csum image
             mkdir disk && mount -o loop image disk",
        );
        Self {
            log: scratch.join("log"),
            to: scratch.join("disk/replica"),
        }
    }

    fn open(&self) -> Replica {
        Replica::open(&self.log, &self.to, Options::default()).unwrap()
    }

    fn restore(&self, name: &str) -> restore::RestoreReport {
        let to = self.to.with_file_name(name);
        let restored = restore(&self.log, None, &to, restore::Options::default());
        fs::remove_dir_all(to).unwrap();
        restored.unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.to.join("tree").join(name).symlink_metadata().is_ok()
    }
}

fn applied(replica: &mut Replica) -> StepReport {
    replica.apply(None).unwrap().unwrap()
}

#[test]
fn a_file_that_is_too_large_is_left_out_until_it_is_not() {
    within(|bed| {
        let place = Place::make(bed.scratch());
        let regular = |inode, name, bytes: &[u8]| {
            [
                new(inode, Kind::Regular),
                data(inode, 0, bytes),
                mode(inode, 0o644),
                link(2, name, inode),
            ]
        };
        let mut first = vec![start(), mode(2, 0o755)];
        first.extend(regular(10, "large", b"1"));
        first.extend(regular(11, "other", b"2"));
        first.extend([size(10, TOO_LARGE), epoch(1)]);
        histories::write(&place.log, &first);
        assert_eq!(place.restore("restored").names_left, 1);
        let mut replica = place.open();
        let done = applied(&mut replica);
        assert_eq!((done.names, done.left.names), (1, 1));
        assert!(place.has("other") && !place.has("large"));
        // Another change is applied, and a further name of the file is omitted as well.
        let second = [data(11, 0, b"3"), link(2, "again", 10), epoch(2)];
        histories::write(&place.log, &second);
        assert_eq!(applied(&mut replica).left.names, 1);
        assert!(!place.has("again") && !place.has("large"));
        let other = place.to.join("tree/other");
        assert_eq!(fs::read(&other).unwrap(), b"3");
        // The state before the file became too large does not stay.
        histories::write(&place.log, &[size(11, TOO_LARGE), epoch(3)]);
        assert_eq!(applied(&mut replica).left.names, 1);
        assert!(!place.has("other"));
        replica.end().unwrap();
        // The file does not count as removed by others, and is tried again.
        let mut replica = place.open();
        let done = applied(&mut replica);
        assert_eq!((done.epoch, done.left.names, done.repaired), (3, 0, 0));
        histories::write(
            &place.log,
            &[size(11, 1), size(10, 1), unlink(2, "again"), epoch(4)],
        );
        assert_eq!(applied(&mut replica).left.names, 0);
        assert_eq!(fs::read(&other).unwrap(), b"3");
        assert_eq!(fs::read(place.to.join("tree/large")).unwrap(), b"1");
        replica.end().unwrap();
        assert!(!place.to.join("omissions").exists());
        assert!(place.open().apply(None).unwrap().is_none());
        // A file that is renamed when it fits again is there at once.
        let mut replica = place.open();
        histories::write(&place.log, &[size(11, TOO_LARGE), epoch(5)]);
        assert_eq!(applied(&mut replica).left.names, 1);
        let renamed = [
            size(11, 1),
            link(2, "renamed", 11),
            unlink(2, "other"),
            epoch(6),
        ];
        histories::write(&place.log, &renamed);
        assert_eq!(applied(&mut replica).left.names, 0);
        let renamed = place.to.join("tree/renamed");
        assert_eq!(fs::read(renamed).unwrap(), b"3");
    });
}

#[test]
fn links_beyond_those_of_the_file_system_are_left_out() {
    within(|bed| {
        let place = Place::make(bed.scratch());
        let mut first = vec![
            start(),
            mode(2, 0o755),
            new(10, Kind::Regular),
            data(10, 0, b"1"),
            mode(10, 0o644),
        ];
        let name = |number: u64| format!("{number:05}");
        first.extend((0..LINKS + 3).map(|number| link(2, &name(number), 10)));
        first.push(epoch(1));
        histories::write(&place.log, &first);
        let mut replica = place.open();
        let done = applied(&mut replica);
        assert_eq!((done.names, done.left.names), (LINKS, 3));
        let there = || place.to.join("tree/50000").metadata().unwrap().nlink();
        assert_eq!(there(), LINKS);
        // Other bytes, and fewer names.
        let mut second = vec![data(10, 0, b"2")];
        second.extend((100..110).map(|number| unlink(2, &name(number))));
        second.push(epoch(2));
        histories::write(&place.log, &second);
        let done = applied(&mut replica);
        assert_eq!(done.left.names, 0);
        assert_eq!(there(), LINKS - 7);
        assert_eq!(fs::read(place.to.join("tree/00000")).unwrap(), b"2");
        replica.end().unwrap();
        assert!(place.open().apply(None).unwrap().is_none());
    });
}

#[test]
fn directories_beyond_those_of_the_file_system_are_left_out_with_all_below() {
    within(|bed| {
        let place = Place::make(bed.scratch());
        let name = |number: u64| format!("{number:05}");
        let directory = |number: u64| {
            let inode = 1000 + number;
            [
                new(inode, Kind::Directory),
                mode(inode, 0o755),
                link(2, &name(number), inode),
            ]
        };
        let mut first = vec![start(), mode(2, 0o755)];
        // A directory has two links of its own.
        first.extend((0..LINKS).flat_map(directory));
        first.extend([
            new(10, Kind::Regular),
            data(10, 0, b"1"),
            mode(10, 0o644),
            link(1000, "f", 10),
            epoch(1),
        ]);
        histories::write(&place.log, &first);
        let mut replica = place.open();
        let done = applied(&mut replica);
        assert_eq!((done.names, done.left.names), (LINKS - 2, 3));
        // The contents change, and there is no place for them yet.
        histories::write(&place.log, &[data(10, 0, b"2"), epoch(2)]);
        assert_eq!(applied(&mut replica).left.names, 0);
        replica.end().unwrap();
        let mut replica = place.open();
        assert_eq!(applied(&mut replica).left.names, 0);
        // There is a place after others are removed.
        let gone: Vec<Entry> = (10..20).map(|number| unlink(2, &name(number))).collect();
        histories::write(&place.log, &gone);
        histories::write(&place.log, &[epoch(3)]);
        applied(&mut replica);
        replica.end().unwrap();
        let mut replica = place.open();
        applied(&mut replica);
        assert_eq!(fs::read(place.to.join("tree/00000/f")).unwrap(), b"2");
        replica.end().unwrap();
        let mut replica = place.open();
        assert!(replica.apply(None).unwrap().is_none());
        // A directory that moves to where no more fit, and back.
        let mut full = vec![
            new(11, Kind::Directory),
            mode(11, 0o755),
            link(1000, "d", 11),
            new(12, Kind::Regular),
            data(12, 0, b"3"),
            mode(12, 0o644),
            link(11, "f", 12),
        ];
        full.extend((10..20).map(|number| link(2, &name(number), 1000 + number)));
        full.push(epoch(4));
        histories::write(&place.log, &full);
        applied(&mut replica);
        let f = place.to.join("tree/00000/d/f");
        assert_eq!(fs::read(&f).unwrap(), b"3");
        let steps = [
            [link(2, "d", 11), epoch(5)],
            [link(1000, "d", 11), epoch(6)],
        ];
        for (step, there) in steps.iter().zip([false, true]) {
            histories::write(&place.log, step);
            applied(&mut replica);
            assert_eq!(fs::read(&f).is_ok(), there);
            assert!(!place.has("d"));
        }
        assert_eq!(fs::read(&f).unwrap(), b"3");
    });
}

/// The file of omissions with these names.
fn omissions(entries: &[(Option<u64>, &str)]) -> Vec<u8> {
    let mut bytes = b"lromits1".to_vec();
    for (directory, name) in entries {
        let of = directory.map(file);
        bytes.push(u8::from(of.is_some()));
        bytes.extend(of.map_or(0, |of| of.inode).to_le_bytes());
        bytes.extend(of.map_or(0, |of| of.generation).to_le_bytes());
        bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

#[test]
fn a_directory_that_an_interrupted_step_made_after_all_is_taken_over() {
    let begun = [
        start(),
        mode(2, 0o755),
        new(10, Kind::Directory),
        mode(10, 0o755),
        link(2, "d", 10),
        new(11, Kind::Regular),
        data(11, 0, b"1"),
        mode(11, 0o644),
        link(10, "f", 11),
        new(12, Kind::Regular),
        data(12, 0, b"2"),
        mode(12, 0o644),
        link(2, "other", 12),
        epoch(1),
    ];
    let mut interrupted = 0;
    for calls in 0.. {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        histories::write(&log, &begun);
        check(&log, &to, Options::default());
        histories::write(&log, &[data(12, 0, b"3"), epoch(2)]);
        if stopped(&log, &to, calls) {
            break;
        }
        interrupted += 1;
        // As if the directory had been omitted before.
        let all = omissions(&[(None, "d"), (Some(10), "f")]);
        fs::write(to.join("omissions"), all).unwrap();
        let repair = Options {
            repair: true,
            ..Options::default()
        };
        check(&log, &to, repair);
        assert!(!to.join("omissions").exists());
    }
    assert!(interrupted > 0);
}

#[test]
fn a_time_beyond_those_of_the_file_system_is_counted() {
    within(|bed| {
        let place = Place::make(bed.scratch());
        let time = |inode, seconds: i64| {
            Entry::Change(Change::Attributes {
                file: file(inode),
                attributes: Attributes {
                    mode: 0o644,
                    uid: 0,
                    gid: 0,
                    modified_ns: seconds * 1_000_000_000,
                },
            })
        };
        let mut entries = vec![start(), mode(2, 0o755)];
        for (inode, seconds) in [(10, 5), (11, 1 << 32), (12, -(1 << 32))] {
            let name = inode.to_string();
            entries.extend([
                new(inode, Kind::Regular),
                time(inode, seconds),
                link(2, &name, inode),
            ]);
        }
        entries.push(epoch(1));
        histories::write(&place.log, &entries);
        assert_eq!(place.restore("restored").times_left, 2);
        let mut replica = place.open();
        assert_eq!(applied(&mut replica).left.times, 2);
        replica.end().unwrap();
        assert!(place.open().apply(None).unwrap().is_none());
    });
}
