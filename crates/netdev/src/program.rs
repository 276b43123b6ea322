//! BPF programs that are attached somewhere, whoever attached them.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::libbpf_sys;

/// Programs of this project, which look at packets or take those of a relay's streams.
const OWN: [&str; 8] = [
    "relay_ingress",
    "count_flows",
    "disturb",
    "stamp_departure",
    "match_arrival_0",
    "match_arrival_1",
    "match_arrival_2",
    "match_arrival_3",
];
/// More programs than one attachment point takes (`BPF_MPROG_MAX`, `BPF_CGROUP_MAX_PROGS`).
const MAX_PROGRAMS: u32 = 64;

/// The ids of the programs of this project that this process attaches. The kernel tells the name of a program by its id only
/// to those who have `CAP_SYS_ADMIN`, which a service does not have.
static OWN_IDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The ids of the programs at an attachment point: of the device or the cgroup `target`.
///
/// # Errors
/// `EINVAL` where the kernel has no such attachment points.
pub(crate) fn attached(
    target: i32,
    hook: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<Vec<u32>> {
    let mut ids = vec![0; MAX_PROGRAMS as usize];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        query_flags: flags,
        prog_ids: ids.as_mut_ptr(),
        __bindgen_anon_1: libbpf_sys::bpf_prog_query_opts__bindgen_ty_1 {
            prog_cnt: MAX_PROGRAMS,
        },
        ..Default::default()
    };
    // SAFETY: `options` is as long as it says, `ids` has room for the count it names, and both outlive the call.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(target, hook, &raw mut options) };
    if result < 0 && result != -libc::ENOSPC {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: both names of the union are the same integer.
    let count = unsafe { options.__bindgen_anon_1.prog_cnt } as usize;
    ids.truncate(count);
    Ok(ids)
}

/// The name of a program; none when it is gone or may not be looked at.
pub(crate) fn name(id: u32) -> Option<String> {
    // SAFETY: takes no pointers.
    let descriptor = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor was just made, and has no other owner.
    let program = unsafe { OwnedFd::from_raw_fd(descriptor) };
    name_in(&info(program.as_fd())?)
}

fn name_in(info: &libbpf_sys::bpf_prog_info) -> Option<String> {
    let bytes = info.name.map(|character| character.to_ne_bytes()[0]);
    let name = CStr::from_bytes_until_nul(&bytes).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// What the kernel says of a program that is open; none if it refuses.
fn info(program: BorrowedFd<'_>) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = u32::try_from(size_of_val(&info)).ok()?;
    // SAFETY: `info` has room for `length` bytes, asks for no lists, and outlives the call.
    let failed = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length)
    };
    (failed >= 0).then_some(info)
}

/// Remembers a program that this process is about to attach.
pub(crate) fn remember(program: BorrowedFd<'_>) {
    let Some(info) = info(program) else {
        return;
    };
    if name_in(&info).is_some_and(|name| OWN.contains(&name.as_str())) {
        let mut attached = OWN_IDS.lock().unwrap_or_else(PoisonError::into_inner);
        attached.insert(info.id);
    }
}

/// Whether a program is one of this project: this process attached it, or its name says so.
pub(crate) fn is_own(id: u32) -> bool {
    let attached = OWN_IDS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_attached = attached.contains(&id);
    drop(attached);
    is_attached || name(id).is_some_and(|name| OWN.contains(&name.as_str()))
}
