//! Builds the programs that are handed out, with link-time optimisation, and says how large they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The profile of Cargo.toml, which also names the folder below target/.
const PROFILE: &str = "dist";

/// A program and the package that builds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) package: &'static str,
    pub(crate) name: &'static str,
}

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        package: "lowroad",
        name: "lowroad",
    },
    Program {
        package: "compare",
        name: "lowroad-compare",
    },
    Program {
        package: "onnx",
        name: "lowroad-onnx",
    },
];

impl Program {
    /// Where `build` puts it.
    pub(crate) fn path(self) -> PathBuf {
        Path::new("target").join(PROFILE).join(self.name)
    }

    /// Its size in bytes, once it is built.
    pub(crate) fn size(self) -> Result<u64> {
        let path = self.path();
        let file = path
            .metadata()
            .with_context(|| path.display().to_string())?;
        Ok(file.len())
    }
}

/// Builds every program of `PROGRAMS`.
pub(crate) fn build() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--profile", PROFILE]);
    for program in PROGRAMS {
        cargo.args(["--package", program.package, "--bin", program.name]);
    }
    let status = cargo.status().context("cargo does not start")?;
    if !status.success() {
        bail!("the programs do not build");
    }
    Ok(())
}

/// `cargo xtask dist`.
pub(crate) fn run() -> Result<()> {
    build()?;
    for program in PROGRAMS {
        println!(
            "{:>6.1} MB  {}",
            megabytes(program.size()?),
            program.path().display()
        );
    }
    Ok(())
}

/// Bytes in MB (10^6), for display.
#[expect(clippy::cast_precision_loss, reason = "sizes of files are below 2^52")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
