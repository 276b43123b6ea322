//! Lists the experiments that ship, and finds the commit that `--version` names: the one in `LOWROAD_COMMIT`, else for optimised builds the one that git has
//! checked out. Unoptimised builds name none, so that a commit does not compile the programs again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The experiments that ship are the TOML files in this folder, and their names those of the files.
const EXPERIMENTS: &str = "../../experiments";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LOWROAD_COMMIT");
    let commit = match env::var("LOWROAD_COMMIT") {
        Ok(commit) => Some(commit),
        Err(_) if env::var("PROFILE").as_deref() == Ok("release") => checked_out(),
        Err(_) => None,
    };
    let commit = commit.filter(|commit| !commit.is_empty());
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    let version = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo:rustc-env=LOWROAD_VERSION={version}");
    println!("cargo:rerun-if-changed={EXPERIMENTS}");
    println!(
        "cargo:rustc-env=LOWROAD_EXPERIMENTS={}",
        experiments().join(",")
    );
}

/// The names of the experiments, sorted.
fn experiments() -> Vec<String> {
    let entries = fs::read_dir(EXPERIMENTS).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    let names = files.iter().filter_map(|path| path.file_stem()?.to_str());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// The commit, if git has checked out this repository; the script runs again after another checkout or commit.
fn checked_out() -> Option<String> {
    // A release unpacked below another repository is not of that repository's commit.
    let package = git(&["rev-parse", "--show-prefix"])?;
    if package != "crates/arguments/" {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    let watched = match Path::new(&log).is_file() {
        true => log,
        false => git(&["rev-parse", "--git-path", "HEAD"])?,
    };
    println!("cargo:rerun-if-changed={watched}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// A line of git's output; none without git, or without a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
