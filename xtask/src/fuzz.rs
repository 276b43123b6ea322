//! Runs the fuzz targets of `fuzz/` with libFuzzer, built by the stable compiler.
//!
//! cargo-fuzz needs a nightly compiler for its sanitizers. Coverage alone does not: rustc takes LLVM's pass on stable,
//! and the targets find panics, failed assertions, overflows, hangs and memory without bound.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tally::{Outcome, Tally};
use crate::{Usage, run};

const FOLDER: &str = "fuzz";
/// Of each target in a run of all tests. `cargo xtask fuzz --seconds N` fuzzes longer.
const DEFAULT_SECONDS: u32 = 10;
/// The flags of LLVM's pass that libFuzzer needs.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";
/// An input of a few kilobytes must not take more than this.
const TIMEOUT: Duration = Duration::from_secs(10);
const MEMORY_MIB: u32 = 1024;
const MAX_LENGTH: u32 = 8192;

/// `cargo xtask fuzz [--seconds N] [TARGET..]`.
pub(crate) fn run(arguments: &[&str]) -> Result<Tally> {
    let (seconds, names) = match arguments {
        ["--seconds", seconds, names @ ..] => {
            let wrong = || Usage(format!("--seconds takes a number, not {seconds:?}"));
            (seconds.parse().map_err(|_| wrong())?, names)
        }
        names => (DEFAULT_SECONDS, names),
    };
    let targets = targets()?;
    if let Some(unknown) = names.iter().find(|name| !targets.iter().any(|one| one == *name)) {
        let known = targets.join(", ");
        return Err(Usage(format!("no target is called {unknown:?}; there are: {known}")).into());
    }
    let mut tally = Tally::default();
    let wanted = |target: &&String| names.is_empty() || names.contains(&target.as_str());
    fuzz(&mut tally, targets.iter().filter(wanted), seconds)?;
    tally.close();
    Ok(tally)
}

/// Every target for a short time.
pub(crate) fn run_all(tally: &mut Tally) -> Result<()> {
    fuzz(tally, targets()?.iter(), DEFAULT_SECONDS)
}

fn fuzz<'a>(
    tally: &mut Tally,
    targets: impl Iterator<Item = &'a String> + Clone,
    seconds: u32,
) -> Result<()> {
    build(targets.clone())?;
    for target in targets {
        let name = format!("fuzz {target}");
        let outcome = fuzz_target(target, seconds)?;
        tally.add(&name, outcome);
    }
    Ok(())
}

/// The targets that `fuzz/Cargo.toml` lists.
fn targets() -> Result<Vec<String>> {
    let manifest = Path::new(FOLDER).join("Cargo.toml");
    let manifest = manifest.to_str().context("a path in UTF-8")?;
    let metadata = run::output(
        "cargo",
        &["metadata", "--format-version=1", "--no-deps", "--manifest-path", manifest],
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let all = metadata["packages"][0]["targets"].as_array();
    let all = all.context("cargo metadata lists no targets")?.iter();
    let programs = all.filter(|target| target["kind"][0] == "bin");
    Ok(programs
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect())
}

/// The target triple keeps the flags away from build scripts and procedural macros.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn build<'a>(targets: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(FOLDER);
    cargo.args(["build", "--locked", "--quiet", "--release", "--target", &triple()]);
    for target in targets {
        cargo.args(["--bin", target]);
    }
    // The flags of the workspace are those of a release build; these are for fuzzing alone.
    let flags = triple().to_uppercase().replace('-', "_");
    cargo.env(format!("CARGO_TARGET_{flags}_RUSTFLAGS"), COVERAGE);
    run::build(&mut cargo).context("the fuzz targets do not build")?;
    Ok(())
}

fn fuzz_target(target: &str, seconds: u32) -> Result<Outcome> {
    let program = Path::new("target").join(triple()).join("release").join(target);
    let corpus = Path::new("corpus").join(target);
    // New inputs stay in the ignored folder; those of `corpus/` are in the repository.
    let found = Path::new("target/corpus").join(target);
    for folder in [&corpus, &found, &Path::new("artifacts").to_owned()] {
        let folder = Path::new(FOLDER).join(folder);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let mut fuzzer = Command::new(Path::new(FOLDER).canonicalize()?.join(program));
    fuzzer
        .current_dir(FOLDER)
        .args([&found, &corpus])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={}", TIMEOUT.as_secs()))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-max_len={MAX_LENGTH}"))
        .arg(format!("-artifact_prefix=artifacts/{target}-"))
        .arg("-print_final_stats=1");
    let output = fuzzer.output().with_context(|| target.to_owned())?;
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    let log = String::from_utf8_lossy(&output.stderr);
    Ok(Outcome::Failed(last_lines(&log)))
}

/// What libFuzzer says about a failure is at the end.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
