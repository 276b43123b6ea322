//! Programs that trials run: our own binary, and those of others.

use std::path::{Path, PathBuf};
use std::process::Command;

use datapath::Missing;
pub(crate) use testbed::agent;
use testbed::{HostSpec, Program};

/// The `lowroad` binary: beside this one, else in PATH.
pub(crate) fn lowroad() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join("lowroad")))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| Path::new("lowroad").to_path_buf())
}

/// A command of the `lowroad` binary.
pub(crate) fn lowroad_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(lowroad());
    command.args(arguments);
    command
}

/// What datapaths attach, change of networks and take of frames, and what they read of the kernel for it.
const CAPABILITIES: &[&str] = &["CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_PERFMON"];

/// A host in this environment that runs a [`payload`].
pub(crate) fn host(environment: &str) -> HostSpec {
    HostSpec::of(environment).may(CAPABILITIES)
}

/// A command of the `lowroad` binary on a host, whatever environment that is in. It is this machine's
/// binary everywhere, with the libraries that it is linked with: a static one would bring another C
/// library, and what that costs would pass for the environment's.
pub(crate) fn payload(arguments: &[&str]) -> Program {
    Program::new(lowroad()).args(arguments).may(CAPABILITIES)
}

/// Whether a program is in PATH; else what to install.
pub(crate) fn program(name: &str, remedy: &str) -> Result<(), Missing> {
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
