//! How long the tests take: what the forge runs, and those of one crate.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::build;
use crate::tally::{Outcome, Tally};

/// The most seconds of `.ci/run` on two cores, with an empty cache and with the cache of an earlier run.
const CI_EMPTY: f64 = 2400.0;
const CI_CACHED: f64 = 1500.0;

/// The most seconds of `./test CRATE` on two cores, after all was built.
const CRATE: f64 = 120.0;

/// A clone, and a cache of its own; removed before and after a weighing.
const FOLDER: &str = "target/weight/ci";
const CACHE: &str = "target/weight/ci-cache";

/// Runs `.ci/run` of HEAD with an empty cache, and once more with the cache that this leaves if `cached` says so.
pub(super) fn weigh_ci(tally: &mut Tally, cached: bool) -> Result<()> {
    let cache = crate::root().join(CACHE);
    build::remove(&cache)?;
    std::fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
    ci(tally, "with an empty cache", &cache, CI_EMPTY)?;
    if cached {
        ci(tally, "with a cache", &cache, CI_CACHED)?;
    }
    build::remove(&cache)
}

fn ci(tally: &mut Tally, how: &str, cache: &Path, limit: f64) -> Result<()> {
    let folder = crate::root().join(FOLDER);
    build::remove(&folder)?;
    build::checkout("HEAD", &folder)?;
    let mut command = Command::new("./.ci/run");
    command.current_dir(&folder).env("XDG_CACHE_HOME", cache);
    measure(tally, &format!(".ci/run {how}"), &mut command, limit)?;
    build::remove(&folder)
}

/// Runs `./test` of a crate, for the second time.
pub(super) fn weigh_crate(tally: &mut Tally, name: &str) -> Result<()> {
    let test = || {
        let mut command = Command::new("./test");
        command.arg(name);
        command
    };
    let ended = run(&mut test())?;
    let what = format!("./test {name}");
    if let Some(failure) = ended {
        tally.add(&format!("weight: {what}"), Outcome::Failed(failure));
        return Ok(());
    }
    measure(tally, &what, &mut test(), CRATE)
}

/// Adds whether a command succeeds within `limit` seconds.
fn measure(tally: &mut Tally, what: &str, command: &mut Command, limit: f64) -> Result<()> {
    let mut failure = None;
    let cost = build::measure(|| {
        failure = run(command)?;
        Ok(())
    })?;
    let text = format!(
        "{:.0} s of at most {limit:.0} s on two cores ({:.0} s of CPU time)",
        cost.wall, cost.cpu
    );
    println!("{what}: {text}");
    let outcome = match failure {
        Some(failure) => Outcome::Failed(failure),
        None if cost.wall <= limit => Outcome::Passed,
        None => Outcome::Failed(text),
    };
    tally.add(&format!("weight: {what}"), outcome);
    Ok(())
}

/// Runs a command that builds into the target folder of its checkout; returns how it failed.
fn run(command: &mut Command) -> Result<Option<String>> {
    let status = command
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{} does not start", command.get_program().display()))?;
    Ok((!status.success()).then(|| format!("it ended with {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_held_to_their_limits() {
        let failed = |script: &str, limit| {
            let mut tally = Tally::default();
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            measure(&mut tally, script, &mut command, limit).unwrap();
            tally.failed()
        };
        assert_eq!(failed("true", 60.0), 0);
        assert_eq!(failed("true", 0.0), 1);
        assert_eq!(failed("exit 3", 60.0), 1);
    }
}
