//! What rules do with packets of one kind, beside what the kernel does with such a packet.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use netdev::policy::{AddressKind, Check, Device, Flow, Policy, Verdict};

use crate::common::{Pair, Space, ip};

const PORT: u16 = 5004;

/// The kind of verdict that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accept,
    Drop,
    Kernel,
}
use Outcome::{Accept, Drop, Kernel};

impl Outcome {
    pub(crate) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Accept => Accept,
            Verdict::Drop(_) => Drop,
            Verdict::Kernel(_) => Kernel,
        }
    }
}

/// Runs a program of the rules with `input`, in the namespace.
pub(crate) fn load(space: &Space, program: &[&str], input: &str) {
    let output = space.run(|| {
        let mut child = Command::new(program[0])
            .args(&program[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(input.as_bytes()).unwrap();
        drop(pipe);
        child.wait_with_output().unwrap()
    });
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program:?}: {errors}\n{input}");
}

pub(crate) fn nft(space: &Space, rules: &str) {
    load(
        space,
        &["nft", "-f", "-"],
        &format!("flush ruleset\n{rules}"),
    );
}

/// Datagrams from `far` to port 5004 of `near`, whose source port is any.
fn arriving(pair: &Pair, v4: bool) -> Flow {
    let (near, far, length) = if v4 {
        ("10.9.0.1", "10.9.0.2", 32)
    } else {
        ("fd09::1", "fd09::2", 128)
    };
    Flow {
        source: (ip(far), length),
        source_port: None,
        destination: ip(near),
        destination_kind: AddressKind::Local,
        destination_port: PORT,
        user: None,
        ingress: Some(Device {
            index: pair.ifindex,
            name: "eth0".into(),
        }),
        egress: None,
    }
}

/// Datagrams from port 5004 of `near` to the same port of `far`.
fn leaving(pair: &Pair, v4: bool) -> Flow {
    let arriving = arriving(pair, v4);
    Flow {
        source: (arriving.destination, arriving.source.1),
        source_port: Some(PORT),
        destination: arriving.source.0,
        destination_kind: AddressKind::Unicast,
        user: Some(0),
        ingress: None,
        egress: arriving.ingress,
        ..arriving
    }
}

fn evaluate(pair: &Pair, stages: &[Check], flow: &Flow) -> Verdict {
    let policy = pair.near.run(|| Policy::read().unwrap());
    stages.iter().fold(Verdict::Accept, |verdict, stage| {
        verdict.then(|| policy.at(*stage, flow))
    })
}

/// Whether a datagram from port 5004 of one end arrives at port 5004 of the other.
fn passes(from: &Space, source: IpAddr, to: &Space, destination: IpAddr) -> bool {
    let bind = |at| UdpSocket::bind((at, PORT)).unwrap();
    let receiver = to.run(move || bind(destination));
    let sender = from.run(move || bind(source));
    let target = SocketAddr::new(destination, PORT);
    // The first datagram may wait for the neighbour; a refusal is an error of its sender.
    if sender.send_to(b"x", target).is_err() {
        return false;
    }
    let settle = Duration::from_millis(if source.is_ipv4() { 200 } else { 300 });
    receiver.set_read_timeout(Some(settle)).unwrap();
    receiver.recv(&mut [0; 8]).is_ok()
}

/// Rules of nftables, whether the packets are IPv4, and what is to become of those that arrive.
const ARRIVING: &[(&str, bool, Outcome)] = &[
    ("", true, Accept),
    ("", false, Accept),
    (FILTER_DROP, true, Drop),
    (FILTER_DROP, false, Drop),
    (FILTER_ACCEPTS_PORT, true, Accept),
    (FILTER_ACCEPTS_PORT, false, Accept),
    // Established packets and new ones fare alike: the state does not matter.
    (
        "table inet t { chain i { type filter hook input priority 0; policy drop; ct state vmap { established : accept, related : accept, invalid : drop }; udp dport { 53, 5000-5010 } accept; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; policy drop; ct state established,related accept; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; policy drop; ct state new,established,related accept; }; }",
        true,
        Accept,
    ),
    // The flow's source port is not known.
    (
        "table inet t { chain i { type filter hook input priority 0; udp sport 1024-65535 accept; drop; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; udp sport 1024-65535 accept; accept; }; }",
        true,
        Accept,
    ),
    // Families: a table of one version does not see the other's packets.
    (
        "table ip t { chain i { type filter hook input priority 0; policy drop; }; }",
        false,
        Accept,
    ),
    (
        "table ip6 t { chain i { type filter hook input priority 0; policy drop; }; }",
        false,
        Drop,
    ),
    // An accept ends its chain only; a drop ends all.
    (
        "table inet a { chain i { type filter hook input priority -10; accept; }; }; table inet b { chain i { type filter hook input priority 10; udp dport 5004 drop; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; ip saddr 10.9.0.0/24 drop; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; ip saddr 10.9.1.0/24 drop; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; iifname \"eth0\" udp dport 5004 drop; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; iifname \"eth*\" udp dport 5004 drop; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; iifname \"veth*\" drop; iif \"lo\" drop; }; }",
        true,
        Accept,
    ),
    (
        "table netdev t { chain g { type filter hook ingress device eth0 priority 0; udp dport 5004 drop; }; }",
        true,
        Drop,
    ),
    (
        "table netdev t { chain g { type filter hook ingress device lo priority 0; drop; }; }",
        true,
        Accept,
    ),
    // Jumps, returns and gotos.
    (
        "table inet t { chain u { udp dport 5004 return; drop; }; chain i { type filter hook input priority 0; jump u; accept; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain u { udp dport 5005 return; drop; }; chain i { type filter hook input priority 0; jump u; accept; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain u { udp dport 5005 accept; }; chain i { type filter hook input priority 0; policy drop; goto u; accept; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain u { udp dport 5004 accept; }; chain i { type filter hook input priority 0; policy drop; udp dport vmap { 5000-5010 : goto u }; }; }",
        true,
        Accept,
    ),
    // Sets and maps.
    (
        "table inet t { set s { type ipv4_addr; flags interval; elements = { 10.9.0.0/25, 192.0.2.0/24 }; }; chain i { type filter hook input priority 0; policy drop; ip saddr @s accept; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { set s { type ipv4_addr; flags interval; elements = { 10.9.0.128/25, 192.0.2.0/24 }; }; chain i { type filter hook input priority 0; policy drop; ip saddr @s accept; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { set s { type ipv4_addr . inet_service; flags interval; elements = { 10.9.0.0/24 . 5000-5010 }; }; chain i { type filter hook input priority 0; policy drop; ip saddr . udp dport @s accept; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { set s { type ipv4_addr . inet_service; flags interval; elements = { 10.9.0.0/24 . 6000-6010 }; }; chain i { type filter hook input priority 0; policy drop; ip saddr . udp dport @s accept; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { set s { type ipv4_addr . inet_service; elements = { 10.9.0.2 . 5004 }; }; chain i { type filter hook input priority 0; ip saddr . udp dport @s drop; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { map m { type inet_service : verdict; flags interval; elements = { 0-5003 : accept, 5004-6000 : drop, * : accept }; }; chain i { type filter hook input priority 0; udp dport vmap @m; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { set s { type ipv4_addr; flags dynamic,timeout; timeout 1m; }; chain i { type filter hook input priority 0; policy drop; ip saddr @s accept; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { set s { type ipv6_addr; flags interval; elements = { fd09::/64 }; }; chain i { type filter hook input priority 0; policy drop; ip6 saddr @s accept; }; }",
        false,
        Accept,
    ),
    // State and effects.
    (
        "table inet t { set s { type ipv4_addr; limit rate 1/second; elements = { 10.9.0.2 limit rate 1/second }; }; chain i { type filter hook input priority 0; policy drop; ip saddr @s accept; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; udp dport 5004 limit rate 10/second accept; drop; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; tcp dport 5004 limit rate 10/second accept; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; udp dport 5004 log accept; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; udp dport 5004 counter accept; drop; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; udp dport 5004 reject; }; }",
        true,
        Drop,
    ),
    (
        "table ip t { chain p { type nat hook prerouting priority -100; udp dport 5004 redirect to :6000; }; }",
        true,
        Kernel,
    ),
    (
        "table ip t { chain p { type nat hook prerouting priority -100; tcp dport 5004 redirect to :6000; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; udp dport 5004 meta mark set 1; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; meta mark 1 drop; fib daddr type != local drop; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; fib daddr type local drop; }; }",
        true,
        Drop,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; fib saddr . iif oif missing drop; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -300; ct state invalid drop; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain p { type filter hook prerouting priority -150; ct state invalid drop; }; }",
        true,
        Accept,
    ),
    // Parts of headers that differ from packet to packet.
    (
        "table inet t { chain i { type filter hook input priority 0; ip ttl 1 drop; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; ip frag-off & 0x1fff != 0 drop; ip version != 4 drop; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; udp length < 20 drop; }; }",
        true,
        Kernel,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; meta l4proto { tcp, icmp } drop; meta nfproto ipv6 drop; }; }",
        true,
        Accept,
    ),
    (
        "table inet t { chain i { type filter hook input priority 0; ip6 nexthdr udp udp dport 5004 drop; }; }",
        false,
        Drop,
    ),
];

