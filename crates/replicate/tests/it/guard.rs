//! A step that would remove most of a replica, or that lacks space, is refused before anything is
//! changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use replicate::apply::{Error, Gate, Options, Replica};
use replicate::log::{self, Durability, Writer, compact};
use replicate::record::{Change, Entry, Kind};

use crate::applying::{check, folder};
use crate::bed::file_system::within;
use crate::common::{data, epoch, gone, link, mode, new, start, unlink};
use crate::histories;

const FIRST: u64 = 100;

/// Files `0` to `count - 1` in the root.
fn files(count: u64) -> Vec<Entry> {
    let mut all = vec![start(), mode(2, 0o755)];
    for number in 0..count {
        let inode = FIRST + number;
        all.extend([
            new(inode, Kind::Regular),
            data(inode, 0, b"precious"),
            mode(inode, 0o644),
            link(2, &number.to_string(), inode),
        ]);
    }
    all.push(epoch(1));
    all
}

fn removed(count: u64) -> Vec<Entry> {
    let each = (0..count).flat_map(|number| [unlink(2, &number.to_string()), gone(FIRST + number)]);
    each.chain([epoch(2)]).collect()
}

fn allowing() -> Options {
    Options {
        allow_delete: true,
        ..Options::default()
    }
}

fn names(tree: &Path) -> usize {
    fs::read_dir(tree).unwrap().count()
}

/// Applies an epoch 2 of these entries to a replica of this many files. Returns the files it then
/// has, or the refusal.
fn after(count: u64, then: &[Entry]) -> Result<usize, Error> {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    histories::write(&log, &files(count));
    let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
    replica.apply(None).unwrap();
    histories::write(&log, then);
    let before = fs::metadata(to.join("tree")).unwrap().modified().unwrap();
    let applied = replica.apply(None);
    if applied.is_err() {
        assert_eq!(names(&to.join("tree")) as u64, count);
        let now = fs::metadata(to.join("tree")).unwrap().modified().unwrap();
        assert_eq!(now, before);
        assert_eq!(replica.reached().0, 1);
    }
    applied.map(|_| names(&to.join("tree")))
}

#[test]
fn an_epoch_that_removes_most_of_many_files_is_refused() {
    for (count, gone, refused) in [
        (100, 100, false),
        (101, 101, true),
        (202, 101, false),
        (201, 101, true),
        (1000, 500, false),
        (1000, 501, true),
    ] {
        match after(count, &removed(gone)) {
            Err(Error::Deletion {
                removed,
                files,
                epoch,
                ..
            }) => {
                assert!(refused, "{gone} of {count}");
                assert_eq!((removed, files, epoch), (gone, count, 2));
            }
            left => {
                assert!(!refused, "{gone} of {count}");
                assert_eq!(left.unwrap() as u64, count - gone);
            }
        }
    }
}

#[test]
fn files_that_are_replaced_or_move_are_not_removed() {
    let count = 300;
    let replaced = (0..count).flat_map(|number| {
        let inode = 1000 + number;
        [
            new(inode, Kind::Regular),
            data(inode, 0, b"other"),
            mode(inode, 0o644),
            link(2, &number.to_string(), inode),
            gone(FIRST + number),
        ]
    });
    let replaced: Vec<Entry> = replaced.chain([epoch(2)]).collect();
    assert_eq!(after(count, &replaced).unwrap(), 300);
    let moved = (0..count).flat_map(|number| {
        let name = number.to_string();
        [link(50, &name, FIRST + number), unlink(2, &name)]
    });
    let directory = [
        new(50, Kind::Directory),
        mode(50, 0o755),
        link(2, "moved", 50),
    ];
    let moved: Vec<Entry> = directory
        .into_iter()
        .chain(moved)
        .chain([epoch(2)])
        .collect();
    assert_eq!(after(count, &moved).unwrap(), 1);
}

