//! A verb that is given a folder without a log says so in one line, with exit code 2, and leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::replicate_command::refused;

/// All paths below a folder.
fn paths(folder: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(paths(&path));
        }
        all.insert(path);
    }
    all
}

#[test]
fn a_folder_that_is_no_log_is_refused_and_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("documents/more")).unwrap();
    fs::write(folder.join("documents/letter"), "dear").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("file"), "no folder").unwrap();
    // As an `apply` leaves it.
    fs::create_dir_all(folder.join("replica/tree")).unwrap();
    for name in ["replica/lock", "replica/state"] {
        fs::write(folder.join(name), "").unwrap();
    }
    let before = paths(folder);
    let (not, none) = (
        " is not a log: it has no segments",
        ": there is no log yet; start `lowroad replicate capture",
    );
    for (log, said) in [
        ("documents", not),
        ("replica", not),
        ("file", not),
        ("empty", none),
        ("missing", none),
    ] {
        let verbs: [&[&str]; 10] = [
            &["log", log],
            &["epochs", log],
            &["diff", log, "--from", "1"],
            &["compact", log],
            &["restore", log, "--out", "out"],
            &[
                "restore",
                log,
                "--at",
                "2026-11-28T10:15:00Z",
                "--out",
                "out",
            ],
            &["verify", log, "--against", "tree"],
            &["verify", log, "--against", "tree", "--live", "1s"],
            &["hash", "--log", log],
            &["apply", log, "--to", "out"],
        ];
        for verb in verbs {
            let text = refused(&[&["replicate"], verb].concat(), 2, folder);
            assert!(text.contains(&format!("{log}{said}")), "{verb:?}: {text}");
            assert_eq!(paths(folder), before, "{verb:?}");
        }
    }
    // These wait for an empty folder to become one.
    for log in ["documents", "replica", "file", "missing"] {
        for verb in [
            &["apply", log, "--to", "out", "--follow"][..],
            &["publish", log, "--to", "nats://127.0.0.1:1/APP"],
        ] {
            refused(&[&["replicate"], verb].concat(), 2, folder);
            assert_eq!(paths(folder), before, "{verb:?}");
        }
    }
}

#[test]
fn a_capture_begins_no_log_where_it_cannot_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("documents")).unwrap();
    fs::write(folder.join("documents/letter"), "dear").unwrap();
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("file"), "no folder").unwrap();
    let before = paths(folder);
    let capture = |tree: &str, log: &str| {
        let arguments = ["replicate", "capture", "--tree", tree, "--to", log];
        let said = refused(&arguments, 2, folder);
        assert_eq!(paths(folder), before, "{arguments:?}");
        said
    };
    let said = capture("tree", "documents");
    assert!(
        said.contains("documents has other files in it and is not a log"),
        "{said}"
    );
    if sys::require::root() {
        let said = capture("file", "log");
        assert!(said.contains("file: not a directory"), "{said}");
        assert!(!said.contains("lowroad-coverage"), "{said}");
    }
    let receive = [
        "replicate",
        "receive",
        "tcp://127.0.0.1:1",
        "--to",
        "documents",
    ];
    let said = refused(&receive, 2, folder);
    assert!(said.contains("documents has other files in it"), "{said}");
    assert_eq!(paths(folder), before);
}
