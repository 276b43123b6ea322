//! Programs that trials run: our own binary, and those of others.

use std::path::{Path, PathBuf};
use std::process::Command;

use datapath::Missing;
use testbed::{HostSpec, Program};

/// The `lowroad` binary: beside this one, else in PATH.
pub(crate) fn lowroad() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join("lowroad")))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| Path::new("lowroad").to_path_buf())
}

/// The agent of netbench: the file that `LOWROAD_AGENT` names, else where a build puts it, else beside this
/// program.
pub(in crate::jobs) fn agent() -> Result<PathBuf, Missing> {
    if let Some(named) = std::env::var_os("LOWROAD_AGENT").map(PathBuf::from) {
        return match named.is_file() {
            true => Ok(named),
            false => Err(Missing::new(
                format!("LOWROAD_AGENT: {} is no file", named.display()),
                "cargo xtask agent, and leave it unset",
            )),
        };
    }
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or_else(|| Path::new("."));
    [
        folder.join("..").join(triple).join("agent"),
        folder.to_path_buf(),
    ]
    .iter()
    .map(|folder| folder.join("netbench-agent"))
    .find(|file| file.is_file())
    .ok_or_else(|| Missing::new("netbench-agent is not built", "cargo xtask agent"))
}

/// A command of the `lowroad` binary.
pub(in crate::jobs) fn lowroad_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(lowroad());
    command.args(arguments);
    command
}

/// What datapaths attach, change of networks and take of frames, and what they read of the kernel for it.
const CAPABILITIES: &[&str] = &["CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_PERFMON"];

/// A host in this environment that runs a [`payload`].
pub(in crate::jobs) fn host(environment: &str) -> HostSpec {
    HostSpec::of(environment).may(CAPABILITIES)
}

/// A command of the `lowroad` binary on a host, whatever environment that is in. It is this machine's
/// binary everywhere, with the libraries that it is linked with: a static one would bring another C
/// library, and what that costs would pass for the environment's.
pub(in crate::jobs) fn payload(arguments: &[&str]) -> Program {
    Program::new(lowroad()).args(arguments).may(CAPABILITIES)
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
