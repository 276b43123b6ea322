//! Generated from `bpf/*.bpf.c`. A structure that occurs in several programs is identical in all of them.

pub(crate) use bpf::Plain;

bpf::skeleton!(pub(crate) mod fanout = "fanout");
bpf::skeleton!(pub(crate) mod flow = "flow");
bpf::skeleton!(pub(crate) mod flow_tc = "flow_tc");
bpf::skeleton!(pub(crate) mod hand_over = "hand_over");
bpf::skeleton!(pub(crate) mod packets = "packets");

impl bpf::Counters for flow::types::account {}
impl bpf::Counters for flow::types::tree_account {}