pub(crate) const FILTER_DROP: &str =
    "table inet filter { chain input { type filter hook input priority 0; policy drop; }; }";
const FILTER_ACCEPTS_PORT: &str = "table inet filter { chain input { type filter hook input priority 0; policy drop; ct state established,related accept; ct state invalid drop; iif lo accept; udp dport 5004 accept; }; }";

#[test]
fn verdicts_on_arriving_packets_agree_with_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    for (rules, v4, expected) in ARRIVING {
        nft(&pair.near, rules);
        let flow = arriving(&pair, *v4);
        let verdict = evaluate(&pair, Check::RECEIVE, &flow);
        assert_eq!(Outcome::of(&verdict), *expected, "{verdict:?} for {rules}");
        let passed = passes(&pair.far, flow.source.0, &pair.near, flow.destination);
        assert!(
            *expected == Kernel || passed == (*expected == Accept),
            "{rules}"
        );
    }
}

/// Rules of nftables, and what is to become of IPv4 packets that leave.
const LEAVING: &[(&str, Outcome)] = &[
    (
        "table inet t { chain o { type filter hook output priority 0; policy drop; }; }",
        Drop,
    ),
    (
        "table inet t { chain o { type filter hook output priority 0; policy drop; oifname eth0 udp dport 5004 accept; }; }",
        Accept,
    ),
    (
        "table inet t { chain o { type filter hook output priority 0; udp sport 5004 drop; }; }",
        Drop,
    ),
    (
        "table inet t { chain o { type filter hook output priority 0; meta skuid 0 drop; }; }",
        Drop,
    ),
    (
        "table inet t { chain o { type filter hook output priority 0; meta skuid 1000 drop; iifname eth0 drop; }; }",
        Accept,
    ),
    (
        "table inet t { chain o { type filter hook output priority 0; ip daddr 10.9.0.0/24 drop; }; }",
        Drop,
    ),
    (
        "table ip t { chain p { type nat hook postrouting priority 100; oifname eth0 masquerade; }; }",
        Kernel,
    ),
    (
        "table ip t { chain p { type nat hook postrouting priority 100; ip saddr 172.17.0.0/16 masquerade; }; }",
        Accept,
    ),
    (
        "table inet t { chain p { type filter hook postrouting priority 0; oifname eth0 drop; }; }",
        Drop,
    ),
    (
        "table ip t { chain o { type route hook output priority -150; udp dport 5004 meta mark set 7; }; }",
        Kernel,
    ),
    (
        "table netdev t { chain e { type filter hook egress device eth0 priority 0; udp dport 5004 drop; }; }",
        Drop,
    ),
];

