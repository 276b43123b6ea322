//! A fast path under the kernel's rules: what the kernel would let through comes through, and nothing else.

use std::time::{Duration, Instant};

use netdev::policy::Check;
use relay::core::Core;

use crate::common::relay_rig::{Rig, datagram, stream, subscriber};
use crate::common::space::TIMEOUT;

const SENDER: &str = "10.91.0.1:4000";
const INGEST: &str = "10.91.0.2:5004";
const SUBSCRIBER: &str = "10.91.1.2:6000";
/// The first is the reference.
const DATAPATHS: [&str; 4] = ["recv", "tc", "xdp", "af-xdp"];

/// Who forwards, and whether anything arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fast,
    Kernel,
    Refused,
}
use Outcome::{Fast, Kernel, Refused};

/// Rules in the relay's namespace, and what they make of a stream from any source.
const POLICIES: &[(&str, Outcome)] = &[
    ("", Fast),
    (
        "table inet f { chain input { type filter hook input priority 0; policy drop; \
         ct state established,related accept; ct state invalid drop; udp dport 5004 accept; }; }",
        Fast,
    ),
    (
        "table inet f { chain input { type filter hook input priority 0; policy drop; }; }",
        Refused,
    ),
    (
        "table inet f { chain input { type filter hook input priority 0; \
         ip saddr 10.91.0.0/24 accept; udp dport 5004 drop; }; }",
        Kernel,
    ),
    (
        "table inet f { chain input { type filter hook input priority 0; \
         ip saddr 10.91.0.0/24 drop; accept; }; }",
        Refused,
    ),
    (
        "table ip f { chain p { type filter hook prerouting priority -300; udp dport 5004 drop; }; }",
        Refused,
    ),
    (
        "table netdev f { chain i { type filter hook ingress device in0 priority 0; udp dport 5004 drop; }; }",
        Refused,
    ),
    (
        "table inet f { chain o { type filter hook output priority 0; policy drop; }; }",
        Refused,
    ),
    (
        "table inet f { chain o { type filter hook output priority 0; policy drop; udp dport 6000 accept; }; }",
        Fast,
    ),
    (
        "table inet f { chain o { type filter hook postrouting priority 0; oifname out1 drop; }; }",
        Refused,
    ),
    (
        "table ip f { chain n { type nat hook postrouting priority 100; oifname \"wan*\" masquerade; }; }",
        Fast,
    ),
    (
        "table inet f { chain f { type filter hook forward priority 0; policy drop; }; }",
        Fast,
    ),
];

/// How the relay says that it forwards.
fn outcome(core: &Core) -> Outcome {
    let explanation = core.explain(None).unwrap().remove(0);
    let left = |slow: &relay::core::SlowSubscriber| slow.reason.starts_with("left to the kernel");
    if explanation.slow.iter().any(left) {
        Kernel
    } else {
        Fast
    }
}

#[test]
fn fast_paths_keep_the_rules_of_the_kernel() {
    if !sys::require::root() {
        return;
    }
    for (rules, expected) in POLICIES {
        let rig = Rig::new(None);
        rig.load_rules(rules);
        for datapath in DATAPATHS {
            let core = rig.serve(vec![stream(
                datapath,
                INGEST,
                vec![subscriber("s", SUBSCRIBER)],
            )]);
            let capture = rig.capture();
            for _ in 0..10 {
                rig.inject(&datagram(SENDER, INGEST, *b"x").frame());
            }
            if *expected == Refused {
                std::thread::sleep(Duration::from_millis(200));
                assert_eq!(capture.rest().len(), 0, "{datapath}: {rules}");
            } else {
                assert_eq!(capture.take(10).len(), 10, "{datapath}: {rules}");
            }
            if datapath != "recv" {
                let expected = if *expected == Fast { Fast } else { Kernel };
                assert_eq!(outcome(&core), expected, "{datapath}: {rules}");
            }
        }
    }
}

