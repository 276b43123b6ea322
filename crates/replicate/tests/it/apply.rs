//! A replica that is kept up to date equals a restore of its epoch.

use std::path::Path;
use std::process::Command;

use replicate::apply::{Options, Replica};
use replicate::record::{Change, Entry, Kind};
use replicate::restore::{self, restore};
use rustix::fs::lgetxattr;
use rustix::io::Errno;

use crate::applying::{differ, folder};
use crate::common::{data, epoch, file, link, mode, new, start, unlink};
use crate::histories::{self, History};

#[test]
fn any_history_in_any_steps_ends_where_a_restore_does() {
    if !sys::require::root() {
        return;
    }
    for seed in 0..150 {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        let mut history = History::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let options = Options {
            in_place: (seed % 3 == 0).then_some(3000),
            ..Options::default()
        };
        let mut open: Option<Replica> = None;
        let mut written = 0;
        for _ in 0..12 {
            history.go_on(rng.usize(1..40));
            histories::write(&log, &history.entries[written..]);
            written = history.entries.len();
            let mut replica = open
                .take()
                .unwrap_or_else(|| Replica::open(&log, &to, options.clone()).unwrap());
            let applied = replica.apply(None).unwrap().unwrap();
            assert_eq!(applied.epoch, history.tree.epoch());
            let all = differ(&log, applied.epoch, &to.join("tree"));
            let epoch = applied.epoch;
            assert!(all.is_empty(), "seed {seed} epoch {epoch}: {all:#?}");
            assert!(replica.apply(None).unwrap().is_none());
            match rng.u8(..3) {
                0 => replica.end().unwrap(),
                1 => drop(replica),
                _ => open = Some(replica),
            }
        }
    }
}

#[test]
fn device_nodes_that_a_step_leaves_out_are_counted() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    let mut replica = None;
    for (entries, left) in [
        (vec![start(), mode(2, 0o755), epoch(1)], 0),
        (
            vec![
                new(10, Kind::CharacterDevice(0x103)),
                mode(10, 0o600),
                link(2, "null", 10),
                link(2, "zero", 10),
                epoch(2),
            ],
            2,
        ),
        (vec![mode(10, 0o644), unlink(2, "zero"), epoch(3)], 0),
    ] {
        histories::write(&log, &entries);
        let open = || Replica::open(&log, &to, Options::default()).unwrap();
        let applied = replica.get_or_insert_with(open).apply(None).unwrap();
        assert_eq!(applied.unwrap().left.devices, left);
    }
}

fn extended(inode: u64, all: &[(&str, &str)]) -> Entry {
    let bytes = |text: &str| text.as_bytes().to_vec();
    let all = all.iter().map(|(name, value)| (bytes(name), bytes(value)));
    Entry::Change(Change::Extended {
        file: file(inode),
        all: all.collect(),
    })
}

#[test]
fn extended_attributes_of_symlinks_are_those_of_the_source() {
    if !sys::require::root() {
        return;
    }
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    let read = |at: &Path, name: &str| {
        let mut value = [0; 16];
        let length = lgetxattr(at, name, value.as_mut_slice())?;
        Ok::<_, Errno>(value[..length].to_vec())
    };
    let steps = [
        vec![
            start(),
            mode(2, 0o755),
            new(10, Kind::Symlink(b"nowhere".to_vec())),
            mode(10, 0o777),
            extended(10, &[("trusted.a", "1"), ("trusted.b", "2")]),
            link(2, "s", 10),
            epoch(1),
        ],
        vec![
            extended(10, &[("trusted.b", "3"), ("trusted.c", "4")]),
            epoch(2),
        ],
    ];
    let privileged = Options {
        privileged: true,
        ..Options::default()
    };
    let mut replica = None;
    for (step, values) in steps.iter().zip([["1", "2", ""], ["", "3", "4"]]) {
        histories::write(&log, step);
        let open = || Replica::open(&log, &to, privileged.clone()).unwrap();
        let applied = replica.get_or_insert_with(open).apply(None).unwrap();
        assert_eq!(applied.unwrap().left.extended, 0);
        let epoch = applied.unwrap().epoch;
        let restored = folder.path().join(format!("restored{epoch}"));
        let made = restore(&log, None, &restored, restore::Options { privileged: true });
        assert_eq!(made.unwrap().extended_left, 0);
        for tree in [&to.join("tree"), &restored] {
            for (name, value) in ["trusted.a", "trusted.b", "trusted.c"].iter().zip(values) {
                let read = read(&tree.join("s"), name);
                match value {
                    "" => assert_eq!(read, Err(Errno::NODATA), "{name}"),
                    value => assert_eq!(read.unwrap(), value.as_bytes(), "{name}"),
                }
            }
        }
    }
    let plain = folder.path().join("plain");
    let made = restore(&log, None, &plain, restore::Options::default()).unwrap();
    assert_eq!(made.extended_left, 2);
}

/// Deeper than the limits of paths and of open directories.
#[test]
fn a_tree_that_is_very_deep_is_applied() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    histories::write(&log, &[start(), mode(2, 0o755), epoch(1)]);
    let mut replica = Replica::open(&log, &to, Options::default()).unwrap();
    replica.apply(None).unwrap().unwrap();
    let mut deep = Vec::new();
    for inode in 3..5_003 {
        deep.extend([
            new(inode, Kind::Directory),
            mode(inode, 0o755),
            link(inode - 1, "d", inode),
        ]);
    }
    deep.extend([
        new(30_000, Kind::Regular),
        data(30_000, 0, b"bytes"),
        mode(30_000, 0o644),
        link(5_002, "f", 30_000),
        epoch(2),
    ]);
    histories::write(&log, &deep);
    let applied = replica.apply(None).unwrap().unwrap();
    assert_eq!((applied.epoch, applied.names), (2, 5_001));
    let moved = [
        link(2, "moved", 2_500),
        unlink(5_002, "f"),
        mode(5_002, 0o700),
        epoch(3),
    ];
    histories::write(&log, &moved);
    let applied = replica.apply(None).unwrap().unwrap();
    assert_eq!(applied.epoch, 3);
    replica.end().unwrap();
    // The standard library's removal opens a directory for each level.
    let removed = Command::new("rm").arg("-rf").arg(&to).status();
    assert!(removed.unwrap().success());
}
