//! Steps that move directories and files that look alike.

use replicate::apply::{Options, Replica};
use replicate::record::{Attributes, Change, Entry, Kind};

use crate::applying::{check, differ, folder, stopped};
use crate::common::{data, epoch, file, link, mode, new, start, unlink};
use crate::histories;

/// Attributes that all files of an archive have in common.
fn alike(inode: u64) -> Entry {
    Entry::Change(Change::Attributes {
        file: file(inode),
        attributes: Attributes {
            mode: 0o644,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            modified_ns: 1_000_000_000,
        },
    })
}

/// Interrupts a step after each of its calls, and continues.
fn each_cut_off_is_mended(begun: &[Entry], changes: &[&[Entry]]) {
    for change in changes {
        for calls in 0.. {
            let folder = folder();
            let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
            histories::write(&log, begun);
            check(&log, &to, Options::default());
            histories::write(&log, change);
            let done = stopped(&log, &to, calls);
            check(&log, &to, Options::default());
            if done {
                break;
            }
        }
    }
}

#[test]
fn files_that_look_alike_and_were_renamed_half_way_are_not_mixed_up() {
    let begun = [
        start(),
        mode(2, 0o755),
        new(12, Kind::Regular),
        data(12, 0, b"one"),
        alike(12),
        link(2, "current", 12),
        new(13, Kind::Regular),
        data(13, 0, b"two"),
        alike(13),
        link(2, "next", 13),
        epoch(1),
    ];
    let exchange = [
        link(2, "aside", 12),
        unlink(2, "current"),
        link(2, "current", 13),
        unlink(2, "next"),
        link(2, "next", 12),
        unlink(2, "aside"),
        epoch(2),
    ];
    let upgrade = [
        link(2, "old", 12),
        unlink(2, "current"),
        new(14, Kind::Regular),
        data(14, 0, b"new"),
        alike(14),
        link(2, "current", 14),
        epoch(2),
    ];
    let rotation = [
        link(2, "old", 12),
        unlink(2, "current"),
        link(2, "current", 13),
        unlink(2, "next"),
        epoch(2),
    ];
    each_cut_off_is_mended(&begun, &[&exchange, &upgrade, &rotation]);
}

#[test]
fn an_epoch_before_the_one_that_was_cut_off_has_none_of_it() {
    let begun = [
        start(),
        mode(2, 0o755),
        new(10, Kind::Directory),
        mode(10, 0o755),
        link(2, "folder", 10),
        new(12, Kind::Regular),
        data(12, 0, b"one"),
        alike(12),
        link(2, "current", 12),
        new(13, Kind::Regular),
        data(13, 0, b"one"),
        alike(13),
        link(10, "current", 13),
        new(15, Kind::Regular),
        mode(15, 0o644),
        link(2, "other", 15),
        epoch(1),
        mode(15, 0o640),
        epoch(2),
    ];
    // No later record mentions what was there.
    let displaced = [
        new(14, Kind::Regular),
        data(14, 0, b"two"),
        alike(14),
        link(2, "current", 14),
        new(20, Kind::Directory),
        mode(20, 0o755),
        new(16, Kind::Regular),
        data(16, 0, b"two"),
        alike(16),
        link(20, "current", 16),
        unlink(10, "current"),
        link(2, "folder", 20),
        epoch(3),
    ];
    let before = begun.len() - 2;
    for calls in 0.. {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        histories::write(&log, &begun[..before]);
        check(&log, &to, Options::default());
        histories::write(&log, &begun[before..]);
        histories::write(&log, &displaced);
        let done = stopped(&log, &to, calls);
        if done {
            break;
        }
        let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
        replica.apply(Some(2)).unwrap();
        let (reached, _) = replica.reached();
        let all = differ(&log, reached, &to.join("tree"));
        // It may have completed the last epoch.
        assert!(
            reached >= 2 && all.is_empty(),
            "epoch {reached} after {calls} calls: {all:#?}"
        );
        replica.end().unwrap();
    }
}

#[test]
fn what_looks_alike_below_directories_that_were_moved_half_way_is_not_mixed_up() {
    let begun = [
        start(),
        mode(2, 0o755),
        new(10, Kind::Directory),
        mode(10, 0o755),
        link(2, "current", 10),
        new(11, Kind::Directory),
        mode(11, 0o755),
        link(2, "next", 11),
        new(20, Kind::Directory),
        mode(20, 0o755),
        link(10, "deep", 20),
        new(21, Kind::Directory),
        mode(21, 0o755),
        link(11, "deep", 21),
        new(12, Kind::Regular),
        data(12, 0, b"one"),
        alike(12),
        link(20, "version", 12),
        new(13, Kind::Regular),
        data(13, 0, b"two"),
        alike(13),
        link(21, "version", 13),
        epoch(1),
    ];
    let moves: [&[Entry]; 2] = [
        &[link(2, "old", 10), link(2, "current", 11), epoch(2)],
        // They change places.
        &[
            link(2, "aside", 10),
            link(2, "current", 11),
            link(2, "next", 10),
            epoch(2),
        ],
    ];
    each_cut_off_is_mended(&begun, &moves);
}
