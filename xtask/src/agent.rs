//! Builds netbench's agent: static, and as small as it may be in an image.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// What the agent is linked against, which rustup has.
fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds it where `lowroad compare` looks for it: in a folder of its own beside every profile's.
pub(crate) fn build() -> Result<()> {
    let triple = triple();
    let status = Command::new("cargo")
        .args([
            "build",
            "--locked",
            "--quiet",
            "--package",
            "netbench-agent",
        ])
        .args(["--profile", "agent", "--target", &triple])
        .status()
        .context("cargo does not start")?;
    if status.success() {
        return Ok(());
    }
    bail!("the agent does not build; if {triple} is missing: rustup target add {triple}");
}
