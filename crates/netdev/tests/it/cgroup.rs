//! BPF programs on the cgroup of this process.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_rs::libbpf_sys;
use netdev::policy::{AddressKind, Check, Flow, PolicyMonitor, Verdict};
use nix::sched::{CloneFlags, unshare};

use crate::common::{ip, program};

/// A cgroup below the one of this process, which it is in.
struct Cgroup {
    folder: PathBuf,
    before: PathBuf,
}

impl Cgroup {
    /// None where the hierarchy cannot be mounted or takes no more groups.
    fn enter(mount: &Path) -> Option<Self> {
        let status = Command::new("mount")
            .args(["-t", "cgroup2", "none"])
            .arg(mount)
            .status();
        if !status.unwrap().success() {
            return None;
        }
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let before = mount.join(path);
        let folder = before.join(format!("lowroad-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Self { folder, before };
        group.move_to(&group.folder).ok()?;
        Some(group)
    }

    fn move_to(&self, folder: &Path) -> std::io::Result<()> {
        let process = std::process::id().to_string();
        fs::write(folder.join("cgroup.procs"), process)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = self.move_to(&self.before);
        let _ = fs::remove_dir(&self.folder);
    }
}

fn verdicts(monitor: &mut PolicyMonitor) -> [Verdict; 2] {
    monitor.refresh();
    let flow = Flow {
        source: (ip("10.0.0.1"), 32),
        source_port: Some(9),
        destination: ip("10.0.0.2"),
        destination_kind: AddressKind::Unicast,
        destination_port: 9,
        user: None,
        ingress: None,
        egress: None,
    };
    [Check::CgroupIngress, Check::CgroupEgress].map(|check| monitor.at(check, &flow))
}

#[test]
fn programs_of_the_cgroup_decide_about_sockets() {
    if !sys::require::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The mount is this thread's alone.
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = Command::new("mount")
        .args(["--make-rprivate", "/"])
        .status();
    assert!(private.unwrap().success());
    let Some(group) = Cgroup::enter(folder.path()) else {
        return;
    };
    let mut monitor = PolicyMonitor::new().unwrap();
    assert_eq!(verdicts(&mut monitor), [Verdict::Accept, Verdict::Accept]);
    let opened = fs::File::open(&group.folder).unwrap();
    let accepting: OwnedFd = program(libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB, 1);
    let hook = libbpf_sys::BPF_CGROUP_INET_EGRESS;
    // SAFETY: takes two descriptors and no pointers.
    let attached = unsafe {
        libbpf_sys::bpf_prog_attach(
            accepting.as_raw_fd(),
            opened.as_raw_fd(),
            hook,
            libbpf_sys::BPF_F_ALLOW_MULTI,
        )
    };
    assert_eq!(attached, 0);
    let reason = "the BPF program test of this process's cgroup".to_owned();
    assert_eq!(
        verdicts(&mut monitor),
        [Verdict::Accept, Verdict::Kernel(reason)]
    );
    // SAFETY: takes two descriptors and no pointers.
    let detached =
        unsafe { libbpf_sys::bpf_prog_detach2(accepting.as_raw_fd(), opened.as_raw_fd(), hook) };
    assert_eq!(detached, 0);
    assert_eq!(verdicts(&mut monitor), [Verdict::Accept, Verdict::Accept]);
}
