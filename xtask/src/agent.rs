//! Builds netbench's agent: static, and as small as it may be in an image.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{lint, run};

/// The target that the agent is built for, which rustup provides.
fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Relative relocations take one bit each instead of 24 bytes, and constants are in the segment of the code instead of in
/// pages of their own. A linker that cannot do so says so and goes on.
const SMALL_LAYOUT: [&str; 2] = [
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
    "-Clink-arg=-Wl,-z,noseparate-code",
];

/// Builds it where `lowroad compare` looks for it: in a folder of its own beside every profile's. Returns
/// cargo's messages, with the lints' where the crates are to be linted.
pub(crate) fn build(with_lints: bool) -> Result<Vec<Value>> {
    let mut cargo = command();
    if with_lints {
        lint::enable(&mut cargo)?;
    }
    execute(&mut cargo, &[])
}

/// Builds it with more flags for the compiler, as it is handed out.
pub(crate) fn build_with(flags: &[String]) -> Result<Vec<Value>> {
    execute(&mut command(), flags)
}

fn command() -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args([
            "build",
            "--locked",
            "--quiet",
            "--package",
            "netbench-agent",
        ])
        .args(["--profile", "agent", "--target", &triple()]);
    cargo
}

fn execute(cargo: &mut Command, flags: &[String]) -> Result<Vec<Value>> {
    let mut all = SMALL_LAYOUT.map(str::to_owned).to_vec();
    all.extend_from_slice(flags);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", all.join("\x1f"));
    let triple = triple();
    run::build(cargo).with_context(|| {
        format!("the agent does not build; if {triple} is missing: rustup target add {triple}")
    })
}
