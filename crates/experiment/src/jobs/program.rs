//! Programs that trials run: our own binary, and those of others.

use std::path::{Path, PathBuf};
use std::process::Command;

use datapath::Missing;

/// The `lowroad` binary: beside this one, else in PATH.
pub(crate) fn lowroad() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join("lowroad")))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| Path::new("lowroad").to_path_buf())
}

/// A command of the `lowroad` binary.
pub(in crate::jobs) fn lowroad_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(lowroad());
    command.args(arguments);
    command
}

/// Whether a program is in PATH; else what to install.
pub(in crate::jobs) fn program(name: &str, remedy: &str) -> Result<(), Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(name).is_file());
    if found {
        Ok(())
    } else {
        Err(Missing::new(format!("{name} is not installed"), remedy))
    }
}
