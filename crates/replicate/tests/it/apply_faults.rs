//! After any interruption of an applier, and any foreign change to the replica, the next run shows
//! a complete epoch or an error.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use replicate::apply::{Error, Options, Replica};
use replicate::log::compact;
use replicate::record::{Entry, Kind};
use tempfile::TempDir;

use crate::applying::{check, differ, folder, stopped};
use crate::bed::file_system::within;
use crate::common::{data, epoch, link, mode, new, size, start, unlink};
use crate::histories::{self, History};

#[test]
fn an_applier_stopped_at_any_call_is_followed_by_one_that_is_right() {
    if !sys::require::root() {
        return;
    }
    let mut stops = 0;
    for seed in 0..8 {
        let mut history = History::new(seed);
        history.go_on(100);
        let first = history.entries.len();
        history.go_on(60);
        for begun in [false, true] {
            for calls in 0.. {
                let folder = folder();
                let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
                histories::write(&log, &history.entries[..first]);
                if begun {
                    check(&log, &to, Options::default());
                }
                histories::write(&log, &history.entries[first..]);
                let done = stopped(&log, &to, calls);
                // Interrupt it again, during the repair.
                stopped(&log, &to, calls / 2);
                let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
                replica.apply(None).unwrap();
                assert_eq!(replica.reached().0, history.tree.epoch());
                let all = differ(&log, replica.reached().0, &to.join("tree"));
                assert!(all.is_empty(), "seed {seed}, {calls} calls: {all:#?}");
                if done {
                    break;
                }
                stops += 1;
            }
        }
    }
    assert!(stops > 300, "{stops}");
}

/// `directory/file`, `other`, and a file with two names.
fn some() -> Vec<Entry> {
    vec![
        start(),
        mode(2, 0o755),
        new(10, Kind::Directory),
        mode(10, 0o755),
        link(2, "directory", 10),
        new(11, Kind::Regular),
        data(11, 0, b"eleven"),
        mode(11, 0o644),
        link(10, "file", 11),
        new(12, Kind::Regular),
        data(12, 0, b"twelve"),
        mode(12, 0o644),
        link(2, "other", 12),
        link(10, "again", 12),
        epoch(1),
    ]
}

fn more() -> Vec<Entry> {
    vec![
        data(11, 3, b"more"),
        mode(11, 0o640),
        new(13, Kind::Regular),
        mode(13, 0o600),
        link(10, "new", 13),
        epoch(2),
    ]
}

/// A foreign change to a tree, with a folder outside of it.
type Change = fn(&Path, &Path);

struct Set {
    folder: TempDir,
    log: PathBuf,
    to: PathBuf,
}

fn set() -> Set {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    histories::write(&log, &some());
    check(&log, &to, Options::default());
    Set { folder, log, to }
}

#[test]
fn what_somebody_else_changed_is_said_and_put_right_when_asked() {
    let changes: [(&str, Change); 8] = [
        ("a file's bytes", |tree, _| {
            fs::write(tree.join("other"), "x").unwrap();
        }),
        ("a file is gone", |tree, _| {
            fs::remove_file(tree.join("directory/file")).unwrap();
        }),
        ("a further file", |tree, _| {
            fs::write(tree.join("directory/mine"), "x").unwrap();
        }),
        ("a mode", |tree, _| {
            fs::set_permissions(tree.join("other"), Permissions::from_mode(0o666)).unwrap();
        }),
        ("a link less", |tree, _| {
            fs::copy(tree.join("other"), tree.join("copy")).unwrap();
            fs::rename(tree.join("copy"), tree.join("other")).unwrap();
        }),
        ("a directory is another's", |tree, outside| {
            fs::rename(tree.join("directory"), outside.join("moved")).unwrap();
            symlink(outside, tree.join("directory")).unwrap();
        }),
        ("a file is a directory", |tree, _| {
            fs::remove_file(tree.join("other")).unwrap();
            fs::create_dir_all(tree.join("other/deep")).unwrap();
        }),
        ("a file is a symlink", |tree, outside| {
            fs::remove_file(tree.join("directory/file")).unwrap();
            symlink(outside.join("kept"), tree.join("directory/file")).unwrap();
        }),
    ];
    for (what, change) in changes {
        for later in [false, true] {
            let Set { folder, log, to } = set();
            let (tree, outside) = (to.join("tree"), folder.path().join("outside"));
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("kept"), "kept").unwrap();
            // Either an applier that runs while it happens, or one that starts later.
            let open = (!later).then(|| {
                Replica::open(
                    &log,
                    &to,
                    Options {
                        repair: true,
                        ..Options::default()
                    },
                )
                .unwrap()
            });
            change(&tree, &outside);
            histories::write(&log, &more());
            if let Some(mut replica) = open {
                // It sees only what it touches, and never follows what was put there.
                replica.apply(None).unwrap();
                drop(replica);
            }
            let refused = Replica::open(&log, &to, Options::default());
            if later {
                assert!(
                    matches!(refused, Err(Error::Changed { .. })),
                    "{what}: {refused:?}"
                );
            }
            drop(refused);
            let repair = Options {
                repair: true,
                ..Options::default()
            };
            check(&log, &to, repair);
            let kept = fs::read_to_string(outside.join("kept")).unwrap();
            assert_eq!(kept, "kept", "{what}");
            let names: Vec<_> = fs::read_dir(&outside).unwrap().collect();
            assert!(names.len() <= 2, "{what}: {names:?}");
        }
    }
}

