//! The first process: file systems, modules, and then only reaping what others leave behind.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::wait::wait;
use nix::unistd::Pid;

use crate::{MODULES, ORDER, SERVE};

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

/// Says something on the guest's console.
pub(crate) fn say(what: &str) {
    // Nobody is there who could be told that it cannot be said.
    let _ = fs::write("/dev/kmsg", format!("guest: {what}\n"));
}

/// Sets the guest up, starts the part that serves the host, and ends with it. The kernel then panics,
/// which is the guest's end.
pub(crate) fn run() -> io::Result<()> {
    for (kind, target) in MOUNTS {
        fs::create_dir_all(target)?;
        let none: Option<&str> = None;
        if let Err(errno) = mount(Some(kind), target, Some(kind), MsFlags::empty(), none) {
            say(&format!("mounting {target}: {errno}"));
        }
    }
    load_modules()?;
    let serving = Command::new("/proc/self/exe")
        .arg(SERVE)
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
            say(&format!("loading {name}: {errno}"));
        }
    }
    Ok(())
}
