//! Generated from `bpf/*.bpf.c`, and what the programs write, read as the structures they are.
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "one comment is for all structures"
)]

pub(crate) use bpf::Plain;

bpf::skeleton!(pub(crate) mod fanout = "fanout");
bpf::skeleton!(pub(crate) mod flow = "flow");
bpf::skeleton!(pub(crate) mod flow_tc = "flow_tc");
bpf::skeleton!(pub(crate) mod hand_over = "hand_over");
bpf::skeleton!(pub(crate) mod packets = "packets");

use flow::types;

// SAFETY: the BPF headers assert that these have no implicit padding.
unsafe impl Plain for types::flow {}
unsafe impl Plain for types::flow_key {}
unsafe impl Plain for types::account {}
unsafe impl Plain for types::eviction {}
unsafe impl Plain for types::steering {}
unsafe impl Plain for types::filter_step {}
unsafe impl Plain for types::filter_network {}
unsafe impl Plain for types::model_head {}
unsafe impl Plain for types::tree {}
unsafe impl Plain for types::tree_node {}
unsafe impl Plain for types::tree_account {}
unsafe impl Plain for packets::types::packet {}
