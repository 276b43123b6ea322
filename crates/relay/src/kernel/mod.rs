//! What the kernel's fast paths have in common: the tables that userspace writes and BPF programs
//! read, their counters, and who relays a stream. Frames are the programs' own affair.

mod attachments;
mod copies;
mod exit;
mod groups;
pub(crate) mod interfaces;
mod layout;
mod object;
mod running;
mod tables;
mod watch;

use datapath::{Error, Missing};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sys::caps::{Capability, Effective};

pub(crate) use attachments::Attachments;
pub(crate) use copies::{Copies, group_copies_at};
pub(crate) use exit::Exit;
pub(crate) use object::Loaded;
pub(crate) use running::InKernel;
pub(crate) use tables::Tables;
pub(crate) use watch::Watch;

fn write(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|error| Error::failed(format!("writing map {}", map.name().display()), error))
}

/// Waits until no CPU runs a program that saw the tables as they were.
pub(crate) fn grace() -> Result<(), Error> {
    netdev::grace::wait()
        .map_err(|error| Error::failed("waiting for the CPUs to leave the BPF programs", error))
}

/// What every fast path needs of the machine.
pub(crate) fn check() -> Result<(), Missing> {
    let wanted = [Capability::Bpf, Capability::NetAdmin, Capability::NetRaw];
    let held = Effective::read().map_err(|error| unreadable(&error))?;
    let missing = held.missing(&wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    Err(Missing::new(
        format!("needs {}", names.join(" and ")),
        "run with sudo",
    ))
}

fn unreadable(error: &std::io::Error) -> Missing {
    Missing::new(
        format!("cannot read this process's capabilities: {error}"),
        "mount /proc",
    )
}

/// What following a tracepoint needs of the machine.
pub(crate) fn can_trace() -> Result<(), Missing> {
    if !sys::kernel::has_btf() {
        return Err(Missing::new(
            "the kernel has no type information (/sys/kernel/btf/vmlinux)",
            "use the tc datapath, or a kernel built with CONFIG_DEBUG_INFO_BTF",
        ));
    }
    let held = Effective::read().map_err(|error| unreadable(&error))?;
    if held.missing(&[Capability::Perfmon]).is_empty() {
        return Ok(());
    }
    Err(Missing::new("needs CAP_PERFMON", "run with sudo"))
}