#[test]
fn what_must_not_be_is_refused_in_a_line_and_nothing_is_changed() {
    let Set { folder, log, to } = set();
    let open = |log: &Path, to: &Path, options| Replica::open(log, to, options);
    let first = open(&log, &to, Options::default()).unwrap();
    let second = open(&log, &to, Options::default());
    assert!(matches!(second, Err(Error::Busy(_))), "{second:?}");
    drop(first);
    let occupied = open(&log, folder.path(), Options::default());
    assert!(matches!(occupied, Err(Error::Occupied(_))), "{occupied:?}");
    histories::write(&log, &more());
    for (options, what, has) in [
        (
            Options {
                max_bytes: Some(12),
                ..Options::default()
            },
            "bytes",
            13,
        ),
        (
            Options {
                max_files: Some(4),
                ..Options::default()
            },
            "files",
            5,
        ),
    ] {
        let mut replica = open(&log, &to, options).unwrap();
        let refused = replica.apply(None).unwrap_err();
        let Error::Quota {
            what: said,
            has: counted,
            ..
        } = refused
        else {
            panic!("{refused}");
        };
        assert_eq!((said, counted), (what, has));
        assert_eq!(replica.reached().0, 1);
        let all = differ(&log, 1, &to.join("tree"));
        assert!(all.is_empty(), "{all:#?}");
    }
    let other = folder.path().join("another log");
    histories::write(&other, &[start(), mode(2, 0o700), epoch(9)]);
    let refused = open(&other, &to, Options::default());
    assert!(
        matches!(refused, Err(Error::OtherLog { .. })),
        "{refused:?}"
    );
    check(
        &other,
        &to,
        Options {
            fresh: true,
            ..Options::default()
        },
    );
    check(
        &log,
        &to,
        Options {
            fresh: true,
            ..Options::default()
        },
    );
}

#[test]
fn a_replica_behind_a_compacted_log_is_told_to_begin_afresh() {
    let Set { folder, log, to } = set();
    let mut all = more();
    for number in 3..200 {
        all.extend([data(11, 0, &[7; 500]), epoch(number)]);
    }
    histories::write(&log, &all);
    let ahead = folder.path().join("ahead");
    check(&log, &ahead, Options::default());
    histories::write(&log, &[data(11, 0, b"the last"), epoch(200)]);
    compact(&log, 100).unwrap();
    let refused = Replica::open(&log, &to, Options::default());
    assert!(
        matches!(refused, Err(Error::Behind { epoch: 1, .. })),
        "{refused:?}"
    );
    check(&log, &ahead, Options::default());
    check(
        &log,
        &to,
        Options {
            fresh: true,
            ..Options::default()
        },
    );
}

#[test]
fn an_epoch_that_the_log_does_not_have_is_not_passed() {
    let Set { folder, log, to } = set();
    let mut all = more();
    for number in 3..200 {
        all.extend([data(11, 0, &[7; 500]), epoch(number)]);
    }
    histories::write(&log, &all);
    histories::write(&log, &[data(11, 0, b"the last"), epoch(200)]);
    check(&log, &to, Options::default());
    compact(&log, 100).unwrap();
    // The replica lacks an epoch, and has to be repaired on the way.
    histories::write(&log, &[data(11, 0, b"later"), epoch(300)]);
    fs::remove_file(to.join("tree/other")).unwrap();
    let new = folder.path().join("new");
    for (to, asked, reached) in [(&new, 50, 0), (&to, 250, 200)] {
        let repair = true;
        let options = Options {
            repair,
            ..Options::default()
        };
        let mut replica = Replica::open(&log, to, options).unwrap();
        while replica.apply(Some(asked)).unwrap().is_some() {}
        assert_eq!(replica.reached().0, reached);
        replica.end().unwrap();
    }
    assert!(!new.join("tree").exists());
    let all = differ(&log, 200, &to.join("tree"));
    assert!(all.is_empty(), "{all:#?}");
    check(&log, &new, Options::default());
}

