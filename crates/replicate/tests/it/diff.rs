//! The reported differences of two epochs are the differences of the restored trees.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use replicate::diff::{Difference, What, diff};
use replicate::record::{Change, Entry, Kind};
use replicate::restore::{self, restore};

use crate::applying::folder;
use crate::bed::trees::{self, differences};
use crate::common::{
    data, epoch, file as numbered, gone, hole, link, mode, new, size, start, unlink,
};
use crate::histories::{self, History};

/// The changes that these entries make, one per line.
fn changed(before: &[Entry], then: &[Entry]) -> Vec<String> {
    let folder = folder();
    let log = folder.path().join("log");
    histories::write(&log, before);
    histories::write(&log, then);
    let diff = diff(&log, 1, None).unwrap();
    assert_eq!((diff.from, diff.to), (1, 2));
    let line = |Difference { path, what }: &Difference| {
        let path = path.escape_ascii();
        match what {
            What::Renamed { from } => format!("renamed {} {path}", from.escape_ascii()),
            other => format!("{} {path}", other.name()),
        }
    };
    diff.all.iter().map(line).collect()
}

/// `directory/file` with bytes, `other`, and the symbolic link `link`.
fn some() -> Vec<Entry> {
    vec![
        start(),
        mode(2, 0o755),
        new(10, Kind::Directory),
        mode(10, 0o755),
        link(2, "directory", 10),
        new(11, Kind::Regular),
        data(11, 0, &[7; 10_000]),
        mode(11, 0o644),
        link(10, "file", 11),
        new(12, Kind::Regular),
        mode(12, 0o644),
        link(2, "other", 12),
        new(13, Kind::Symlink(b"here".to_vec())),
        link(2, "link", 13),
        epoch(1),
    ]
}

#[test]
fn each_kind_of_change_is_named() {
    let cases: [(&str, Vec<Entry>, &[&str]); 13] = [
        ("nothing", vec![], &[]),
        (
            "a new file",
            vec![new(20, Kind::Regular), mode(20, 0o600), link(10, "new", 20)],
            &["created directory/new"],
        ),
        (
            "a removed file",
            vec![unlink(2, "other"), gone(12)],
            &["removed other"],
        ),
        (
            "a renamed directory",
            vec![link(2, "moved", 10)],
            &["renamed directory moved"],
        ),
        (
            "a renamed file",
            vec![link(2, "file", 11), unlink(10, "file")],
            &["renamed directory/file file"],
        ),
        (
            "a further name",
            vec![link(2, "again", 11)],
            &["created again"],
        ),
        (
            "other bytes",
            vec![data(11, 9000, b"x")],
            &["content directory/file"],
        ),
        ("the same bytes", vec![data(11, 5, &[7; 100])], &[]),
        (
            "another size",
            vec![size(11, 9999)],
            &["content directory/file"],
        ),
        (
            "zeros instead",
            vec![hole(11, 0, 4096)],
            &["content directory/file"],
        ),
        (
            "a mode",
            vec![mode(11, 0o600)],
            &["metadata directory/file"],
        ),
        (
            "a file that takes another one's place",
            vec![
                new(20, Kind::Regular),
                data(20, 0, b"saved"),
                mode(20, 0o600),
                link(10, "file", 20),
                gone(11),
            ],
            &["content directory/file", "metadata directory/file"],
        ),
        (
            "a symlink that leads elsewhere, and a file instead of another kind",
            vec![
                new(20, Kind::Symlink(b"there".to_vec())),
                link(2, "link", 20),
                gone(13),
                new(21, Kind::Fifo),
                mode(21, 0o600),
                link(2, "other", 21),
                gone(12),
            ],
            &["content link", "removed other", "created other"],
        ),
    ];
    for (what, mut then, expected) in cases {
        then.push(epoch(2));
        assert_eq!(changed(&some(), &then), expected, "{what}");
    }
}

#[test]
fn an_inode_that_is_used_again_is_another_file() {
    let then = [
        unlink(2, "other"),
        gone(12),
        new(12, Kind::Regular),
        mode(12, 0o644),
        link(10, "elsewhere", 12),
        epoch(2),
    ];
    assert_eq!(
        changed(&some(), &then),
        ["created directory/elsewhere", "removed other"]
    );
}

