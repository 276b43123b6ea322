//! What a capture sees of each operation, as the real binary says it.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::replicate_command::on_ext4;

const COVERAGE_SCRIPT: &str = r#"
"$1" replicate --json coverage disk/app >json
"$1" replicate coverage disk/app >text
# The folder that it was tried in is gone.
test "$(ls -A disk/app)" = before
"#;

#[test]
fn each_operation_is_tried_on_the_file_system_of_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    if !on_ext4(COVERAGE_SCRIPT, folder.path()) {
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
