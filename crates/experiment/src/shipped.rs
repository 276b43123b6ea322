//! The experiments that ship.

/// As their files are.
pub(crate) const SHIPPED: &[&str] = &[
    include_str!("../../../experiments/relay-delay.toml"),
    include_str!("../../../experiments/relay-throughput.toml"),
    include_str!("../../../experiments/relay-cpu.toml"),
    include_str!("../../../experiments/relay-peers.toml"),
    include_str!("../../../experiments/relay-work.toml"),
    include_str!("../../../experiments/relay-jitter.toml"),
    include_str!("../../../experiments/relay-video.toml"),
    include_str!("../../../experiments/features-pcap-peers.toml"),
    include_str!("../../../experiments/features-cpu.toml"),
    include_str!("../../../experiments/features-overload.toml"),
    include_str!("../../../experiments/features-rate.toml"),
    include_str!("../../../experiments/features-freed.toml"),
    include_str!("../../../experiments/features-batching.toml"),
    include_str!("../../../experiments/features-tree.toml"),
    include_str!("../../../experiments/router-lpm4.toml"),
    include_str!("../../../experiments/router-lpm6.toml"),
    include_str!("../../../experiments/router-acl.toml"),
    include_str!("../../../experiments/router-updates.toml"),
    include_str!("../../../experiments/router-bpf.toml"),
    include_str!("../../../experiments/router-forwarding.toml"),
    include_str!("../../../experiments/replicate-pwrite.toml"),
    include_str!("../../../experiments/replicate-overhead.toml"),
    include_str!("../../../experiments/replicate-lag.toml"),
    include_str!("../../../experiments/replicate-fanout.toml"),
];