#[test]
fn verdicts_on_leaving_packets_agree_with_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    for (rules, expected) in LEAVING {
        nft(&pair.near, rules);
        let flow = leaving(&pair, true);
        let verdict = evaluate(&pair, Check::SEND, &flow);
        assert_eq!(Outcome::of(&verdict), *expected, "{verdict:?} for {rules}");
        let passed = passes(&pair.near, flow.source.0, &pair.far, flow.destination);
        assert!(
            *expected == Kernel || passed == (*expected == Accept),
            "{rules}"
        );
    }
}

#[test]
fn security_policies_leave_packets_to_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let ask = |direction: &str, selector: &str, action: &str| {
        load(&pair.near, &["ip", "xfrm", "policy", "flush"], "");
        let text = format!("ip xfrm policy add {selector} dir {direction} action {action}");
        let words: Vec<_> = text.split(' ').collect();
        load(&pair.near, &words, "");
        let arrives = evaluate(&pair, Check::RECEIVE, &arriving(&pair, true));
        let leaves = evaluate(&pair, Check::SEND, &leaving(&pair, true));
        [arrives, leaves].map(|verdict| Outcome::of(&verdict))
    };
    let selector = "src 10.9.0.0/24 dst 10.9.0.0/24";
    assert_eq!(ask("in", selector, "block"), [Kernel, Accept]);
    assert_eq!(ask("out", selector, "block"), [Accept, Kernel]);
    assert_eq!(ask("in", selector, "allow"), [Accept, Accept]);
    load(
        &pair.near,
        &["ip", "xfrm", "policy", "setdefault", "in", "block"],
        "",
    );
    assert_eq!(ask("in", selector, "allow"), [Kernel, Accept]);
    load(
        &pair.near,
        &["ip", "xfrm", "policy", "setdefault", "in", "accept"],
        "",
    );
    let elsewhere = "src 10.8.0.0/24 dst 10.9.0.0/24";
    assert_eq!(ask("in", elsewhere, "block"), [Accept, Accept]);
    let tcp = "src 10.9.0.0/24 dst 10.9.0.0/24 proto tcp";
    assert_eq!(ask("in", tcp, "block"), [Accept, Accept]);
}

