//! What the kernel's policy does with packets that it forwards.

use netdev::policy::{
    Check, Device, Policy, PolicyMonitor, ReversePath, Routing, Transit, Verdict,
};

use crate::common::Pair;
use crate::policy::Outcome::{self, Accept, Drop, Kernel};
use crate::policy::{FILTER_DROP, load, nft};

/// Rules of nftables, the check that they are about, and what they do with IPv4 and IPv6 packets that come by eth0 and
/// leave by eth1.
const TRANSIT_RULES: &[(&str, Check, Outcome, Outcome)] = &[
    (FILTER_DROP, Check::NftForward, Accept, Accept),
    (
        "table inet t { chain f { type filter hook forward priority 0; policy drop; }; }",
        Check::NftForward,
        Drop,
        Drop,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; policy drop; iifname eth0 oifname eth1 accept; }; }",
        Check::NftForward,
        Accept,
        Accept,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; policy drop; iifname eth1 oifname eth0 accept; }; }",
        Check::NftForward,
        Drop,
        Drop,
    ),
    // Any address, protocol, port and state is possible.
    (
        "table ip t { chain f { type filter hook forward priority 0; ip saddr 192.0.2.0/24 drop; }; }",
        Check::NftForward,
        Kernel,
        Accept,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; tcp dport 25 drop; }; }",
        Check::NftForward,
        Kernel,
        Kernel,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; meta l4proto { 0-255 } accept; drop; }; }",
        Check::NftForward,
        Accept,
        Kernel,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; th dport 0-65535 accept; drop; }; }",
        Check::NftForward,
        Kernel,
        Kernel,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; ct state invalid drop; }; }",
        Check::NftForward,
        Kernel,
        Kernel,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; policy drop; ct state vmap { invalid : accept, established : accept, related : accept, new : accept }; }; }",
        Check::NftForward,
        Accept,
        Accept,
    ),
    (
        "table inet t { chain f { type filter hook forward priority 0; ip frag-off & 0x1fff != 0 drop; }; }",
        Check::NftForward,
        Kernel,
        Accept,
    ),
    (
        "table ip t { chain n { type nat hook postrouting priority 100; oifname eth0 masquerade; }; }",
        Check::NftPostrouting,
        Accept,
        Accept,
    ),
    (
        "table ip t { chain n { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }",
        Check::NftPostrouting,
        Kernel,
        Accept,
    ),
    (
        "table ip t { chain n { type nat hook prerouting priority -100; fib daddr type local tcp dport 80 dnat to 10.0.0.1; }; }",
        Check::NftPrerouting,
        Accept,
        Accept,
    ),
    (
        "table netdev t { chain g { type filter hook ingress device eth0 priority 0; ip6 hoplimit 1 drop; }; }",
        Check::NftIngress,
        Accept,
        Kernel,
    ),
];

/// From `eth0` to `eth1`.
fn forwarded(pair: &Pair, v4: bool) -> Transit {
    let device = |index, name: &str| Device {
        index,
        name: name.into(),
    };
    Transit {
        v4,
        ingress: device(pair.ifindex, "eth0"),
        egress: Some(device(pair.ifindex + 100, "eth1")),
        tagged: false,
    }
}

#[test]
fn verdicts_on_forwarded_packets_hold_for_all_of_them() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    for (rules, check, v4, v6) in TRANSIT_RULES {
        nft(&pair.near, rules);
        let policy = pair.near.run(|| Policy::read().unwrap());
        for (version, expected) in [(true, v4), (false, v6)] {
            let packets = forwarded(&pair, version);
            let verdict = policy.at_check(*check, &packets);
            assert_eq!(Outcome::of(&verdict), *expected, "{verdict:?} for {rules}");
            for other in Check::FORWARD {
                let verdict = policy.at_check(*other, &packets);
                assert!(other == check || verdict == Verdict::Accept, "{verdict:?}");
            }
        }
    }
    // Of a frame with a tag it is not known which protocol rules see.
    let rules = "table netdev t { chain g { type filter hook ingress device eth0 priority 0; meta protocol vlan drop; }; }";
    nft(&pair.near, rules);
    let policy = pair.near.run(|| Policy::read().unwrap());
    for (tagged, expected) in [(false, Accept), (true, Kernel)] {
        let packets = Transit {
            tagged,
            ..forwarded(&pair, true)
        };
        let verdict = policy.at_check(Check::NftIngress, &packets);
        assert_eq!(Outcome::of(&verdict), expected, "{verdict:?}");
    }
}

