//! Programs that trials run: our own binary, and those of others.

use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use datapath::Missing;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
pub(crate) use testbed::agent;
use testbed::{HostSpec, Program};
use twox_hash::XxHash64;

/// A build of `lowroad`: the binary that trials start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lowroad(PathBuf);

impl Lowroad {
    /// The binary beside this one, else in PATH.
    pub(crate) fn own() -> Self {
        let path = std::env::current_exe()
            .ok()
            .and_then(|own| Some(own.parent()?.join("lowroad")))
            .filter(|path| path.is_file())
            .unwrap_or_else(|| Path::new("lowroad").to_path_buf());
        Self(path)
    }

    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A command on this machine itself.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(arguments);
        command
    }

    /// A command on a host, whatever environment that is in. It is this machine's binary everywhere, with the
    /// libraries that it is linked with: a static one would bring another C library, and what that costs would pass for
    /// the environment's.
    pub(crate) fn payload(&self, arguments: &[&str]) -> Program {
        Program::new(&self.0).args(arguments).may(CAPABILITIES)
    }
}

/// Capabilities of datapaths: to attach programs, change networks, receive frames and read the kernel's tables.
const CAPABILITIES: &[&str] = &["CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_PERFMON"];

/// A host in this environment that runs a [`Lowroad::payload`].
pub(crate) fn host(environment: &str) -> HostSpec {
    HostSpec::of(environment).may(CAPABILITIES)
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

/// CPU time of all children of this process that have ended, and of theirs.
pub(crate) fn children_cpu() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |value: TimeVal| {
        let seconds = u64::try_from(value.tv_sec()).unwrap_or(0);
        let micros = u64::try_from(value.tv_usec()).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// The hash of a file (XXH64, hexadecimal).
pub(crate) fn file_hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = XxHash64::with_seed(0);
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{:016x}", hasher.finish())),
            length => hasher.write(&piece[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_byte_makes_another_build() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut image = vec![7; 3 << 20];
        fs::write(&path, &image).unwrap();
        let before = file_hash(&path).unwrap();
        assert_eq!(file_hash(&path).unwrap(), before);
        image[2 << 20] ^= 1;
        fs::write(&path, &image).unwrap();
        assert_ne!(file_hash(&path).unwrap(), before);
    }
}
