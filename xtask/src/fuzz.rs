//! Runs the fuzz targets of `fuzz/` with libFuzzer, built by the stable compiler.
//!
//! cargo-fuzz needs a nightly compiler for its sanitizers. Coverage alone does not: rustc takes LLVM's pass on stable,
//! and the targets find panics, failed assertions, overflows, hangs and memory without bound. Only the crates with
//! parsers are instrumented, by this program in the place of rustc, so that all others are those of the tests.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::metadata::text;
use crate::tally::{Outcome, Tally};
use crate::{Usage, run};

const FOLDER: &str = "fuzz";
/// Of each target in a run of all tests. `cargo xtask fuzz --seconds N` fuzzes longer.
const DEFAULT_SECONDS: u32 = 10;
/// The variable under which this program is rustc.
const COMPILER: &str = "LOWROAD_FUZZ_COMPILER";
/// The crates to instrument: those that `fuzz/Cargo.toml` names, and the parser of their settings. None of them is linked into a build script.
const PARSER_CRATES: [&str; 9] = [
    "control",
    "features",
    "fuzz",
    "nats",
    "packet",
    "relay",
    "replicate",
    "report",
    "router",
];
/// The flags of LLVM's pass that libFuzzer needs. Cargo does not know them: remove `target` after a change.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// An input of a few kilobytes must not take more than this, on a machine that does other work too.
const TIMEOUT: Duration = Duration::from_secs(60);
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
    let is_known = |name: &&&str| targets.iter().any(|target| target.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let known = known.join(", ");
        return Err(Usage(format!(
            "no target is called {unknown:?}; there are: {known}"
        ))
        .into());
    }
    let mut tally = Tally::default();
    let wanted = |target: &&Target| names.is_empty() || names.contains(&target.name.as_str());
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
    targets: impl Iterator<Item = &'a Target> + Clone,
    seconds: u32,
) -> Result<()> {
    build(targets.clone())?;
    for target in targets {
        let outcome = fuzz_target(&target.name, seconds)?;
        tally.add(&format!("fuzz {}", target.name), outcome);
    }
    Ok(())
}

/// A program of `fuzz/`, and the features of the package that it needs.
struct Target {
    name: String,
    features: Vec<String>,
}

/// The targets that `fuzz/Cargo.toml` lists.
fn targets() -> Result<Vec<Target>> {
    let manifest = Path::new(FOLDER).join("Cargo.toml");
    let manifest = manifest.to_str().context("a path in UTF-8")?;
    let metadata = run::output(
        "cargo",
        &[
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--manifest-path",
            manifest,
        ],
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let all = metadata["packages"][0]["targets"].as_array();
    let all = all.context("cargo metadata lists no targets")?.iter();
    let programs = all.filter(|target| target["kind"][0] == "bin");
    Ok(programs
        .map(|target| Target {
            name: text(target, "name").to_owned(),
            features: words(&target["required-features"]),
        })
        .collect())
}

fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

/// Builds with the profiles of the workspace and beside its programs, so that dependencies are compiled once.
fn build<'a>(targets: impl Iterator<Item = &'a Target>) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(FOLDER);
    cargo.args(["build", "--locked", "--quiet"]);
    cargo.args(["--config", "../Cargo.toml", "--target-dir", "../target"]);
    for target in targets {
        cargo.args(["--bin", &target.name]);
        cargo.args(["--features", &target.features.join(",")]);
    }
    let own = std::env::current_exe().context("this program")?;
    cargo.env("RUSTC_WRAPPER", own).env(COMPILER, "1");
    run::build(&mut cargo).context("the fuzz targets do not build")?;
    Ok(())
}

/// Whether this process was started in the place of rustc.
pub(crate) fn is_compiler() -> bool {
    std::env::var_os(COMPILER).is_some()
}

/// Compiles with the rustc named first. Returns an error only where it does not start.
pub(crate) fn compile() -> Result<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (rustc, arguments) = arguments.split_first().context("no rustc is named")?;
    let mut compiler = Command::new(rustc);
    compiler.args(arguments);
    if is_instrumented(arguments) {
        compiler.args(COVERAGE);
    }
    Err(compiler.exec()).context("rustc does not start")
}

fn is_instrumented(arguments: &[OsString]) -> bool {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let own = folder
        .as_deref()
        .and_then(|folder| folder.strip_prefix(crate::root()).ok());
    let name = own.and_then(|folder| folder.file_name()?.to_str());
    name.is_some_and(|name| PARSER_CRATES.contains(&name))
        && !arguments.iter().any(|word| word == "build_script_build")
}

fn fuzz_target(target: &str, seconds: u32) -> Result<Outcome> {
    let program = Path::new("target/debug").join(target);
    let corpus = Path::new("corpus").join(target);
    // New inputs stay in the ignored folder; those of `corpus/` are in the repository.
    let found = Path::new("target/corpus").join(target);
    for folder in [&corpus, &found, &Path::new("artifacts").to_owned()] {
        let folder = Path::new(FOLDER).join(folder);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let mut fuzzer = Command::new(crate::root().join(program));
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
