//! A replica whose tree was replaced by another, or whose options change.

use std::fs;
use std::path::Path;
use std::process::Command;

use replicate::apply::{Error, Options, Replica};
use replicate::record::{Change, Entry, Kind};

use crate::applying::{check, differ, folder};
use crate::bed::trees::extended;
use crate::common::{data, epoch, file, link, mode, new, start};
use crate::histories;

fn begun() -> Vec<Entry> {
    vec![
        start(),
        mode(2, 0o755),
        new(12, Kind::Regular),
        data(12, 0, b"one"),
        mode(12, 0o644),
        link(2, "file", 12),
        new(13, Kind::Regular),
        data(13, 0, b"other"),
        mode(13, 0o644),
        link(2, "other", 13),
        epoch(1),
    ]
}

fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(done.unwrap().success());
}

#[test]
fn a_tree_that_takes_the_place_of_the_one_that_is_followed_is_noticed() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let (log, to) = (at("log"), at("replica"));
    histories::write(&log, &begun());
    let options = |repair| Options {
        repair,
        ..Options::default()
    };
    let mut replica = Replica::open(&log, &to, options(false)).unwrap();
    replica.apply(None).unwrap();
    // An identical tree is continued.
    copied(&to.join("tree"), &at("same"));
    fs::rename(to.join("tree"), at("aside")).unwrap();
    fs::rename(at("same"), to.join("tree")).unwrap();
    histories::write(&log, &[data(12, 0, b"two"), mode(12, 0o640), epoch(2)]);
    replica.apply(None).unwrap();
    assert_eq!(replica.reached().0, 2);
    assert_eq!(differ(&log, 2, &to.join("tree")), []);
    // Another tree is reported, and repaired on request.
    copied(&to.join("tree"), &at("changed"));
    fs::write(at("changed/other"), "elsewhere").unwrap();
    fs::rename(to.join("tree"), at("aside too")).unwrap();
    fs::rename(at("changed"), to.join("tree")).unwrap();
    histories::write(&log, &[data(12, 0, b"six"), mode(12, 0o600), epoch(3)]);
    let refused = replica.apply(None).unwrap_err();
    assert!(matches!(refused, Error::Changed { .. }), "{refused}");
    assert_eq!(replica.reached().0, 2);
    drop(replica);
    check(&log, &to, options(true));
}

#[test]
fn who_leaves_out_what_the_replica_has_is_refused_and_the_other_way_round() {
    let folder = folder();
    let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
    let mut entries = begun();
    let all = vec![(b"trusted.name".to_vec(), b"value".to_vec())];
    let change = Change::Extended {
        file: file(12),
        all: all.clone(),
    };
    entries.insert(4, Entry::Change(change));
    histories::write(&log, &entries);
    let options = |privileged, fresh| Options {
        privileged,
        fresh,
        ..Options::default()
    };
    let root = rustix::process::geteuid().is_root();
    for (was, is) in [(false, true), (true, false)] {
        let mut replica = Replica::open(&log, &to, options(was, true)).unwrap();
        replica.apply(None).unwrap();
        replica.end().unwrap();
        // With the former options.
        let replica = Replica::open(&log, &to, options(was, false)).unwrap();
        replica.end().unwrap();
        let refused = Replica::open(&log, &to, options(is, false)).unwrap_err();
        assert!(
            matches!(refused, Error::Privileged { made, .. } if made == was),
            "{refused}"
        );
        let has = extended(&to.join("tree/file")) == all;
        assert_eq!(has, was && root);
    }
}
