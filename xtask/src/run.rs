//! Runs other programs, with errors that name them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::text;

/// The standard output of a program that must succeed.
pub(crate) fn output<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{program} does not start"))?;
    if !output.status.success() {
        bail!("{program} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program with our own output; it must succeed.
pub(crate) fn quietly<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<()> {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{program} does not start"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// Runs a cargo command that builds, and returns its messages. Those of the compiler are printed where it
/// fails.
pub(crate) fn build(cargo: &mut Command) -> Result<Vec<Value>> {
    let output = cargo
        .arg("--message-format=json")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    let messages: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if !output.status.success() {
        for message in &messages {
            eprint!("{}", text(&message["message"], "rendered"));
        }
        bail!("cargo ended with {}", output.status);
    }
    Ok(messages)
}

/// Whether a program can be found.
pub(crate) fn exists(program: &str) -> bool {
    find(program).is_some()
}

/// Where a program is, also where administrators' programs live.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Files of the repository that are tracked or could be, with one of these endings.
pub(crate) fn sources(endings: &[&str]) -> Result<Vec<String>> {
    let listed = output(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    )?;
    Ok(listed
        .lines()
        .filter(|file| endings.iter().any(|ending| file.ends_with(ending)))
        .filter(|file| std::path::Path::new(file).is_file())
        .map(str::to_owned)
        .collect())
}
