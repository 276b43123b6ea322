//! Runs other programs, with errors that name them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

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
