//! The NUMA placement of the kernel's rings and tables: on the node of the CPU that writes them.

use std::path::Path;

use datapath::Error;
use libbpf_rs::libbpf_sys;
use sys::numa::{self, Topology};

pub(super) fn topology() -> Result<Topology, Error> {
    Topology::read(Path::new(numa::SYSFS))
        .map_err(|error| Error::failed("asking which CPUs and nodes there are", error))
}

/// The options of a map in a node's memory.
pub(super) fn on(node: u32) -> libbpf_sys::bpf_map_create_opts {
    libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_sys::BPF_F_NUMA_NODE,
        numa_node: node,
        ..Default::default()
    }
}
