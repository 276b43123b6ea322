//! Prints how many packets a second each back end delivers into XDP_DROP over a veth pair.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for the terminal"
)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::time::Duration;

use loadgen::{Amount, Backend, FarEnd, Load, Verdict};
use support::Topology;

fn main() {
    let seconds = std::env::args().nth(1).map_or(2, |s| s.parse().unwrap());
    println!(
        "load                    sent/s  delivered/s  refused  late p50/p99 us  own p50/p99 us  cpu"
    );
    for (name, load) in loads(seconds) {
        measure(name, load);
    }
}

type Setting = fn(&mut Load);

fn loads(seconds: u64) -> Vec<(&'static str, (Backend, Duration, Setting))> {
    let time = Duration::from_secs(seconds);
    let settings: [(&str, Backend, Setting); 10] = [
        ("socket 2k", Backend::Socket, |l| pace(l, 2e3, 1)),
        ("socket 10k", Backend::Socket, |l| pace(l, 10e3, 1)),
        ("socket 100k", Backend::Socket, |l| pace(l, 100e3, 1)),
        ("socket, burst 1", Backend::Socket, |l| l.burst = 1),
        ("socket, burst 64", Backend::Socket, |l| l.burst = 64),
        ("af-xdp 100k", Backend::AfXdp, |l| pace(l, 100e3, 1)),
        ("af-xdp 300k, burst 32", Backend::AfXdp, |l| {
            pace(l, 300e3, 32);
        }),
        ("af-xdp, burst 64", Backend::AfXdp, |l| l.burst = 64),
        ("live, batch 64", Backend::Live, |l| l.burst = 64),
        ("live, batch 256", Backend::Live, |l| l.burst = 256),
    ];
    settings
        .into_iter()
        .map(|(name, backend, set)| (name, (backend, time, set)))
        .collect()
}

fn pace(load: &mut Load, rate: f64, burst: usize) {
    load.rate = Some(rate);
    load.burst = burst;
}

fn measure(name: &str, (backend, time, set): (Backend, Duration, Setting)) {
    let world = Topology::new();
    let mut load = world.load(backend, false, 1);
    load.payload_len = 40;
    load.amount = Amount::Time(time);
    load.cpu = Some(0);
    load.fifo = true;
    set(&mut load);
    let (sent, delivered) = world
        .far
        .run(|| {
            let far = FarEnd::attach(world.far_index, 77, 1, Verdict::Drop).unwrap();
            let sent = world.generate(&load).unwrap();
            (sent, far.counts().unwrap().packets())
        })
        .unwrap();
    let micro = |histogram: &stats::Histogram, q| histogram.quantile(q).unwrap_or(0.0) / 1e3;
    let share = |value: u64| value as f64 / sent.elapsed_ns as f64;
    println!(
        "{name:22} {:>8.0} {:>12.0} {:>8} {:>8.2}/{:<8.1} {:>7.2}/{:<8.1} {:>3.0} %",
        sent.achieved_pps,
        sent.achieved_pps * delivered as f64 / sent.sent as f64,
        sent.refused,
        micro(&sent.lateness, 0.5),
        micro(&sent.lateness, 0.99),
        micro(&sent.lateness_outside_send, 0.5),
        micro(&sent.lateness_outside_send, 0.99),
        share(sent.thread_cpu_ns) * 100.0,
    );
}
