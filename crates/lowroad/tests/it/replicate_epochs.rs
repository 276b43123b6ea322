//! The real binary lists epochs, restores by time and compares epochs.

use std::fs;
use std::path::Path;

use replicate::log::{Options, Writer};
use replicate::record::{Attributes, Change, Entry, File, Kind, Name, Origin, Source};
use serde_json::Value;

use crate::replicate_command::{lowroad, refused};

/// 2026-11-28T10:15:00Z.
const TEN_FIFTEEN: u64 = 1_795_860_900;

fn file(inode: u64) -> File {
    File {
        inode,
        generation: 0,
    }
}

fn link(name: &str, inode: u64) -> Entry {
    Entry::Change(Change::Link {
        directory: file(2),
        name: Name::new(name.as_bytes()).unwrap(),
        file: file(inode),
    })
}

fn unlink(name: &str) -> Entry {
    Entry::Change(Change::Unlink {
        directory: file(2),
        name: Name::new(name.as_bytes()).unwrap(),
    })
}

fn new(inode: u64) -> Entry {
    Entry::Change(Change::New {
        file: file(inode),
        kind: Kind::Regular,
    })
}

fn data(inode: u64, bytes: &str) -> Entry {
    Entry::Change(Change::Data {
        file: file(inode),
        offset: 0,
        bytes: bytes.as_bytes().to_vec(),
        origin: Origin::Exact,
    })
}

fn mode(inode: u64, mode: u16) -> Entry {
    Entry::Change(Change::Attributes {
        file: file(inode),
        attributes: Attributes {
            mode,
            uid: 0,
            gid: 0,
            modified_ns: 0,
        },
    })
}

/// Three epochs, ten minutes apart.
fn log(folder: &Path) {
    let mut writer = Writer::open(&folder.join("log"), Options::default()).unwrap();
    let root = file(2);
    let first = vec![
        Entry::Start { root },
        Entry::Source(Source::default()),
        mode(2, 0o755),
        new(10),
        data(10, "one"),
        mode(10, 0o644),
        link("one", 10),
        Entry::Barrier,
    ];
    let second = vec![
        data(10, "eins"),
        new(11),
        mode(11, 0o644),
        link("two", 11),
        unlink("one"),
        link("uno", 10),
    ];
    let third = vec![unlink("two"), mode(10, 0o600), Entry::Barrier];
    for (number, entries) in (1..).zip([first, second, third]) {
        let at = (TEN_FIFTEEN + (number - 1) * 600) * 1_000_000_000 + 250_000_000;
        for entry in entries.into_iter().chain([Entry::Epoch { number }]) {
            writer.append(at, entry).unwrap();
        }
    }
    writer.sync().unwrap();
}

