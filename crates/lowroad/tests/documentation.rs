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
fn the_relay_pages_configuration_is_correct() {
    let text = RELAY.split("```toml\n").nth(1).unwrap();
    let text = text.split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lowroad"))
        .args(["relay", "serve", "--check", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
