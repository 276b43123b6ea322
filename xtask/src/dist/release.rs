//! Names a release: version, commit, time, and the machines that it is for.

use std::env::consts::ARCH;

use anyhow::{Context, Result};

use crate::metadata::{self, packages, text};
use crate::run;

#[derive(Clone, Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// The commit, with `-dirty` where tracked files differ from it.
    pub(super) commit: String,
    /// Seconds since 1970: the time of every file in the archives.
    pub(super) epoch: u64,
}

impl Release {
    /// The workspace's version, and what is checked out.
    pub(super) fn of_checkout() -> Result<Self> {
        let metadata = metadata::load(false)?;
        let lowroad = packages(&metadata).find(|package| text(package, "name") == "lowroad");
        let version = text(lowroad.context("no package is called lowroad")?, "version").to_owned();
        let mut commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        if !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            commit += "-dirty";
        }
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => seconds,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let epoch = epoch
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH: {epoch:?} is not a number of seconds"))?;
        Ok(Self {
            version,
            commit,
            epoch,
        })
    }

    /// The name of the folder in the tarball.
    pub(super) fn folder(&self) -> String {
        format!("lowroad-{}-{ARCH}-linux-gnu", self.version)
    }

    pub(super) fn tarball(&self) -> String {
        format!("{}.tar.gz", self.folder())
    }

    pub(super) fn debian_package(&self) -> String {
        format!("lowroad_{}_{}.deb", self.version, debian_architecture())
    }
}

/// Debian's name of this machine's architecture.
pub(super) fn debian_architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn git(arguments: &[&str]) -> Result<String> {
    let root = crate::root().display().to_string();
    let arguments = [&["-C", root.as_str()], arguments].concat();
    Ok(run::output("git", &arguments)?.trim().to_owned())
}
