//! Takes BPF programs off devices, as another program would.

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_rs::libbpf_sys;

/// Detaches the links of one type (`xdp`, `tcx`) that a process has on a device, as `bpftool link detach` does. Returns how
/// many it had. Only that process's links count: devices of other namespaces have the same index.
///
/// # Panics
/// Where a link cannot be detached.
#[must_use]
pub fn detach(process: u32, link_type: &str, ifindex: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let ids = descriptors.filter_map(|descriptor| {
        // It may have been closed since.
        let text = fs::read_to_string(descriptor.ok()?.path()).ok()?;
        let field = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.trim().to_owned());
            text.lines().find_map(value)
        };
        let is_wanted =
            field("link_type:")? == link_type && field("ifindex:")?.parse() == Ok(ifindex);
        is_wanted.then(|| field("link_id:")?.parse().ok()).flatten()
    });
    let ids: Vec<u32> = ids.collect();
    for id in &ids {
        // SAFETY: takes no pointers.
        let descriptor = unsafe { libbpf_sys::bpf_link_get_fd_by_id(*id) };
        assert!(descriptor >= 0, "link {id} is gone");
        // SAFETY: the descriptor was just made, and has no other owner.
        let link = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: takes no pointers.
        let result = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
        assert_eq!(result, 0, "link {id}");
    }
    ids.len()
}
