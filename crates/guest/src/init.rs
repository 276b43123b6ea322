//! The first process: file systems, modules, and then only reaping what others leave behind.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::wait::wait;
use nix::unistd::Pid;

use crate::{HOLD, MODULES, ORDER, SERVE};

/// Kind of file system and where it is mounted.
const MOUNTS: [(&str, &str); 7] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
];

/// Whether this file system is one that a host has packed for a guest.
pub(crate) fn is_guest() -> bool {
    Path::new(MODULES).join(ORDER).exists()
}

/// Whether the first process is this same program, which then does only its host's work.
pub(crate) fn is_first() -> bool {
    let file = |of: &str| fs::metadata(of).map(|file| (file.dev(), file.ino())).ok();
    let own = file("/proc/self/exe");
    own.is_some() && own == file("/proc/1/exe")
}

/// Writes a line to the guest's console, in a container to standard error.
pub(crate) fn log(what: &str) {
    let line = format!("guest: {what}\n");
    // There is nowhere left to report that this failed.
    let _ = fs::write("/dev/kmsg", &line).or_else(|_| io::stderr().write_all(line.as_bytes()));
}

/// Sets the guest up, starts the part that serves the host, and ends with it. The kernel then panics,
/// which is the guest's end.
pub(crate) fn run() -> io::Result<()> {
    for (kind, target) in MOUNTS {
        fs::create_dir_all(target)?;
        let none: Option<&str> = None;
        if let Err(errno) = mount(Some(kind), target, Some(kind), MsFlags::empty(), none) {
            log(&format!("mounting {target}: {errno}"));
        }
    }
    load_modules()?;
    serve(&[SERVE])
}

/// The same in a container, whose engine has set it up: its end is the container's.
pub(crate) fn hold() -> io::Result<()> {
    serve(&[SERVE, HOLD])
}

/// Starts the part that serves the host, and reaps until that ends.
fn serve(words: &[&str]) -> io::Result<()> {
    let serving = Command::new("/proc/self/exe")
        .args(words)
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/")
        .spawn()?;
    let serving = Pid::from_raw(serving.id().cast_signed());
    loop {
        match wait() {
            Ok(ended) if ended.pid() == Some(serving) => return Ok(()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn load_modules() -> io::Result<()> {
    let folder = Path::new(MODULES);
    for name in fs::read_to_string(folder.join(ORDER))?.lines() {
        let module = File::open(folder.join(name))?;
        // One that does not load is missed by what needs it, which says so better.
        if let Err(errno) = finit_module(&module, c"", ModuleInitFlags::empty()) {
            log(&format!("loading {name}: {errno}"));
        }
    }
    Ok(())
}
