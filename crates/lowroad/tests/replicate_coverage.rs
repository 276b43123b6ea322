//! What a capture sees of each operation, as the real binary says it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod replicating;

use std::collections::BTreeMap;
use std::fs;

use replicating::on_ext4;
use serde_json::Value;

const TRIED: &str = r#"
"$1" replicate --json coverage disk/app >json
"$1" replicate coverage disk/app >text
# The folder that it was tried in is gone.
test "$(ls -A disk/app)" = before
"#;

#[test]
fn each_operation_is_tried_on_the_file_system_of_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(TRIED, folder.path()) {
        return;
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let said: Value = serde_json::from_str(&read("json")).unwrap();
    assert_eq!(said["file_system"], "ext4");
    let of = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rows = said["operations"].as_array().unwrap().iter();
    let verdicts: BTreeMap<_, _> = rows
        .map(|row| (of(row, "operation"), of(row, "verdict")))
        .collect();
    for (operation, verdict) in [
        ("write", "EXACT"),
        ("rename-exchange", "EXACT"),
        ("mmap", "SUSPECT"),
        ("direct", "SUSPECT"),
        ("setxattr", "SUSPECT"),
        ("fallocate-collapse", "DIRTY"),
    ] {
        assert_eq!(verdicts[operation], verdict, "{operation}: {said:#}");
    }
    let text = read("text");
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap().trim(), "ext4");
    let told: BTreeMap<_, _> = lines
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    assert_eq!(told, verdicts);
}
