//! BPF programs that decide about what the sockets of this process send and receive.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;

use libbpf_rs::libbpf_sys::{
    BPF_CGROUP_INET_EGRESS, BPF_CGROUP_INET_INGRESS, BPF_CGROUP_UDP4_SENDMSG,
    BPF_CGROUP_UDP6_SENDMSG, BPF_F_QUERY_EFFECTIVE, bpf_attach_type,
};

use super::Verdict;
use crate::program;

const RECEIVE: [bpf_attach_type; 1] = [BPF_CGROUP_INET_INGRESS];
const SEND: [bpf_attach_type; 3] = [
    BPF_CGROUP_INET_EGRESS,
    BPF_CGROUP_UDP4_SENDMSG,
    BPF_CGROUP_UDP6_SENDMSG,
];

/// The programs on the cgroup of this process and those above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupPrograms {
    receive: Option<String>,
    send: Option<String>,
}

impl CgroupPrograms {
    /// Those that hold now. None are found where the hierarchy of cgroups is not mounted.
    pub(super) fn read() -> Self {
        let Some(cgroup) = own_cgroup() else {
            return Self::default();
        };
        let first = |hooks: &[bpf_attach_type]| {
            hooks.iter().find_map(|hook| {
                let ids = program::attached(cgroup.as_raw_fd(), *hook, BPF_F_QUERY_EFFECTIVE);
                match ids {
                    Ok(ids) => {
                        let id = *ids.first()?;
                        Some(program::name(id).unwrap_or_else(|| id.to_string()))
                    }
                    // A kernel that attaches none here.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
                    Err(error) => Some(format!("(unknown: {error})")),
                }
            })
        };
        Self {
            receive: first(&RECEIVE),
            send: first(&SEND),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receive.is_none() && self.send.is_none()
    }

    /// What they do with packets that the sockets receive.
    pub(super) fn on_receive(&self) -> Verdict {
        verdict(self.receive.as_deref())
    }

    /// What they do with packets that the sockets send.
    pub(super) fn on_send(&self) -> Verdict {
        verdict(self.send.as_deref())
    }
}

fn verdict(program: Option<&str>) -> Verdict {
    match program {
        Some(name) => Verdict::Kernel(format!("the BPF program {name} of this process's cgroup")),
        None => Verdict::Accept,
    }
}

/// The folder of this process in the hierarchy of cgroup version 2.
fn own_cgroup() -> Option<File> {
    let groups = fs::read_to_string("/proc/thread-self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    // The fields up to a lone hyphen end with options; the type of the file system follows it.
    let mount = mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup2 ").then_some((root, point))
    });
    let (root, point) = mount?;
    // A mount may show a part of the hierarchy only.
    let within = path.strip_prefix(root.trim_end_matches('/'))?;
    File::open(format!("{point}{within}")).ok()
}
