//! Installs the packages on a fresh system, and runs what they install.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::options::PACKAGES;
use crate::tally::{Outcome, Tally};

/// What `scripts/fresh-debian.sh` shows to the system as /results.
const RESULTS: &str = "target/fresh-debian";

/// `cargo xtask dist check-install`.
pub(super) fn check(suite: Option<&str>) -> Result<Tally> {
    let packages = Path::new(PACKAGES);
    if !packages.join("SHA256SUMS").is_file() {
        bail!("{PACKAGES} has no packages: cargo xtask dist");
    }
    let visible = Path::new(RESULTS).join("packages");
    fs::create_dir_all(&visible).with_context(|| visible.display().to_string())?;
    for file in fs::read_dir(packages).with_context(|| packages.display().to_string())? {
        let file = file?;
        fs::copy(file.path(), visible.join(file.file_name()))
            .with_context(|| file.path().display().to_string())?;
    }
    let suite = suite.unwrap_or("bookworm");
    let status = Command::new("scripts/fresh-debian.sh")
        .args([
            "--suite",
            suite,
            "scripts/check-install.sh",
            "/results/packages",
        ])
        .status()
        .context("scripts/fresh-debian.sh does not start")?;
    let mut tally = Tally::default();
    let outcome = match status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!("scripts/fresh-debian.sh ended with {status}")),
    };
    tally.add(&format!("packages on {suite}"), outcome);
    tally.close();
    Ok(tally)
}