/// Rules as ufw sets them up, with UDP port 5004 open, for `iptables-restore`.
const UFW: &str = "*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:before-logging - [0:0]
:before - [0:0]
:not-local - [0:0]
:user - [0:0]
:after-logging - [0:0]
:logging-deny - [0:0]
:before-output - [0:0]
:track-output - [0:0]
-A INPUT -j before-logging
-A INPUT -j before
-A INPUT -j after-logging
-A OUTPUT -j before-output
-A OUTPUT -j track-output
-A before -i lo -j ACCEPT
-A before -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A before -m conntrack --ctstate INVALID -j logging-deny
-A before -m conntrack --ctstate INVALID -j DROP
-A before -p icmp --icmp-type destination-unreachable -j ACCEPT
-A before -p udp --sport 67 --dport 68 -j ACCEPT
-A before -j not-local
-A before -d 224.0.0.251/32 -p udp --dport 5353 -j ACCEPT
-A before -j user
-A not-local -m addrtype --dst-type LOCAL -j RETURN
-A not-local -m addrtype --dst-type MULTICAST -j RETURN
-A not-local -m addrtype --dst-type BROADCAST -j RETURN
-A not-local -m limit --limit 3/min --limit-burst 10 -j logging-deny
-A not-local -j DROP
-A user -p udp --dport 5004 -m comment --comment stream -j ACCEPT
-A user -p udp -m multiport --dports 7000,7100:7200 -j ACCEPT
-A after-logging -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix \"[BLOCK] \"
-A logging-deny -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix \"[BLOCK] \"
-A before-output -o lo -j ACCEPT
-A before-output -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A track-output -p tcp -m conntrack --ctstate NEW -j ACCEPT
-A track-output -p udp -m conntrack --ctstate NEW -j ACCEPT
COMMIT
";

