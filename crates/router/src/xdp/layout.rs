//! What the program's maps hold, byte by byte: the twin of bpf/layout.h.

use lpm::Layout4;

use super::{Port, Settings};
use crate::forward::Adjacency;

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

/// `struct settings`.
pub(super) fn settings(settings: &Settings, netns: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[0] = u8::from(settings.layout4 != Layout4::Bytes);
    bytes[1] = u8::from(settings.check_source);
    bytes[4..].copy_from_slice(&netns.to_ne_bytes());
    bytes
}

/// `struct port_key`.
pub(super) fn port_key(port: &Port) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&port.ifindex.to_ne_bytes());
    bytes[4..6].copy_from_slice(&port.tags[0].to_ne_bytes());
    bytes[6..].copy_from_slice(&port.tags[1].to_ne_bytes());
    bytes
}

/// `struct port`.
pub(super) fn port(port: &Port) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&port.mac);
    bytes
}

/// `struct adjacency`.
pub(super) fn adjacency(to: &Adjacency) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..6].copy_from_slice(&to.destination);
    bytes[6..12].copy_from_slice(&to.source);
    bytes[12..16].copy_from_slice(&to.ifindex.to_ne_bytes());
    bytes[16..20].copy_from_slice(&to.mtu.to_ne_bytes());
    bytes[20..22].copy_from_slice(&to.vlan.unwrap_or(NO_VLAN).to_ne_bytes());
    bytes
}

/// `struct group`.
pub(super) fn group(buckets: &[u16; BUCKETS]) -> Vec<u8> {
    buckets.iter().flat_map(|hop| hop.to_ne_bytes()).collect()
}

/// `struct bpf_devmap_val` without a program.
pub(super) fn device(ifindex: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&ifindex.to_ne_bytes());
    bytes
}