fn lines(arguments: &[&str], folder: &Path) -> Vec<Value> {
    let output = lowroad(&[&["replicate", "--json"], arguments].concat(), folder);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn words(arguments: &[&str], folder: &Path) -> String {
    let output = lowroad(&[&["replicate"], arguments].concat(), folder);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn epochs_are_listed_with_their_times_and_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    log(folder);
    let listed = words(&["epochs", "log"], folder);
    let expected = "\
epoch 1  at 2026-11-28T10:15:00.250Z  cause barrier  files 1  bytes 3  changed 2 files, 3 bytes
epoch 2  at 2026-11-28T10:25:00.250Z  cause time  files 2  bytes 4  changed 2 files, 4 bytes
epoch 3  at 2026-11-28T10:35:00.250Z  cause barrier  files 1  bytes 4  changed 2 files, 0 bytes
";
    assert_eq!(listed, expected);
    let numbers = |arguments: &[&str]| -> Vec<u64> {
        let all = lines(&[&["epochs", "log"], arguments].concat(), folder);
        all.iter()
            .map(|line| line["epoch"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(numbers(&[]), [1, 2, 3]);
    assert_eq!(numbers(&["--last", "2"]), [2, 3]);
    assert_eq!(numbers(&["--since", "2026-11-28T10:25:00.25Z"]), [2, 3]);
    assert_eq!(numbers(&["--until", "2026-11-28T11:25:01+01:00"]), [1, 2]);
    assert_eq!(
        numbers(&["--until", "2026-11-28T10:30:00Z", "--last", "1"]),
        [2]
    );
    assert!(numbers(&["--since", "2027-01-01T00:00:00Z"]).is_empty());
    let last = &lines(&["epochs", "log", "--last", "1"], folder)[0];
    assert_eq!(
        last["at_ns"],
        (TEN_FIFTEEN + 1200) * 1_000_000_000 + 250_000_000
    );
    assert_eq!(last["changed_files"], 2, "{last:#}");
}

#[test]
fn a_log_of_an_earlier_version_does_not_tell_causes() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(&folder.path().join("log"), Options::default()).unwrap();
    for entry in [Entry::Start { root: file(2) }, Entry::Epoch { number: 1 }] {
        writer.append(1, entry).unwrap();
    }
    writer.sync().unwrap();
    let listed = words(&["epochs", "log"], folder.path());
    assert!(
        listed.contains("cause unknown  files 0  bytes 0"),
        "{listed}"
    );
    let json = &lines(&["epochs", "log"], folder.path())[0];
    assert_eq!(json["cause"], Value::Null, "{json:#}");
}

#[test]
fn a_time_restores_the_last_epoch_that_is_not_later() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    log(folder);
    for (at, epoch, names) in [
        ("2026-11-28T10:15:00.25Z", 1, ["one"].as_slice()),
        ("2026-11-28T10:24:59Z", 1, &["one"]),
        ("2026-11-28T12:25:00.25+02:00", 2, &["two", "uno"]),
        ("2026-11-28T10:34:59Z", 2, &["two", "uno"]),
    ] {
        let said = words(&["restore", "log", "--at", at, "--out", "out"], folder);
        let minute = 5 + 10 * epoch;
        let beginning = format!("epoch {epoch}  at 2026-11-28T10:{minute}:00.250Z  names ");
        assert!(said.starts_with(&beginning), "{at}: {said}");
        let mut there: Vec<_> = fs::read_dir(folder.join("out"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        there.sort();
        assert_eq!(there, names, "{at}");
        fs::remove_dir_all(folder.join("out")).unwrap();
    }
    let refusal = |more: &[&str]| {
        let arguments = [&["replicate", "restore", "log", "--out", "out"], more].concat();
        let said = refused(&arguments, 2, folder);
        assert!(!folder.join("out").exists());
        said
    };
    let said = refusal(&["--at", "2026-11-28T10:15:00Z"]);
    let begins = "log begins with epoch 1 at 2026-11-28T10:15:00.250Z, after 2026-11-28T10:15:00Z";
    assert!(said.contains(begins), "{said}");
    let said = refusal(&["--at", "2553-01-01T00:00:00Z"]);
    assert!(
        said.contains("2553-01-01T00:00:00Z lies in the future: it is "),
        "{said}"
    );
    let said = refusal(&["--ago", "2000000h"]);
    assert!(said.contains("log begins with epoch 1"), "{said}");
    // Without a zone nobody knows which moment it is.
    let arguments = [
        "replicate",
        "restore",
        "log",
        "--out",
        "out",
        "--at",
        "2026-11-28T10:15:00",
    ];
    let output = lowroad(&arguments, folder);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("not a time with a zone"), "{said}");
}

#[test]
fn an_age_restores_what_was_there_then() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut writer = Writer::open(&folder.join("log"), Options::default()).unwrap();
    let now = u64::try_from(
        std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .as_nanos(),
    )
    .unwrap();
    let hours = |hours: u64| now - hours * 3600 * 1_000_000_000;
    let root = file(2);
    writer.append(hours(3), Entry::Start { root }).unwrap();
    for number in 1..=3 {
        writer
            .append(hours(4 - number), Entry::Epoch { number })
            .unwrap();
    }
    writer.sync().unwrap();
    for (ago, epoch) in [("150m", 1), ("2h", 2), ("90m", 2), ("1s", 3)] {
        let said = words(&["restore", "log", "--ago", ago, "--out", "out"], folder);
        assert!(
            said.starts_with(&format!("epoch {epoch}  at 20")),
            "{ago}: {said}"
        );
        fs::remove_dir_all(folder.join("out")).unwrap();
    }
}

#[test]
fn two_epochs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    log(folder);
    let expected = "\
created   ./two
content   ./uno
renamed   ./one -> ./uno
epochs 1 to 2  created 1  removed 0  renamed 1  content 1  metadata 0
";
    let mut listed: Vec<String> = words(&["diff", "log", "--from", "1", "--to", "2"], folder)
        .lines()
        .map(str::to_owned)
        .collect();
    let mut expected: Vec<String> = expected.lines().map(str::to_owned).collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    let listed = words(&["diff", "log", "--from", "2"], folder);
    let expected = "\
removed   ./two
metadata  ./uno
epochs 2 to 3  created 0  removed 1  renamed 0  content 0  metadata 1
";
    assert_eq!(listed, expected);
    let all = lines(&["diff", "log", "--from", "1"], folder);
    assert_eq!(all.last().unwrap()["summary"]["renamed"], 1, "{all:#?}");
    assert!(
        all.iter()
            .any(|line| line["from"] == "one" && line["path"] == "uno"),
        "{all:#?}"
    );
    let said = refused(
        &["replicate", "diff", "log", "--from", "3", "--to", "2"],
        2,
        folder,
    );
    assert!(said.contains("--from 3 is after --to 2"), "{said}");
    let said = refused(&["replicate", "diff", "log", "--from", "3"], 2, folder);
    assert!(said.contains("has no epoch after 3"), "{said}");
    let said = refused(
        &["replicate", "diff", "log", "--from", "1", "--to", "9"],
        2,
        folder,
    );
    assert!(said.contains("has no epoch 9"), "{said}");
}
