//! rustfmt and clippy, as cargo runs them.

use anyhow::Result;

use crate::run;
use crate::tally::Outcome;

pub(super) fn rustfmt() -> Result<Outcome> {
    Ok(match run::quietly("cargo", &["fmt", "--all", "--check"]) {
        Ok(()) => Outcome::Passed,
        Err(_) => Outcome::Failed("run `cargo fmt --all`".to_owned()),
    })
}

pub(super) fn clippy() -> Result<Outcome> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "--deny=warnings",
    ];
    Ok(match run::quietly("cargo", &arguments) {
        Ok(()) => Outcome::Passed,
        Err(_) => Outcome::Failed("clippy's messages are above".to_owned()),
    })
}
