//! Builds test programs as `cargo test` does and lists their tests.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lint;
use crate::metadata::text;
use crate::run;

/// The name of a crate's one integration test program, `tests/it/main.rs`.
const INTEGRATION: &str = "it";

/// One test program.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) package: String,
    /// The file below tests/, or `None` for a crate's unit tests.
    pub(crate) target: Option<String>,
    pub(crate) program: PathBuf,
    /// The crate's folder: cargo runs tests there.
    pub(crate) folder: PathBuf,
}

/// A test program with the tests that it holds.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) binary: Binary,
    /// Paths such as `same_output::forwards_equal_bytes`.
    pub(crate) tests: Vec<String>,
    /// The tests among `tests` that are marked `#[ignore]`.
    pub(crate) ignored: Vec<String>,
}

/// The packages whose tests a run builds.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    Workspace,
    Package(String),
}

impl Binary {
    /// `relay` for a crate's unit tests, `relay it` for its integration tests.
    pub(crate) fn name(&self) -> String {
        match &self.target {
            Some(target) => format!("{} {target}", self.package),
            None => self.package.clone(),
        }
    }

    /// A test's name in the repository's lists: `relay config::tests::duplicates` for a unit test,
    /// `relay it same_output::equal_bytes` for an integration test. A program of its own,
    /// `tests/same_output.rs`, is named like the module of `it` that it would be.
    pub(crate) fn canonical(&self, test: &str) -> String {
        match self.target.as_deref() {
            None => format!("{} {test}", self.package),
            Some(INTEGRATION) => format!("{} {INTEGRATION} {test}", self.package),
            Some(target) => format!("{} {INTEGRATION} {target}::{test}", self.package),
        }
    }
}

impl Suite {
    /// Asks a program which tests it holds.
    fn list(binary: Binary) -> Result<Self> {
        Ok(Self {
            tests: names(&binary, &[])?,
            ignored: names(&binary, &["--ignored"])?,
            binary,
        })
    }

    /// The repository-wide names of the tests.
    pub(crate) fn canonical(&self) -> impl Iterator<Item = String> {
        self.tests.iter().map(|test| self.binary.canonical(test))
    }
}

/// The result of a build.
#[derive(Debug)]
pub(crate) struct BuildOutput {
    pub(crate) suites: Vec<Suite>,
    /// Cargo's messages, with those of the compiler.
    pub(crate) messages: Vec<Value>,
}

/// Builds the scope's test programs and the binaries that they start.
pub(crate) fn build(scope: &Scope) -> Result<Vec<Suite>> {
    let mut cargo = Command::new("cargo");
    // `--tests` includes libraries and binaries, except those with `test = false`.
    cargo.args(["test", "--locked", "--no-run", "--quiet", "--tests"]);
    match scope {
        Scope::Workspace => {
            // With the wrapper, cargo takes what the last whole run compiled.
            lint::enable(&mut cargo)?;
            cargo.arg("--workspace")
        }
        Scope::Package(package) => cargo.args(["--package", package]),
    };
    Ok(build_with(cargo)?.suites)
}

/// Builds the whole workspace's tests and examples, and lints what it compiles.
pub(super) fn build_and_lint() -> Result<BuildOutput> {
    // The task runner's own program is in no test.
    let mut own = Command::new("cargo");
    own.args(["build", "--locked", "--quiet", "--package", "xtask"]);
    lint::enable(&mut own)?;
    let mut messages = run::build(&mut own)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked", "--no-run", "--quiet", "--workspace"]);
    cargo.args(["--tests", "--examples"]);
    lint::enable(&mut cargo)?;
    let mut built = build_with(cargo)?;
    built.messages.append(&mut messages);
    Ok(built)
}

/// Runs a cargo command that builds, and lists the tests of the programs that it names.
fn build_with(mut cargo: Command) -> Result<BuildOutput> {
    let messages = run::build(&mut cargo).context("the tests do not build")?;
    let mut binaries: Vec<Binary> = messages.iter().filter_map(binary).collect();
    binaries.sort_by_key(Binary::name);
    let suites = binaries.into_iter().map(Suite::list);
    Ok(BuildOutput {
        suites: suites.collect::<Result<_>>()?,
        messages,
    })
}

fn binary(message: &Value) -> Option<Binary> {
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    let program = message["executable"].as_str().filter(|_| is_test)?;
    let folder = PathBuf::from(text(message, "manifest_path"))
        .parent()?
        .to_owned();
    let kind = message["target"]["kind"][0].as_str();
    if kind == Some("example") {
        return None;
    }
    let integration = kind == Some("test");
    Some(Binary {
        package: folder.file_name()?.to_string_lossy().into_owned(),
        target: integration.then(|| text(&message["target"], "name").to_owned()),
        program: program.into(),
        folder,
    })
}

fn names(binary: &Binary, more: &[&str]) -> Result<Vec<String>> {
    let output = Command::new(&binary.program)
        .args(["--list", "--format", "terse"])
        .args(more)
        .output()
        .with_context(|| format!("{} does not start", binary.program.display()))?;
    if !output.status.success() {
        bail!("{} does not list its tests", binary.program.display());
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_suffix(": test").map(str::to_owned))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_as_modules() {
        let binary = |target: Option<&str>| Binary {
            package: "relay".to_owned(),
            target: target.map(str::to_owned),
            program: PathBuf::new(),
            folder: PathBuf::new(),
        };
        let merged = binary(Some("it")).canonical("batch::order");
        assert_eq!(binary(Some("batch")).canonical("order"), merged);
        assert_eq!(merged, "relay it batch::order");
        assert_eq!(binary(None).canonical("batch::order"), "relay batch::order");
        assert_eq!(binary(None).name(), "relay");
    }
}