#[test]
fn directories_change_places_in_any_way() {
    let deep = [
        start(),
        mode(2, 0o755),
        new(10, Kind::Directory),
        mode(10, 0o755),
        new(11, Kind::Directory),
        mode(11, 0o500),
        new(12, Kind::Directory),
        mode(12, 0o000),
        new(13, Kind::Regular),
        data(13, 0, b"thirteen"),
        mode(13, 0o400),
        link(2, "a", 10),
        link(10, "b", 11),
        link(11, "c", 12),
        link(12, "file", 13),
        link(2, "file", 13),
        epoch(1),
    ];
    let moves: [&[Entry]; 6] = [
        // The child takes its parent's place, and the parent becomes its child.
        &[
            link(2, "x", 11),
            link(11, "a", 10),
            unlink(2, "x"),
            link(2, "a", 11),
        ],
        // All three in reverse order.
        &[link(2, "c", 12), link(12, "b", 11), link(11, "a", 10)],
        // A directory replaces a file, and the file takes the directory's name.
        &[unlink(2, "file"), link(2, "file", 10), link(2, "a", 13)],
        // The topmost directory is removed, but not those below it.
        &[link(2, "b", 11), unlink(2, "a")],
        &[
            unlink(11, "c"),
            unlink(12, "file"),
            unlink(10, "b"),
            unlink(2, "a"),
        ],
        // The file is removed, and a new file has its inode.
        &[
            unlink(10, "b"),
            unlink(11, "c"),
            unlink(12, "file"),
            new(20, Kind::Regular),
            mode(20, 0o600),
            link(10, "b", 20),
        ],
    ];
    for change in moves {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        histories::write(&log, &deep);
        check(&log, &to, Options::default());
        histories::write(&log, change);
        histories::write(&log, &[epoch(2)]);
        check(&log, &to, Options::default());
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    within(|bed| {
        let (log, to) = (bed.scratch().join("log"), bed.scratch().join("small"));
        fs::create_dir(&to).unwrap();
        let sized = |flags, size| {
            mount(Some("tmpfs"), &to, Some("tmpfs"), flags, Some(size)).unwrap();
        };
        sized(MsFlags::empty(), "size=600k");
        let to = to.join("replica");
        histories::write(&log, &some());
        check(&log, &to, Options::default());
        histories::write(&log, &more()[..5]);
        for at in 0..16 {
            histories::write(&log, &[data(13, at * 65_536, &[5; 65_536])]);
        }
        histories::write(&log, &[epoch(2)]);
        let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
        for _ in 0..2 {
            let full = replica.apply(None);
            assert!(matches!(full, Err(Error::Room { .. })), "{full:?}");
            let all = differ(&log, 1, &to.join("tree"));
            assert!(all.is_empty(), "{all:#?}");
        }
        sized(MsFlags::MS_REMOUNT, "size=4M");
        drop(replica);
        check(&log, &to, Options::default());
    });
}

#[test]
fn a_disk_that_fills_during_a_step_is_said_and_the_step_is_done_when_there_is_room() {
    within(|bed| {
        let (log, to) = (bed.scratch().join("log"), bed.scratch().join("small"));
        fs::create_dir(&to).unwrap();
        let sized = |flags, size| {
            mount(Some("tmpfs"), &to, Some("tmpfs"), flags, Some(size)).unwrap();
        };
        sized(MsFlags::empty(), "size=600k");
        let to = to.join("replica");
        let in_place = || Options {
            in_place: Some(0),
            ..Options::default()
        };
        // Filling a hole takes space, which cannot be predicted.
        let mut sparse = some();
        sparse.pop();
        sparse.extend([size(12, 1 << 20), epoch(1)]);
        histories::write(&log, &sparse);
        check(&log, &to, in_place());
        for at in 0..16 {
            histories::write(&log, &[data(12, at * 65_536, &[5; 65_536])]);
        }
        histories::write(&log, &[epoch(2)]);
        let mut replica = Replica::open(&log, &to, in_place()).unwrap();
        let full = replica.apply(None);
        assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
        sized(MsFlags::MS_REMOUNT, "size=4M");
        drop(replica);
        check(&log, &to, in_place());
    });
}

#[test]
fn what_somebody_else_wrote_does_not_get_the_attributes_of_what_was_there() {
    let Set {
        folder: _folder,
        log,
        to,
    } = set();
    let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
    let other = to.join("tree/other");
    fs::write(&other, "TWELVE").unwrap();
    histories::write(&log, &[mode(12, 0o600), epoch(2)]);
    let refused = replica.apply(None);
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    drop(replica);
    let refused = Replica::open(&log, &to, Options::default());
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    let repair = Options {
        repair: true,
        ..Options::default()
    };
    check(&log, &to, repair);
    assert_eq!(fs::read_to_string(&other).unwrap(), "twelve");
}

#[test]
fn nobody_else_keeps_an_applier_from_its_replica() {
    let Set {
        folder: _folder,
        log,
        to,
    } = set();
    let lock = to.join("lock");
    let mode = || fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    // A lock file that others have created.
    fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
    check(&log, &to, Options::default());
    assert_eq!(mode(), 0o600);
}
