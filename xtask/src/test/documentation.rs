//! Examples in documentation comments, compiled and run by rustdoc if there is one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::passed;
use crate::lint;
use crate::metadata::{self, packages, text};
use crate::run;
use crate::tally::{Outcome, Tally};

/// Words beside which a block is still Rust: rustdoc compiles it.
const RUST: &[&str] = &["rust", "no_run", "should_panic", "compile_fail"];

pub(super) fn test(tally: &mut Tally) -> Result<()> {
    let (tested, untested) = examples()?;
    if let Some(file) = untested {
        let why =
            format!("{file}: rustdoc runs no example of this crate: remove its `doctest = false`");
        tally.add("documentation tests", Outcome::Failed(why));
        return Ok(());
    }
    if !tested {
        println!("no crate has an example in its documentation");
        return Ok(());
    }
    let mut cargo = Command::new("cargo");
    // With fewer crates, cargo would choose other features of shared dependencies and compile them again. The
    // lints' wrapper is part of the key of crates that are compiled already.
    cargo.args(["test", "--locked", "--quiet", "--doc", "--workspace"]);
    lint::enable(&mut cargo)?;
    let output = cargo.output().context("cargo does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        tally.add_passed(text.lines().filter_map(passed).sum());
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        let outcome = Outcome::Failed(format!("{text}\n{errors}"));
        tally.add("documentation tests", outcome);
    }
    Ok(())
}

/// Whether a library that rustdoc tests has a Rust block in its comments, and a file of another library that has one.
fn examples() -> Result<(bool, Option<String>)> {
    let sources = run::sources(&[".rs"])?;
    let (mut tested, mut untested) = (false, None);
    for package in packages(&metadata::load(false)?) {
        let folder = Path::new(text(package, "manifest_path"))
            .parent()
            .and_then(|folder| folder.strip_prefix(crate::root()).ok())
            .context("a package outside the repository")?
            .join("src");
        let Some(is_tested) = tested_by_rustdoc(package) else {
            continue;
        };
        let mut own = sources
            .iter()
            .filter(|file| Path::new(file).starts_with(&folder));
        let found = own.find(|file| fs::read_to_string(file).is_ok_and(|text| has_example(&text)));
        match found {
            Some(_) if is_tested => tested = true,
            Some(file) => untested = Some(file.clone()),
            None => {}
        }
    }
    Ok((tested, untested))
}

/// Whether rustdoc tests the library of a package; none where it has no library.
fn tested_by_rustdoc(package: &Value) -> Option<bool> {
    let mut targets = package["targets"].as_array().into_iter().flatten();
    let is_library = |target: &&Value| {
        let kinds = target["kind"].as_array().into_iter().flatten();
        let kinds: Vec<&str> = kinds.filter_map(Value::as_str).collect();
        kinds.contains(&"lib") || kinds.contains(&"rlib")
    };
    targets.find(is_library)?["doctest"].as_bool()
}

/// Whether a documentation comment of the source holds a block that rustdoc compiles. A page that is
/// included counts as one that does.
fn has_example(source: &str) -> bool {
    let mut inside = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#![doc = include_str!") || line.starts_with("#[doc = include_str!") {
            return true;
        }
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let Some(comment) = comment.map(str::trim_start) else {
            inside = false;
            continue;
        };
        let fence = comment
            .strip_prefix("```")
            .or_else(|| comment.strip_prefix("~~~"));
        let Some(info) = fence else { continue };
        if !inside && is_rust(info) {
            return true;
        }
        inside = !inside;
    }
    false
}

/// Whether rustdoc takes a block with this info string for Rust that it is to compile.
fn is_rust(info: &str) -> bool {
    info.trim_start_matches(['`', '~'])
        .split([',', ' ', '\t'])
        .filter(|word| !word.is_empty())
        .all(|word| RUST.contains(&word) || word.starts_with("edition"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rust_blocks_are_examples() {
        for (source, expected) in [
            ("/// ```\n/// assert!(true);\n/// ```\nfn f() {}", true),
            ("//! ```no_run\n//! loop {}\n//! ```", true),
            ("    /// ```rust,edition2024\n    /// f();\n", true),
            ("/// ```text\n/// a | b\n/// ```\nfn f() {}", false),
            ("//! ```ignore\n//! f();\n//! ```\n", false),
            (
                "/// ```text\n/// ```\n///\n/// ```\n/// f();\n/// ```",
                true,
            ),
            ("// ```\n// f();\n// ```", false),
            ("let fence = \"```\";", false),
            ("#![doc = include_str!(\"../README.md\")]", true),
        ] {
            assert_eq!(has_example(source), expected, "{source}");
        }
    }
}
