//! Generated from `bpf/*.bpf.c`. All programs include bpf/layout.h, so the types of one are those of all.

bpf::skeleton!(pub(crate) mod steer = "steer");
bpf::skeleton!(pub(crate) mod tc = "tc");
bpf::skeleton!(pub(crate) mod xdp = "xdp");

pub(crate) use steer::types;

impl bpf::Counters for types::stream_counters {}
impl bpf::Counters for types::subscriber_counters {}