#[test]
fn a_tree_that_is_said_anew_differs_in_what_is_different() {
    let mut anew = some();
    anew.pop();
    anew.push(data(11, 0, b"x"));
    anew.push(epoch(2));
    assert_eq!(changed(&some(), &anew), ["content directory/file"]);
    // The same tree with other inodes, on another file system.
    for entry in &mut anew {
        if let Entry::Change(
            Change::New { file, .. }
            | Change::Data { file, .. }
            | Change::Attributes { file, .. }
            | Change::Link { file, .. },
        ) = entry
            && *file != crate::common::ROOT
        {
            *file = numbered(file.inode + 100);
        }
        if let Entry::Change(Change::Link { directory, .. }) = entry
            && *directory != crate::common::ROOT
        {
            *directory = numbered(directory.inode + 100);
        }
    }
    let mut changed = changed(&some(), &anew);
    // The times of the test trees depend on the inode.
    changed.retain(|line| !line.starts_with("metadata"));
    assert_eq!(changed, ["content directory/file"]);
}

#[test]
fn what_is_said_is_what_the_restored_trees_show() {
    let mut compared = 0;
    for seed in 0..60 {
        let folder = folder();
        let log = folder.path().join("log");
        let mut history = History::new(seed);
        history.go_on(40);
        let from = history.tree.epoch();
        history.go_on(4 + usize::try_from(seed).unwrap() % 20);
        let to = history.tree.epoch();
        histories::write(&log, &history.entries);
        let [before, after] = [from, to].map(|epoch| {
            let made = folder.path().join(epoch.to_string());
            restore(&log, Some(epoch), &made, restore::Options::default()).unwrap();
            made
        });
        let said = diff(&log, from, Some(to)).unwrap();
        assert!(diff(&log, to, Some(to)).unwrap().all.is_empty());
        compared += check(seed, &said.all, &before, &after);
    }
    assert!(compared > 100, "{compared}");
}

/// Skips the paths below which something was renamed, and returns their number.
fn check(seed: u64, said: &[Difference], before: &Path, after: &Path) -> usize {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let mut moved = BTreeSet::new();
    for one in said {
        if let What::Renamed { from } = &one.what {
            moved.extend([path(&one.path), path(from)]);
        }
    }
    let still = |at: &Path| !moved.iter().any(|moved| at.starts_with(moved));
    let says = |at: &Path, what: &What| {
        said.iter()
            .any(|one| path(&one.path) == at && one.what == *what)
    };
    let mut shown = differences(before, after);
    shown.retain(|one| still(&one.path));
    for one in &shown {
        let replaced = says(&one.path, &What::Created) && says(&one.path, &What::Removed);
        let expected = match one.what {
            trees::What::Missing => What::Removed,
            trees::What::Extra => What::Created,
            trees::What::Size | trees::What::Bytes | trees::What::Target => What::Content,
            trees::What::Mode | trees::What::Owner | trees::What::Extended => What::Metadata,
            trees::What::Kind => {
                assert!(replaced, "seed {seed}: {one:?} {said:#?}");
                continue;
            }
            // Names of one file, times of directories, and what the file system allocates.
            trees::What::Links
            | trees::What::Modified
            | trees::What::Device
            | trees::What::Holes => continue,
        };
        assert!(
            replaced || says(&one.path, &expected),
            "seed {seed}: {one:?} is not in {said:#?}"
        );
    }
    let there = |at: &Path| at.symlink_metadata().is_ok();
    let shows = |at: &Path, all: &[trees::What]| {
        shown
            .iter()
            .any(|one| one.path == at && all.contains(&one.what))
    };
    for one in said.iter().filter(|one| still(&path(&one.path))) {
        let at = path(&one.path);
        let right = match one.what {
            What::Content => {
                use trees::What::{Bytes, Size, Target};
                shows(&at, &[Size, Bytes, Target])
            }
            What::Created => !there(&before.join(&at)) || says(&at, &What::Removed),
            What::Removed => !there(&after.join(&at)) || says(&at, &What::Created),
            What::Metadata | What::Renamed { .. } => true,
        };
        assert!(right, "seed {seed}: {one:?} is not so: {shown:#?}");
    }
    shown.len()
}