#[test]
fn changed_rules_hold_while_the_relay_runs() {
    if !sys::require::root() {
        return;
    }
    for datapath in &DATAPATHS[1..] {
        let rig = Rig::new(None);
        let core = rig.serve(vec![stream(
            datapath,
            INGEST,
            vec![subscriber("s", SUBSCRIBER)],
        )]);
        for (rules, expected) in [
            ("", Fast),
            (POLICIES[2].0, Kernel),
            (POLICIES[1].0, Fast),
            (POLICIES[7].0, Kernel),
            ("", Fast),
        ] {
            rig.load_rules(rules);
            let deadline = Instant::now() + TIMEOUT;
            while outcome(&core) != expected {
                assert!(Instant::now() < deadline, "{datapath}: {rules}");
                std::thread::sleep(Duration::from_millis(20));
            }
            let capture = rig.capture();
            rig.inject(&datagram(SENDER, INGEST, *b"x").frame());
            if expected == Fast {
                assert_eq!(capture.take(1).len(), 1, "{datapath}: {rules}");
            } else {
                std::thread::sleep(Duration::from_millis(100));
                assert_eq!(capture.rest().len(), 0, "{datapath}: {rules}");
            }
        }
    }
}

#[test]
fn bypassed_rules_are_skipped_and_named() {
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        let rig = Rig::new(None);
        rig.load_rules(POLICIES[2].0);
        let mut spec = stream(datapath, INGEST, vec![subscriber("s", SUBSCRIBER)]);
        spec.bypass = vec![Check::NftInput];
        let core = rig.serve(vec![spec]);
        let capture = rig.capture();
        rig.inject(&datagram(SENDER, INGEST, *b"x").frame());
        let bypassed = core.explain(None).unwrap().remove(0).bypassed;
        if datapath == "recv" {
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(capture.rest().len(), 0, "the kernel goes by its rules");
            assert_eq!(bypassed, [""; 0]);
        } else {
            assert_eq!(capture.take(1).len(), 1, "{datapath}");
            let expected = "nft-input: the policy of chain inet f input drops its packets";
            assert_eq!(bypassed, [expected], "{datapath}");
        }
    }
}

/// Sources that the kernel refuses by themselves, and those that `rp_filter` refuses.
#[test]
fn sources_that_the_kernel_refuses_are_refused() {
    const LOOSE: &str = "2";
    const STRICT: &str = "1";
    if !sys::require::root() {
        return;
    }
    for datapath in DATAPATHS {
        for (mode, expected, sources) in [
            (
                "0",
                Fast,
                &[
                    ("10.91.0.1", true),
                    ("10.91.1.2", true),
                    ("198.51.100.9", true),
                ][..],
            ),
            // The relay has no default route.
            (
                LOOSE,
                Kernel,
                &[
                    ("10.91.0.1", true),
                    ("10.91.1.2", true),
                    ("198.51.100.9", false),
                ],
            ),
            (STRICT, Kernel, &[("10.91.0.1", true), ("10.91.1.2", false)]),
        ] {
            let rig = Rig::new(None);
            rig.relay.run(|| {
                let setting = "/proc/sys/net/ipv4/conf/in0/rp_filter";
                std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0").unwrap();
                std::fs::write(setting, mode).unwrap();
            });
            let subscribers = vec![subscriber("s", SUBSCRIBER)];
            let core = rig.serve(vec![stream(datapath, INGEST, subscribers)]);
            if datapath != "recv" {
                assert_eq!(outcome(&core), expected, "{datapath} rp_filter {mode}");
            }
            let capture = rig.capture();
            // The relay's own addresses, wherever they are.
            for own in ["10.91.0.2", "10.91.1.1"] {
                rig.inject(&datagram(&format!("{own}:4000"), INGEST, *b"own").frame());
            }
            for (source, accepted) in sources {
                rig.inject(&datagram(&format!("{source}:4000"), INGEST, *b"x").frame());
                let copies = capture.take(usize::from(*accepted));
                let context = format!("{datapath} rp_filter {mode} {source}");
                assert_eq!(copies.len(), usize::from(*accepted), "{context}");
                assert!(copies.iter().all(|copy| copy.payload == b"x"), "{context}");
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(capture.rest().len(), 0, "{datapath} rp_filter {mode}");
        }
    }
}