#[test]
fn a_tree_that_is_said_anew_counts_by_its_paths() {
    // Like a source that was copied to another file system: the same names, other inodes.
    let mut anew = files(300);
    anew.pop();
    for entry in &mut anew {
        if let Entry::Change(
            Change::New { file, .. }
            | Change::Data { file, .. }
            | Change::Attributes { file, .. }
            | Change::Link { file, .. },
        ) = entry
            && file.inode >= FIRST
        {
            file.inode += 5000;
        }
    }
    anew.push(epoch(2));
    assert_eq!(after(300, &anew).unwrap(), 300);
    let empty = [start(), mode(2, 0o755), epoch(2)];
    assert!(matches!(after(300, &empty), Err(Error::Deletion { .. })));
}

#[test]
fn what_is_refused_is_done_when_it_is_allowed() {
    for once in [false, true] {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        histories::write(&log, &files(300));
        check(&log, &to, Options::default());
        histories::write(&log, &removed(300));
        let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
        for _ in 0..2 {
            let refused = replica.apply(None).unwrap_err().to_string();
            assert!(
                refused.contains("would remove 300 of the 300 files"),
                "{refused}"
            );
            assert!(refused.contains("--allow-delete"), "{refused}");
        }
        if once {
            replica.allow_delete_once();
            assert_eq!(replica.apply(None).unwrap().unwrap().epoch, 2);
            replica.end().unwrap();
            check(&log, &to, Options::default());
            // Only that step was allowed.
            let mut more = files(300);
            more.drain(..2);
            more.pop();
            more.push(epoch(3));
            histories::write(&log, &more);
            let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
            replica.apply(None).unwrap();
            let mut gone = removed(300);
            gone.pop();
            gone.push(epoch(4));
            histories::write(&log, &gone);
            let refused = replica.apply(None).unwrap_err();
            assert!(matches!(refused, Error::Deletion { .. }), "{refused}");
        } else {
            drop(replica);
            check(&log, &to, allowing());
        }
    }
}

#[test]
fn a_refused_replica_goes_on_when_the_files_are_back() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    histories::write(&log, &files(300));
    let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
    replica.apply(None).unwrap();
    histories::write(&log, &removed(300));
    replica.apply(None).unwrap_err();
    let mut back = files(300);
    back.drain(..2);
    back.pop();
    back.push(epoch(3));
    histories::write(&log, &back);
    assert_eq!(replica.apply(None).unwrap().unwrap().epoch, 3);
    replica.end().unwrap();
    check(&log, &to, Options::default());
}

#[test]
fn a_replica_is_not_replaced_by_one_of_an_almost_empty_log_unless_allowed() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    histories::write(&log, &files(300));
    check(&log, &to, Options::default());
    let empty = folder.path().join("empty");
    histories::write(&empty, &[start(), mode(2, 0o755), epoch(1)]);
    let fresh = |allow_delete| Options {
        fresh: true,
        allow_delete,
        ..Options::default()
    };
    let mut replica = Replica::open(&empty, &to, fresh(false)).unwrap();
    let refused = replica.apply(None).unwrap_err().to_string();
    assert!(
        refused.contains("would remove 300 of the 300 files"),
        "{refused}"
    );
    assert_eq!(names(&to.join("tree")), 300);
    drop(replica);
    check(&log, &to, Options::default());
    check(&empty, &to, fresh(true));
    assert_eq!(names(&to.join("tree")), 0);
}

#[test]
fn an_allowed_deletion_that_was_interrupted_is_completed_without_another_permission() {
    let mut interrupted = 0;
    for calls in (10..400).step_by(65) {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        histories::write(&log, &files(300));
        check(&log, &to, Options::default());
        histories::write(&log, &removed(300));
        let options = Options {
            gate: Gate::closing_after(calls),
            ..allowing()
        };
        let applied = Replica::open(&log, &to, options).and_then(|mut all| all.apply(None));
        if applied.is_err() && names(&to.join("tree")) < 300 {
            interrupted += 1;
            check(&log, &to, Options::default());
            assert_eq!(names(&to.join("tree")), 0);
        }
    }
    assert!(interrupted > 0);
}

