//! The router's lookups on another processor: built for 64-bit ARM and run under qemu's emulation.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::passed;
use crate::run;
use crate::tally::{Outcome, Tally};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian puts the C library of that processor.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// The crates with code for each processor.
const CRATES: [&str; 3] = ["prefix", "lpm", "acl"];

pub(super) fn test(tally: &mut Tally) -> Result<()> {
    run::quietly("rustup", &["--quiet", "target", "add", TARGET])?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked", "--quiet", "--tests", "--target", TARGET]);
    cargo.args(CRATES.iter().flat_map(|name| ["-p", name]));
    let variable = |what| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{what}");
    let output = cargo
        .env(variable("LINKER"), LINKER)
        .env(variable("RUNNER"), format!("{EMULATOR} -L {LIBRARIES}"))
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        tally.add_passed(text.lines().filter_map(passed).sum());
    } else {
        tally.add("aarch64", Outcome::Failed(text.into_owned()));
    }
    Ok(())
}
