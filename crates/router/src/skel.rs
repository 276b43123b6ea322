//! Generated from `bpf/*.bpf.c`.

bpf::skeleton!(pub(crate) mod router = "router");
bpf::skeleton!(pub(crate) mod steer = "steer");

impl bpf::Counters for router::types::ends {}