#[test]
fn a_refusal_after_an_interrupted_step_tells_of_it() {
    let mut interrupted = 0;
    for calls in (10..400).step_by(65) {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        histories::write(&log, &files(300));
        check(&log, &to, Options::default());
        histories::write(&log, &removed(300));
        let options = Options {
            gate: Gate::closing_after(calls),
            ..allowing()
        };
        let applied = Replica::open(&log, &to, options).and_then(|mut all| all.apply(None));
        if applied.is_err() && names(&to.join("tree")) < 300 {
            interrupted += 1;
            // It is another step by now, which was not allowed.
            let mut writer = Writer::open(&log, log::Options::default()).unwrap();
            for entry in [mode(2, 0o700), epoch(3)] {
                writer.append(6, entry).unwrap();
            }
            drop(writer);
            let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
            let refused = replica.apply(None).unwrap_err().to_string();
            assert!(refused.contains("300 of the 300 files"), "{refused}");
            assert!(refused.contains("interrupted"), "{refused}");
            assert!(!refused.contains("nothing was changed"), "{refused}");
        }
    }
    assert!(interrupted > 0);
}

#[test]
fn what_a_very_deep_tree_loses_is_counted() {
    const DEPTH: u64 = 5_000;
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    let mut deep = vec![start(), mode(2, 0o755)];
    for number in 0..DEPTH {
        let above = if number == 0 { 2 } else { FIRST + number - 1 };
        deep.extend([
            new(FIRST + number, Kind::Directory),
            link(above, "d", FIRST + number),
        ]);
    }
    deep.push(epoch(1));
    histories::write(&log, &deep);
    let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
    replica.apply(None).unwrap();
    let empty = [start(), mode(2, 0o755), epoch(2)];
    histories::write(&log, &empty);
    let refused = replica.apply(None).unwrap_err().to_string();
    assert!(refused.contains("5000 of the 5000 files"), "{refused}");
    // The standard library's removal opens a directory for each level.
    let removed = Command::new("rm").arg("-rf").arg(&to).status();
    assert!(removed.unwrap().success());
}

#[test]
fn a_replica_that_waits_for_permission_keeps_no_segment_of_a_compacted_log() {
    let open_and_removed = |log: &Path| {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let targets = descriptors.filter_map(|one| fs::read_link(one.unwrap().path()).ok());
        let removed = |target: &Path| target.to_string_lossy().ends_with(" (deleted)");
        targets
            .filter(|target| target.starts_with(log) && removed(target))
            .count()
    };
    for fresh in [false, true] {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        let write = |entries: &[Entry]| {
            let options = log::Options {
                durability: Durability::OnRequest,
                segment: 20_000,
            };
            let mut writer = Writer::open(&log, options).unwrap();
            for entry in entries {
                writer.append(5, entry.clone()).unwrap();
            }
            // Only sealed segments can be compacted.
            writer.seal().unwrap();
        };
        write(&files(300));
        check(&log, &to, Options::default());
        let mut gone = removed(300);
        gone.pop();
        write(&gone);
        write(&[new(20, Kind::Regular), mode(20, 0o644), link(2, "new", 20)]);
        let bytes = [9; 4000];
        let filled: Vec<Entry> = (0..20).map(|at| data(20, at * 4000, &bytes)).collect();
        write(&filled);
        write(&[epoch(2)]);
        let options = Options {
            fresh,
            ..Options::default()
        };
        let mut replica = Replica::open(&log, &to, options).unwrap();
        replica.apply(None).unwrap_err();
        write(&filled);
        compact(&log, 2).unwrap();
        write(&[data(20, 0, b"later"), epoch(3)]);
        replica.apply(None).unwrap_err();
        assert_eq!(open_and_removed(&log), 0, "fresh: {fresh}");
        replica.allow_delete_once();
        match replica.apply(None) {
            // The records that it would continue from were folded.
            Err(Error::Behind { .. }) => assert!(!fresh),
            applied => {
                assert_eq!(applied.unwrap().unwrap().epoch, 3);
                assert_eq!(names(&to.join("tree")), 1);
            }
        }
    }
}