#[test]
fn a_table_can_be_left_out() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let drops = "{ chain f { type filter hook forward priority 0; policy drop; }; }";
    nft(&pair.near, &format!("table inet own {drops}"));
    let mut monitor = pair
        .near
        .run(|| PolicyMonitor::without_table("own").unwrap());
    let packets = forwarded(&pair, true);
    let ask = |monitor: &PolicyMonitor| monitor.at_check(Check::NftForward, &packets);
    assert!(monitor.is_empty_for_forwarding());
    nft(
        &pair.near,
        &format!("table inet own {drops}; table ip own {drops}"),
    );
    monitor.refresh();
    let why = "the policy of chain ip own f".to_owned();
    assert_eq!(ask(&monitor), Verdict::Drop(why));
}

#[test]
fn routing_is_the_kernels_where_more_than_the_usual_tables_decide() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut routing = pair.near.run(|| Routing::open().unwrap());
    let port = pair.near.netlink().link_by_name("eth0").unwrap();
    let ip = |line: &str| {
        let words: Vec<_> = std::iter::once("ip").chain(line.split(' ')).collect();
        load(&pair.near, &words, "");
    };
    for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        pair.near.sysctl(key, "1");
    }
    let mut ask = |check, v4| routing.read().unwrap().obstacle(check, &port, v4);
    for (rule, obstacle) in [
        ("from 192.0.2.0/24 lookup 100", true),
        ("to 192.0.2.0/24 lookup 100", true),
        ("iif eth0 lookup 100", true),
        ("iif lo lookup 100", false),
        ("oif eth0 lookup 100", false),
        ("not fwmark 7 lookup 100", true),
        ("from all lookup 100", true),
        ("from all lookup main suppress_prefixlength 0", true),
        ("from all prohibit", true),
    ] {
        ip(&format!("rule add pref 99 {rule}"));
        let found = ask(Check::IpRules, true);
        assert_eq!(found.is_some(), obstacle, "{rule}: {found:?}");
        assert_eq!(ask(Check::IpRules, false), None, "{rule}");
        ip("rule del pref 99");
    }
    ip("-6 rule del pref 32766");
    let main = "no policy routing rule leads to the table main";
    assert_eq!(ask(Check::IpRules, false).as_deref(), Some(main));
    for (key, v4) in [
        ("ipv4/conf/eth0/forwarding", true),
        ("ipv6/conf/all/forwarding", false),
    ] {
        assert_eq!(ask(Check::Forwarding, v4), None);
        pair.near.sysctl(key, "0");
        let found = ask(Check::Forwarding, v4).unwrap();
        assert_eq!(found, format!("net.{} is 0", key.replace('/', ".")));
        pair.near.sysctl(key, "1");
    }
    pair.near.sysctl("ipv6/conf/eth0/disable_ipv6", "1");
    let found = pair.near.run(|| ask(Check::Forwarding, false));
    assert!(found.unwrap().contains("disable_ipv6"));
    let mut routing = pair.near.run(|| Routing::open().unwrap());
    for (all, device, wanted) in [
        ("0", "0", ReversePath::Off),
        ("0", "1", ReversePath::Strict),
        ("1", "2", ReversePath::Loose),
        ("2", "0", ReversePath::Loose),
    ] {
        pair.near.sysctl("ipv4/conf/all/rp_filter", all);
        pair.near.sysctl("ipv4/conf/eth0/rp_filter", device);
        let policy = routing.read().unwrap();
        assert_eq!(policy.reverse_path(pair.ifindex), wanted, "{all} {device}");
    }
}
