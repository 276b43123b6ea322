//! Entries of the program's maps, made of what a plane is told: the structures of bpf/layout.h.

use libbpf_rs::libbpf_sys::{bpf_devmap_val, bpf_devmap_val__bindgen_ty_1 as DevmapProgram};
use lpm::Layout4;

use super::{Port, Settings};
use crate::forward::{Adjacency, Family};
use crate::policy::{Pair, PortPolicy, code};
use crate::skel::router::types;

/// Bytes of a table's chunk, which is one entry of its map.
pub(super) const CHUNK: usize = 4096;
pub(super) const CHUNK_SIZE: u32 = 4096;
/// Next hops of a family.
pub(super) const HOPS: usize = 1 << 15;
/// Chunks of the meanings of both families.
pub(super) const MEANING_CHUNKS: u32 = 128;
const _: () = assert!(MEANING_CHUNKS as usize * CHUNK == 2 * HOPS * size_of::<u64>());
/// Parts of a group's flows.
pub(super) const BUCKETS: usize = 256;
const NO_VLAN: u16 = 0xffff;

/// Of a meaning.
pub(super) const NEIGHBOUR: u32 = 1;
pub(super) const GROUP: u32 = 2;
pub(super) const DROP: u32 = 3;
pub(super) const PUNT: u32 = 4;

pub(super) fn meaning(kind: u32, index: u32) -> u64 {
    u64::from(kind) | u64::from(index) << 32
}

/// How many chunks so many bytes are.
pub(super) fn chunks(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(CHUNK)).unwrap_or(u32::MAX)
}

/// Which of `acls` a family's first or second array is.
pub(super) fn acl_slot(family: usize, turn: u64) -> u32 {
    match (family, turn) {
        (0, 1) => 0,
        (0, _) => 1,
        (_, 1) => 2,
        _ => 3,
    }
}

pub(super) fn settings(settings: &Settings, netns: u32) -> types::settings {
    types::settings {
        seed: settings.seed,
        v4_words: (settings.layout4 != Layout4::Bytes).into(),
        check_source: settings.check_source.into(),
        padding: 0,
        netns,
    }
}

pub(super) fn port_key(port: &Port) -> types::port_key {
    types::port_key {
        ifindex: port.ifindex,
        tag: port.tags,
    }
}

/// `enum port_flags` of bpf/layout.h.
pub(super) fn port(port: &Port, policy: &PortPolicy) -> types::port {
    let bits = policy.kernel.into_iter().chain(policy.by_pair);
    let bits = bits.chain([policy.fragments]);
    let flags = (0..)
        .zip(bits)
        .fold(0, |flags, (bit, set)| flags | u8::from(set) << bit);
    types::port {
        mac: port.mac,
        flags,
        reverse_path: code(policy.reverse_path),
    }
}

pub(super) fn pair(pair: &Pair) -> types::pair {
    types::pair {
        from: pair.from.ifindex,
        to: pair.to.ifindex,
        from_vlan: pair.from.vlan.unwrap_or(NO_VLAN),
        to_vlan: pair.to.vlan.unwrap_or(NO_VLAN),
        v6: (pair.family == Family::V6).into(),
    }
}

pub(super) fn adjacency(to: &Adjacency) -> types::adjacency {
    types::adjacency {
        destination: to.destination,
        source: to.source,
        ifindex: to.ifindex,
        mtu: to.mtu,
        vlan: to.vlan.unwrap_or(NO_VLAN),
        padding: 0,
    }
}

/// A device that frames are sent by, without another program.
pub(super) fn device(ifindex: u32) -> bpf_devmap_val {
    bpf_devmap_val {
        ifindex,
        bpf_prog: DevmapProgram { fd: 0 },
    }
}
