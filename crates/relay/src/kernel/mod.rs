//! What the kernel's fast paths have in common: the tables that userspace writes and BPF programs
//! read, their counters, and who relays a stream. Frames are the programs' own affair.

mod egress_device;
mod entries;
mod groups;
pub(crate) mod interfaces;
mod punts;
mod running;
pub(crate) mod skel;
mod tables;
mod watch;

use std::mem::MaybeUninit;

use datapath::Error;
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use netdev::Attachments;
use netdev::requirement::Requirement;
use sys::caps::Capability;

use crate::plan::Plan;

pub(crate) use egress_device::EgressDevice;
pub(crate) use groups::Broadcast;
pub use punts::{Punt, PuntKind, PuntRing};
pub(crate) use running::InKernel;
pub(crate) use tables::{Maps, Tables};
pub(crate) use watch::Watch;

/// The maps that every program of the relay shares with userspace, by their names in bpf/table.h and the
/// headers beside it. Each skeleton has a type of its own for them.
macro_rules! maps {
    ($skel:expr) => {
        $crate::kernel::Maps {
            ingests: bpf::Map::new(&$skel.maps.ingests)?,
            streams: bpf::Map::new(&$skel.maps.streams)?,
            groups: bpf::Map::new(&$skel.maps.groups)?,
            members: bpf::Map::new(&$skel.maps.members)?,
            stream_counters: bpf::PerCpu::new(&$skel.maps.stream_counters)?,
            subscriber_counters: bpf::PerCpu::new(&$skel.maps.subscriber_counters)?,
            latches: bpf::Map::new(&$skel.maps.latches)?,
            diverts: bpf::Map::new(&$skel.maps.diverts)?,
            done: bpf::Map::new(&$skel.maps.done)?,
            source_prefixes: bpf::Map::new(&$skel.maps.source_prefixes)?,
            kernel_sources: bpf::Map::new(&$skel.maps.kernel_sources)?,
            punts: libbpf_rs::MapHandle::try_from(&$skel.maps.punts)
                .map_err(|error| datapath::Error::failed("keeping the ring of punts", error))?,
        }
    };
}
pub(crate) use maps;

/// Loads a datapath's program: nothing in it is decided at run time.
pub(crate) fn load<'obj, B: SkelBuilder<'obj>>(
    builder: B,
    storage: &'obj mut MaybeUninit<OpenObject>,
    name: &str,
) -> Result<<B::Output as OpenSkel<'obj>>::Output, Error> {
    bpf::load(builder, storage, &format!("the {name} program"), |_| Ok(()))
}

/// Attaches a datapath's program to the interfaces of a resolved plan, and detaches it from others. What comes in by an
/// interface that takes no such program reaches the ingest socket, and userspace relays it: `tables` can say why.
pub(crate) fn attach(
    attached: &mut Attachments,
    tables: &Tables,
    plan: &Plan,
) -> Result<(), Error> {
    let refused = attached.follow_each(&interfaces::present(plan)?);
    let reason = |(ifindex, error): (u32, netdev::Error)| (ifindex, error.to_string());
    tables.set_unattached(refused.into_iter().map(reason).collect());
    Ok(())
}

/// Waits until no CPU runs a program that saw the tables as they were.
pub(crate) fn grace() -> Result<(), Error> {
    netdev::grace::wait()
        .map_err(|error| Error::failed("waiting for the CPUs to leave the BPF programs", error))
}

/// The requirements of every fast path.
pub(crate) const CAPABILITIES: Requirement =
    Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin, Capability::NetRaw]);
