//! Builds the workspace's test programs, as cargo test does, and says where they are.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::text;
use crate::tally::{Outcome, Tally};

/// One test program.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// `relay` for a crate's own tests, `relay same_output` for one of its tests/ files.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// The crate's folder: cargo runs tests there.
    pub(crate) folder: PathBuf,
}

/// Builds every test program and every binary that tests start.
pub(crate) fn build() -> Result<Vec<Binary>> {
    let output = Command::new("cargo")
        // `--tests` is libraries and binaries, too, but for those that say they have none.
        .args([
            "test",
            "--workspace",
            "--locked",
            "--no-run",
            "--quiet",
            "--tests",
        ])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut binaries: Vec<Binary> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter_map(|message: Value| binary(&message))
        .collect();
    binaries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(binaries)
}

fn binary(message: &Value) -> Option<Binary> {
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    let program = message["executable"].as_str().filter(|_| is_test)?;
    let folder = PathBuf::from(text(message, "manifest_path"))
        .parent()?
        .to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = text(&message["target"], "name");
    let name = match message["target"]["kind"][0].as_str() {
        Some("test") => format!("{package} {target}"),
        _ => package,
    };
    Some(Binary {
        name,
        program: program.into(),
        folder,
    })
}

/// Examples in documentation comments, compiled and run by rustdoc.
pub(crate) fn documentation(tally: &mut Tally) -> Result<()> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--locked", "--quiet", "--doc"])
        .output()
        .context("cargo does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        tally.add(
            "documentation tests",
            Outcome::Failed(format!("{text}\n{errors}")),
        );
        return Ok(());
    }
    tally.add_passed(text.lines().filter_map(passed).sum());
    Ok(())
}

/// How many tests a `test result:` line says passed.
pub(crate) fn passed(line: &str) -> Option<usize> {
    let (_, counts) = line.split_once("test result: ok. ")?;
    counts.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn libtest_counts_are_read() {
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(passed(line), Some(12));
        assert_eq!(passed("test result: FAILED. 11 passed; 1 failed"), None);
    }
}
