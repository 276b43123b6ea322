//! Tests that clean take turns: what one of them has left on purpose, the `clean` of another would remove.

use std::fs::{self, File};
use std::path::Path;

/// Nobody else's until it is dropped. Whoever waits for other experiments as well does that first.
#[must_use]
pub fn turn() -> File {
    let folder = Path::new("/run/lowroad");
    fs::create_dir_all(folder).unwrap();
    let turn = File::create(folder.join("tests-clean.lock")).unwrap();
    turn.lock().unwrap();
    turn
}
