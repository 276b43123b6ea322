//! Programs on devices: attached by a link that ends with its owner, or by a clsact filter where
//! the kernel has no tcx.
//!
//! The mode is always the one that was asked for: no mode is chosen or replaced silently.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use crate::clsact::Filter;
use crate::{Error, Netlink, XdpMode, program};

/// Which side of a device a tc program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ingress,
    Egress,
}

/// How a tc program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcVia {
    /// By a link (Linux 6.6): it ends with its owner, even a killed one.
    Tcx,
    /// By a filter: `lowroad clean` removes what a killed owner leaves.
    Clsact,
}

impl TcVia {
    /// `tcx`, `tc-clsact`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "tc-clsact",
        }
    }
}

/// An attached program. Dropping it detaches the program.
#[derive(Debug)]
pub struct Attachment {
    pub ifindex: u32,
    handle: Handle,
}

#[derive(Debug)]
enum Handle {
    Xdp { mode: XdpMode, link: OwnedFd },
    Tcx { link: OwnedFd },
    Clsact { filter: Filter },
}

impl Attachment {
    /// The hook and its mode: `native`, `generic`, `tcx`, `tc-clsact`.
    pub fn mode(&self) -> &'static str {
        match &self.handle {
            Handle::Xdp { mode, .. } => mode.name(),
            Handle::Tcx { .. } => TcVia::Tcx.name(),
            Handle::Clsact { .. } => TcVia::Clsact.name(),
        }
    }

    /// Whether it still is: another program may have detached it, or its device may be gone.
    pub fn is_attached(&mut self) -> bool {
        match &mut self.handle {
            Handle::Xdp { link, .. } => {
                // SAFETY: for an XDP link the kernel has written this field.
                link_info(link).is_none_or(|info| unsafe { info.__bindgen_anon_1.xdp.ifindex } != 0)
            }
            Handle::Tcx { link } => {
                // SAFETY: for a tcx link the kernel has written this field.
                link_info(link).is_none_or(|info| unsafe { info.__bindgen_anon_1.tcx.ifindex } != 0)
            }
            Handle::Clsact { filter } => filter.is_attached(),
        }
    }

    /// Has another program take the place of an XDP program at once: each frame meets one of both.
    pub fn replace(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let Handle::Xdp { link, .. } = &self.handle else {
            let cause = io::Error::other("only XDP programs are replaced");
            return Err(Error::refused("replacing a program", cause));
        };
        // SAFETY: both descriptors are open, and no options are read.
        let failed = unsafe {
            libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        };
        if failed < 0 {
            let cause = io::Error::from_raw_os_error(-failed);
            let what = format!("replacing the XDP program of device {}", self.ifindex);
            return Err(Error::refused(what, cause));
        }
        Ok(())
    }
}

/// Attaches an XDP program to a device of the calling thread's namespace.
///
/// `mode` is `Native`, `Generic` or `Offload`. A device that has an XDP program already is refused: two
/// cannot share it.
pub fn xdp(program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> Result<Attachment, Error> {
    let link = Netlink::new()?.link_by_index(ifindex)?;
    if let (Some(mode), Some(program)) = (link.xdp, link.xdp_program) {
        return Err(Error::XdpTaken {
            interface: link.name,
            program,
            mode: mode.name(),
        });
    }
    let created = match mode {
        XdpMode::Native => Ok(libbpf_sys::XDP_FLAGS_DRV_MODE),
        XdpMode::Offload => Ok(libbpf_sys::XDP_FLAGS_HW_MODE),
        XdpMode::Generic => Ok(libbpf_sys::XDP_FLAGS_SKB_MODE),
        XdpMode::Multiple => Err(io::Error::other("one program cannot be in several modes")),
    }
    .and_then(|flags| create_link(program, ifindex, libbpf_sys::BPF_XDP, flags));
    let fd = created.map_err(|cause| Error::Attach {
        program: "an XDP program",
        interface: link.name,
        remedy: match (cause.raw_os_error(), mode) {
            (Some(libc::EOPNOTSUPP), XdpMode::Native) => {
                "its driver has no native XDP; generic mode works on any device"
            }
            (Some(libc::EPERM), _) => "needs CAP_BPF and CAP_NET_ADMIN: run with sudo",
            (Some(libc::EBUSY), _) => "another program took it meanwhile: bpftool link shows whose",
            (Some(libc::ERANGE | libc::EINVAL), XdpMode::Native) => {
                "its MTU may be too large for native XDP, or its peer has more queues"
            }
            _ => "the kernel's log may say more: dmesg | tail",
        },
        cause,
    })?;
    Ok(Attachment {
        ifindex,
        handle: Handle::Xdp { mode, link: fd },
    })
}

/// Attaches a tc program to one side of a device of the calling thread's namespace, after the
/// programs that are there.
pub fn tc(
    program: BorrowedFd<'_>,
    ifindex: u32,
    direction: Direction,
    via: TcVia,
) -> Result<Attachment, Error> {
    if via == TcVia::Clsact {
        let filter = Filter::attach(program, ifindex, direction)?;
        return Ok(Attachment {
            ifindex,
            handle: Handle::Clsact { filter },
        });
    }
    // Before the policy can find it there.
    program::remember(program);
    let link =
        create_link(program, ifindex, hook(direction), 0).map_err(|cause| Error::Attach {
            program: "a tcx program",
            interface: ifindex.to_string(),
            remedy: match cause.raw_os_error() {
                Some(libc::EINVAL) => "tcx needs Linux 6.6; clsact works on older kernels",
                Some(libc::EPERM) => "needs CAP_BPF and CAP_NET_ADMIN: run with sudo",
                _ => "the kernel's log may say more: dmesg | tail",
            },
            cause,
        })?;
    Ok(Attachment {
        ifindex,
        handle: Handle::Tcx { link },
    })
}

/// What the kernel says of a link; none where it says nothing.
fn link_info(link: &OwnedFd) -> Option<libbpf_sys::bpf_link_info> {
    // SAFETY: all zero is a valid value of each field.
    let mut info: libbpf_sys::bpf_link_info = unsafe { std::mem::zeroed() };
    let mut length = u32::try_from(size_of_val(&info)).ok()?;
    // SAFETY: `info` has room for `length` bytes, asks for no strings, and outlives the call.
    let failed = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut length)
    };
    (failed == 0).then_some(info)
}

/// The XDP mode of a device of the calling thread's namespace; none without a program.
pub fn xdp_mode(ifindex: u32) -> Result<Option<XdpMode>, Error> {
    Ok(Netlink::new()?.link_by_index(ifindex)?.xdp)
}

/// Whether this kernel attaches tc programs by tcx; clsact is what there is otherwise.
pub fn tc_via() -> TcVia {
    const LOOPBACK: u32 = 1;
    match tcx_programs(LOOPBACK, Direction::Ingress) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => TcVia::Clsact,
        _ => TcVia::Tcx,
    }
}

/// The ids of the programs that one side of a device has by tcx; `EINVAL` where the kernel has no tcx.
pub(crate) fn tcx_programs(ifindex: u32, direction: Direction) -> io::Result<Vec<u32>> {
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    program::attached(target, hook(direction), 0)
}

fn hook(direction: Direction) -> libbpf_sys::bpf_attach_type {
    match direction {
        Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
    }
}

fn create_link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    hook: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
        flags,
        ..Default::default()
    };
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    // SAFETY: `options` is as long as it says and outlives the call; the kernel checks the rest.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, hook, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor was just made, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
