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
    if !has_examples()? {
        println!("no crate has an example in its documentation");
        return Ok(());
    }
    let mut cargo = Command::new("cargo");
    // Of fewer crates, cargo would choose other features of what they share, and compile it again. The lints'
    // wrapper is part of what names the crates that are compiled already.
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

/// Whether a library that rustdoc tests has at least one Rust block in its comments.
fn has_examples() -> Result<bool> {
    let sources = run::sources(&[".rs"])?;
    for package in packages(&metadata::load(false)?) {
        let folder = Path::new(text(package, "manifest_path"))
            .parent()
            .and_then(|folder| folder.strip_prefix(crate::root()).ok())
            .context("a package outside the repository")?
            .join("src");
        let mut own = sources
            .iter()
            .filter(|file| Path::new(file).starts_with(&folder));
        if tested_by_rustdoc(package)
            && own.any(|file| fs::read_to_string(file).is_ok_and(|text| has_example(&text)))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn tested_by_rustdoc(package: &Value) -> bool {
    let mut targets = package["targets"].as_array().into_iter().flatten();
    targets.any(|target| target["doctest"].as_bool() == Some(true))
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