/// Rules as docker sets them up, with a TCP port of a container published, for `iptables-restore`.
const DOCKER: &str = "*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p tcp -m tcp --dport 80 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
";

/// Rules as firewalld sets them up, with UDP port 5004 open in the zone.
const FIREWALLD: &str = "table inet firewalld {
  chain mangle_PREROUTING { type filter hook prerouting priority -140; policy accept; jump mangle_PREROUTING_ZONES; }
  chain mangle_PREROUTING_ZONES { iifname \"eth0\" goto zone_mangle; goto zone_mangle; }
  chain zone_mangle { }
  chain nat_PREROUTING { type nat hook prerouting priority -90; policy accept; }
  chain nat_POSTROUTING { type nat hook postrouting priority 110; policy accept; jump nat_POSTROUTING_ZONES; }
  chain nat_POSTROUTING_ZONES { oifname \"eth0\" goto zone_nat; goto zone_nat; }
  chain zone_nat { }
  chain filter_PREROUTING {
    type filter hook prerouting priority 10; policy accept;
    icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept;
    meta nfproto ipv6 fib saddr . mark . iif oif missing drop;
  }
  chain filter_INPUT {
    type filter hook input priority 10; policy accept;
    ct state { established, related } accept;
    ct status dnat accept;
    iifname \"lo\" accept;
    ct state invalid drop;
    jump filter_INPUT_ZONES;
    reject with icmpx type admin-prohibited;
  }
  chain filter_INPUT_ZONES { iifname \"eth0\" goto zone_in; goto zone_in; }
  chain zone_in { jump zone_in_allow; meta l4proto { icmp, ipv6-icmp } accept; }
  chain zone_in_allow {
    tcp dport 22 ct state { new, untracked } accept;
    ip6 daddr fe80::/64 udp dport 546 ct state { new, untracked } accept;
    udp dport 5004 accept;
  }
  chain filter_OUTPUT {
    type filter hook output priority 10; policy accept;
    ct state { established, related } accept;
    oifname \"lo\" accept;
    ip6 daddr { ::/96, ::ffff:0:0/96, 2002::/24 } reject with icmpv6 type addr-unreachable;
  }
}";

#[test]
fn usual_firewalls_accept_what_they_open() {
    if !sys::require::root() {
        return;
    }
    const RESTORE: &[&str] = &["iptables-nft-restore"];
    let pair = Pair::new();
    for (name, program, rules, elsewhere) in [
        ("ufw", RESTORE, UFW, Kernel),
        ("docker", RESTORE, DOCKER, Accept),
        ("firewalld", &["nft", "-f", "-"][..], FIREWALLD, Kernel),
    ] {
        nft(&pair.near, "");
        load(&pair.near, program, rules);
        let flow = arriving(&pair, true);
        let open = evaluate(&pair, Check::RECEIVE, &flow);
        assert_eq!(open, Verdict::Accept, "{name}");
        assert_eq!(
            evaluate(&pair, Check::SEND, &leaving(&pair, true)),
            Verdict::Accept,
            "{name}"
        );
        // New packets to another port are refused, and those of a connection accepted.
        let closed = Flow {
            destination_port: 6000,
            ..flow
        };
        let verdict = evaluate(&pair, Check::RECEIVE, &closed);
        assert_eq!(Outcome::of(&verdict), elsewhere, "{name}: {verdict:?}");
    }
    nft(&pair.near, "");
    load(&pair.near, RESTORE, UFW);
    for (port, expected) in [(7000, Accept), (7150, Accept), (7201, Kernel)] {
        let flow = Flow {
            destination_port: port,
            ..arriving(&pair, true)
        };
        let verdict = evaluate(&pair, Check::RECEIVE, &flow);
        assert_eq!(Outcome::of(&verdict), expected, "{port}: {verdict:?}");
    }
}
