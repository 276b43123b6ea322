//! The page about stability names the formats and protocols that the code has, with their numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::deployment::{ROOT, files};

const PAGE: &str = include_str!("../../../../docs/src/stability.md");
/// The constants whose values identify a format or a version.
const CONSTANTS: [&str; 4] = ["VERSION", "FORMAT", "MAGIC", "SCHEMA"];

/// Rows of the page, each with the crate and the constant's value that it is about.
const FORMATS: [(&str, &str, &str); 12] = [
    (
        "| `record.jsonl` of a comparison | schema `2` |",
        "report",
        "2",
    ),
    ("| table image of the router | version `1` |", "router", "1"),
    (
        "| segment of a replicate log | `lrreplg1` |",
        "replicate",
        "*b\"lrreplg1\"",
    ),
    (
        "| state of a replica | `lrrepls1` |",
        "replicate",
        "*b\"lrrepls1\"",
    ),
    (
        "| names that a replica has left out | `lromits1` |",
        "replicate",
        "*b\"lromits1\"",
    ),
    (
        "| message of replicate over NATS | `lrnatsm1` |",
        "replicate",
        "*b\"lrnatsm1\"",
    ),
    ("| replicate over TCP | version `2` |", "replicate", "2"),
    (
        "| journal of `--pin` | format `2`, and the version of lowroad |",
        "replicate",
        "2",
    ),
    ("| netbench | version `8` |", "netbench", "8"),
    ("| `lowroad-onnx` | version `1` |", "onnx-protocol", "1"),
    (
        "| compiled model of features | `lowroad-model-1` |",
        "features",
        "\"lowroad-model-1\"",
    ),
    (
        "| trees of scikit-learn | `lowroad-trees-1` |",
        "features",
        "\"lowroad-trees-1\"",
    ),
];

/// Constants of other names, as the code has them.
const OTHERS: [(&str, &str, &str); 4] = [
    (
        "| `summary.json` | schema `2` |",
        "report",
        "schema: SCHEMA,",
    ),
    (
        "| `lowroad doctor --json` | schema `1` |",
        "lowroad",
        "schema: 1,",
    ),
    (
        "| parity datagram of the relay | version `1` |",
        "relay",
        "const MARK: [u8; 4] = [0xfe, b'L', b'F', 1];",
    ),
    (
        "| hash of a tree | `lowroad replicate tree 1` |",
        "replicate",
        "\"lowroad replicate tree 1\"",
    ),
];

/// Constants that are of formats of others, or never leave one build: the crate and the value.
const FOREIGN: [(&str, &str); 10] = [
    ("arguments", "env!(\"LOWROAD_VERSION\")"),
    ("router", "b\"LOWROADT\""),
    ("experiment", "\"tree.v1\""),
    ("features", "10"),
    ("features", "0"),
    ("features", "0x6d72_6f66"),
    ("guest", "3"),
    ("packet", "0x314f_574c"),
    ("packet", "[0x1f, 0x8b, 8]"),
    ("replicate", "0xeb9f"),
];

#[test]
fn formats_have_the_numbers_of_the_code() {
    let code = constants();
    for (row, name, value) in FORMATS {
        assert!(PAGE.contains(row), "{row}");
        let constant = (name.to_owned(), value.to_owned());
        assert!(code.contains(&constant), "{name} has no {value}: {row}");
    }
    for (row, name, text) in OTHERS {
        assert!(PAGE.contains(row), "{row}");
        let mut texts = sources(name).into_iter();
        assert!(texts.any(|source| source.contains(text)), "{name}: {row}");
    }
    let listed = FORMATS.map(|(_, name, value)| (name, value));
    let listed: BTreeSet<_> = listed.iter().chain(&FOREIGN).collect();
    for (name, value) in &code {
        let known = listed.contains(&(name.as_str(), value.as_str()));
        assert!(
            known,
            "{name} has a format {value} that the page does not list"
        );
    }
}

/// The text of a crate's files.
fn sources(name: &str) -> Vec<String> {
    let paths = files(&format!("crates/{name}/src"), &[".rs"]);
    paths
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// The constants that identify formats: crate and value.
fn constants() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for path in files("crates", &[".rs"]) {
        let place = path.strip_prefix(Path::new(ROOT).join("crates")).unwrap();
        let Some((name, _)) = place.to_str().unwrap().split_once("/src/") else {
            continue;
        };
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let line = line.trim();
            let Some((visibility, rest)) = line.split_once("const ") else {
                continue;
            };
            let Some((constant, rest)) = rest.split_once(": ") else {
                continue;
            };
            let value = rest
                .split_once(" = ")
                .map(|(_, value)| value.trim_end_matches(';'));
            if let Some(value) = value
                && (visibility.is_empty() || visibility.starts_with("pub"))
                && CONSTANTS.contains(&constant)
                && !value.contains("Schema {")
            {
                found.insert((name.to_owned(), value.to_owned()));
            }
        }
    }
    found
}
