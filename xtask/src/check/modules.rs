//! The sources of the crates, by module, without their tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

/// A module's path below its crate; the root's is empty.
pub(super) type Module = Vec<String>;

/// The sources of each crate's modules.
pub(super) fn crates() -> Result<BTreeMap<String, BTreeMap<Module, String>>> {
    let mut crates: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for file in run::sources(&[".rs"])? {
        let Some((package, path)) = file.split_once("/src/") else {
            continue;
        };
        let own_tests = path.ends_with("_tests.rs")
            || path
                .split('/')
                .any(|part| part == "tests" || part == "tests.rs");
        if own_tests || !Path::new(package).join("Cargo.toml").is_file() {
            continue;
        }
        let mut module: Module = path
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        let is_root = |last: &String| ["mod", "lib", "main"].contains(&last.as_str());
        if module.last().is_some_and(is_root) {
            module.pop();
        }
        let name = package.rsplit('/').next().unwrap_or(package);
        let source = fs::read(&file).with_context(|| file.clone())?;
        let source = String::from_utf8_lossy(&source).into_owned();
        let modules = crates.entry(name.to_owned()).or_default();
        modules.insert(module, source);
    }
    Ok(crates)
}

/// A source without comments and without its test module.
pub(super) fn product(source: &str) -> String {
    const TESTS: &str = "#[cfg(test)]";
    let code: Vec<&str> = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join("\n");
    let is_module = |text: &str| {
        let name = text[TESTS.len()..].trim_start().strip_prefix("mod ");
        name.is_some_and(|name| {
            let rest = name.trim_start_matches(is_word);
            rest.len() < name.len() && rest.starts_with(" {")
        })
    };
    let tests = code
        .match_indices(TESTS)
        .map(|(at, _)| at)
        .find(|at| is_module(&code[*at..]));
    code[..tests.unwrap_or(code.len())].to_owned()
}

pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