#[test]
fn files_far_below_the_root_of_a_replica_count_as_well() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    let mut deep = vec![start(), mode(2, 0o755)];
    for (above, inode) in [(2, 10), (10, 11), (11, 12)] {
        deep.extend([
            new(inode, Kind::Directory),
            mode(inode, 0o755),
            link(above, "d", inode),
        ]);
    }
    for number in 0..300 {
        let inode = FIRST + number;
        deep.extend([
            new(inode, Kind::Regular),
            mode(inode, 0o644),
            link(12, &number.to_string(), inode),
        ]);
    }
    deep.push(epoch(1));
    histories::write(&log, &deep);
    check(&log, &to, Options::default());
    let empty = folder.path().join("empty");
    histories::write(&empty, &[start(), mode(2, 0o755), epoch(1)]);
    let options = Options {
        fresh: true,
        ..Options::default()
    };
    let mut replica = Replica::open(&empty, &to, options).unwrap();
    for _ in 0..2 {
        let refused = replica.apply(None).unwrap_err().to_string();
        assert!(refused.contains("303 of the 303 files"), "{refused}");
    }
    assert_eq!(names(&to.join("tree/d/d/d")), 300);
}

#[test]
fn a_step_without_room_is_not_begun_and_goes_on_when_there_is() {
    let large = |inode: u64| {
        let bytes = vec![7; 1 << 20];
        [
            new(inode, Kind::Regular),
            data(inode, 0, &bytes),
            data(inode, 1 << 20, &bytes),
            mode(inode, 0o644),
            link(2, "large", inode),
        ]
    };
    let bytes: Vec<Entry> = large(900).into_iter().chain([epoch(2)]).collect();
    let many = (0..60).flat_map(|number: u64| {
        let inode = 2000 + number;
        let name = format!("more {number}");
        [
            new(inode, Kind::Regular),
            mode(inode, 0o644),
            link(2, &name, inode),
        ]
    });
    let many: Vec<Entry> = many.chain([epoch(2)]).collect();
    for then in [bytes, many] {
        within(|bed| {
            let (log, to) = (bed.scratch().join("log"), bed.scratch().join("replica"));
            let mount = |options: &str| {
                let mut command = Command::new("mount");
                command
                    .args(["-t", "tmpfs", "-o", options, "none"])
                    .arg(&to);
                assert!(command.status().unwrap().success());
            };
            fs::create_dir(&to).unwrap();
            mount("size=1m,nr_inodes=40,mode=755");
            histories::write(&log, &files(5));
            let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
            replica.apply(None).unwrap();
            histories::write(&log, &then);
            let Err(Error::Room {
                needs,
                files,
                has,
                names: free,
                epoch,
                ..
            }) = replica.apply(None)
            else {
                panic!("it has begun");
            };
            assert_eq!(epoch, 2);
            assert!(needs > has || files > free, "{needs} {has} {files} {free}");
            assert!(needs >= 2 << 20 || files == 60, "{needs} {files}");
            assert_eq!(names(&to.join("tree")), 5);
            assert_eq!(names(&to.join("staging")), 0);
            mount("remount,size=8m,nr_inodes=400");
            assert_eq!(replica.apply(None).unwrap().unwrap().epoch, 2);
            replica.end().unwrap();
            check(&log, &to, Options::default());
        });
    }
}

#[test]
fn a_first_copy_without_room_is_not_begun() {
    within(|bed| {
        let (log, to) = (bed.scratch().join("log"), bed.scratch().join("replica"));
        fs::create_dir(&to).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=1m,nr_inodes=40,mode=755", "none"]);
        assert!(command.arg(&to).status().unwrap().success());
        histories::write(&log, &files(300));
        let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
        let refused = replica.apply(None).unwrap_err();
        assert!(
            matches!(refused, Error::Room { files: 300, .. }),
            "{refused}"
        );
        assert!(!to.join("tree").exists());
        assert_eq!(names(&to.join("staging")), 0);
    });
}
