//! Every file below a crate's tests/ is compiled, and as part of one program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::metadata::{self, packages, text};
use crate::run;
use crate::tally::Outcome;

pub(super) fn check() -> Result<Outcome> {
    let mut findings = Vec::new();
    let mut reached = BTreeSet::new();
    for package in packages(&metadata::load(false)?) {
        let name = text(package, "name");
        let roots: Vec<PathBuf> = programs(package).collect();
        if roots.len() > 1 {
            findings.push(format!(
                "{name}: {} integration test programs; make them modules of tests/it/main.rs",
                roots.len()
            ));
        }
        for root in roots {
            visit(&root, true, &mut reached)?;
        }
    }
    for file in run::sources(&[".rs"])? {
        let mut parts = file.split('/');
        let is_test = parts.next() == Some("crates") && parts.nth(1) == Some("tests");
        if is_test && !reached.contains(&crate::root().join(&file)) {
            findings.push(format!(
                "{file}: no `mod` leads to it, so it is never compiled"
            ));
        }
    }
    Ok(super::verdict(
        &findings,
        "one program for each crate, tests/it/main.rs, declares the others",
    ))
}

/// The root files of a package's integration tests.
fn programs(package: &Value) -> impl Iterator<Item = PathBuf> {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets
        .filter(|target| target["kind"][0].as_str() == Some("test"))
        .map(|target| PathBuf::from(text(target, "src_path")))
}

/// Adds a file and the files of the modules that it declares.
fn visit(file: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !reached.insert(file.to_owned()) {
        return Ok(());
    }
    let source = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let folder = file.parent().unwrap_or(file);
    let inside = match file.file_stem() {
        Some(stem) if !is_root && stem != "mod" => folder.join(stem),
        _ => folder.to_owned(),
    };
    for declaration in declarations(&source) {
        let candidates = match declaration {
            Declaration::Path(path) => vec![(folder.join(path), true)],
            Declaration::Name(name) => vec![
                (inside.join(format!("{name}.rs")), false),
                (inside.join(name).join("mod.rs"), false),
            ],
        };
        // One that is not there belongs to a configuration, or does not compile.
        for (candidate, is_root) in candidates {
            if candidate.is_file() {
                visit(&fs::canonicalize(&candidate)?, is_root, reached)?;
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Declaration<'a> {
    /// `mod name;`
    Name(&'a str),
    /// `#[path = "file.rs"] mod name;`
    Path(&'a str),
}

/// The modules of a source that have files of their own.
fn declarations(source: &str) -> Vec<Declaration<'_>> {
    let mut found = Vec::new();
    let mut path = None;
    for line in source.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[path = \"") {
            path = attribute.split('"').next();
        }
        // A path and its module may share a line.
        let line = line.rsplit(']').next().unwrap_or(line).trim_start();
        let visible = line.strip_prefix("pub").map_or(line, |rest| {
            rest.trim_start_matches(|letter| letter != ' ').trim_start()
        });
        let name = visible
            .strip_prefix("mod ")
            .and_then(|rest| rest.split_once(';'));
        if let Some((name, _)) = name {
            found.push(
                path.take()
                    .map_or(Declaration::Name(name), Declaration::Path),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_files_are_followed() {
        let source =
            "//! mod no;\nmod a;\npub(crate) mod b;\n#[path = \"../x.rs\"]\nmod c;\nmod d {\n}\n";
        let expected = [
            Declaration::Name("a"),
            Declaration::Name("b"),
            Declaration::Path("../x.rs"),
        ];
        assert_eq!(declarations(source), expected);
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("it/a")).unwrap();
        for (path, text) in [
            ("it/main.rs", "mod a;\n"),
            ("it/a/mod.rs", "mod b;\n"),
            ("it/a/b.rs", ""),
            ("it/lost.rs", ""),
        ] {
            fs::write(at(path), text).unwrap();
        }
        let mut reached = BTreeSet::new();
        visit(&at("it/main.rs"), true, &mut reached).unwrap();
        let expected = ["it/a/b.rs", "it/a/mod.rs", "it/main.rs"].map(at);
        assert_eq!(Vec::from_iter(reached), expected);
    }
}
