//! Traffic control of others, on either side of a device.

use std::os::fd::AsFd;

use libbpf_rs::libbpf_sys;
use netdev::attach::{self, Direction, TcVia, tc_via};
use netdev::policy::{Check, Device, PolicyMonitor, Transit, Verdict};

use crate::common::{Pair, Space, program};
use crate::policy::load;

/// Why the kernel decides about packets from `ingress` to `egress`, at a check.
fn reason(
    space: &Space,
    monitor: &mut PolicyMonitor,
    check: Check,
    ingress: u32,
    egress: u32,
) -> Option<String> {
    space.run(|| monitor.refresh());
    let device = |index| Device {
        index,
        name: String::new(),
    };
    let packets = Transit {
        v4: true,
        ingress: device(ingress),
        egress: Some(device(egress)),
        tagged: false,
    };
    match monitor.at_check(check, &packets) {
        Verdict::Accept => None,
        Verdict::Drop(reason) | Verdict::Kernel(reason) => Some(reason),
    }
}

#[test]
fn filters_and_queueing_disciplines_of_others_decide() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut monitor = pair.near.run(|| PolicyMonitor::new().unwrap());
    let eth0 = pair.ifindex;
    let elsewhere = eth0 + 1000;
    let classify_all = "u32 match u32 0 0 flowid 1:1";
    for (commands, ingress, egress) in [
        (&[][..], None, None),
        (&["qdisc replace dev eth0 root bfifo"], None, None),
        (&["qdisc replace dev eth0 root pfifo_fast"], None, None),
        (
            &["qdisc replace dev eth0 root tbf rate 1mbit burst 10k latency 50ms"],
            None,
            Some("the queueing discipline tbf of eth0"),
        ),
        (&["qdisc add dev eth0 clsact"], None, None),
        (
            &[
                "qdisc add dev eth0 clsact",
                &format!("filter add dev eth0 ingress protocol ip pref 7 {classify_all}"),
            ],
            Some("a tc filter (u32) of eth0"),
            None,
        ),
        (
            &[
                "qdisc add dev eth0 clsact",
                &format!("filter add dev eth0 egress protocol ip pref 7 {classify_all}"),
            ],
            None,
            Some("a tc filter (u32) of eth0"),
        ),
        (
            &[
                "qdisc add dev eth0 ingress",
                &format!("filter add dev eth0 ingress protocol ip pref 7 {classify_all}"),
            ],
            Some("a tc filter (u32) of eth0"),
            None,
        ),
        (
            &["qdisc add dev eth0 ingress_block 9 clsact"],
            Some("a shared block of filters of eth0"),
            Some("a shared block of filters of eth0"),
        ),
    ] {
        let tc = |line: &str| {
            let words: Vec<_> = std::iter::once("tc").chain(line.split(' ')).collect();
            load(&pair.near, &words, "");
        };
        for command in commands {
            tc(command);
        }
        let mut ask = |check, from, to| reason(&pair.near, &mut monitor, check, from, to);
        assert_eq!(ask(Check::TcIngress, eth0, elsewhere).as_deref(), ingress);
        assert_eq!(ask(Check::TcEgress, elsewhere, eth0).as_deref(), egress);
        assert_eq!(
            ask(Check::TcIngress, elsewhere, eth0),
            None,
            "another device"
        );
        assert_eq!(
            ask(Check::TcEgress, eth0, elsewhere),
            None,
            "another device"
        );
        if commands.iter().any(|command| command.contains("root")) {
            tc("qdisc delete dev eth0 root");
        }
        if commands.iter().any(|command| !command.contains("root")) {
            let hook = commands[0].split(' ').next_back().unwrap();
            tc(&format!("qdisc delete dev eth0 {hook}"));
        }
    }
}

#[test]
fn programs_of_others_decide_and_filters_of_this_project_do_not() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut monitor = pair.near.run(|| PolicyMonitor::new().unwrap());
    let eth0 = pair.ifindex;
    let program = program(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, 0);
    let attach = |direction, via| {
        let attached = || attach::tc(program.as_fd(), eth0, direction, via).unwrap();
        pair.near.run(attached)
    };
    let filter = attach(Direction::Ingress, TcVia::Clsact);
    assert_eq!(
        reason(&pair.near, &mut monitor, Check::TcIngress, eth0, eth0),
        None
    );
    drop(filter);
    if tc_via() == TcVia::Clsact {
        return;
    }
    let version = monitor.version();
    let _attached = attach(Direction::Egress, TcVia::Tcx);
    let expected = "the tc program test of eth0";
    let found = reason(&pair.near, &mut monitor, Check::TcEgress, eth0, eth0);
    assert_eq!(found.as_deref(), Some(expected));
    assert_eq!(
        reason(&pair.near, &mut monitor, Check::TcIngress, eth0, eth0),
        None
    );
    assert_ne!(monitor.version(), version);
}

/// Packets of a VLAN device pass what is on the device below.
#[test]
fn the_device_below_counts() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let ip = |line: &str| {
        let words: Vec<_> = std::iter::once("ip").chain(line.split(' ')).collect();
        load(&pair.near, &words, "");
    };
    ip("link add bridge0 type bridge");
    ip("link set eth0 master bridge0");
    let bridge = pair.near.index("bridge0");
    let mut monitor = pair.near.run(|| PolicyMonitor::new().unwrap());
    assert_eq!(
        reason(&pair.near, &mut monitor, Check::TcEgress, bridge, bridge),
        None
    );
    let tbf = "tc qdisc replace dev eth0 root tbf rate 1mbit burst 10k latency 50ms";
    load(&pair.near, &tbf.split(' ').collect::<Vec<_>>(), "");
    let found = reason(&pair.near, &mut monitor, Check::TcEgress, bridge, bridge);
    assert_eq!(
        found.as_deref(),
        Some("the queueing discipline tbf of eth0")
    );
}
