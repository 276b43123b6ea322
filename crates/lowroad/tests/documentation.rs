//! What the book says is what the program does.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::process::Command;

const RELAY: &str = include_str!("../../../docs/src/relay.md");

#[test]
fn the_relay_page_lists_the_datapaths_there_are() {
    for datapath in relay::datapaths() {
        let row = format!("| `{}` |", datapath.name());
        assert!(RELAY.contains(&row), "{row} is missing");
    }
}

#[test]
fn the_relay_pages_configurations_are_correct() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    let blocks: Vec<_> = RELAY.split("```toml\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for text in blocks {
        fs::write(&file, text.split("```").next().unwrap()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_lowroad"))
            .args(["relay", "serve", "--check", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
