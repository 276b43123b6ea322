//! The real binary leaves to the kernel what the kernel's own policy is about, and keeps its rules for every packet.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, send};
use packet::build::{self, Extension};
use serde_json::Value;
use testbed::{Bed, Child, Host};

use crate::router_topology::{TIMEOUT, answer, serve_between, topology};

/// The first is the reference: no router, and the kernel forwards.
const FAST: [&str; 2] = ["xdp", "af-xdp"];
const OPEN_PORT: u16 = 7001;
const DROP_PORT: u16 = 9999;
/// How long nothing comes where nothing is to come.
const SILENCE: Duration = Duration::from_millis(200);

struct Rig {
    bed: Bed,
    folder: tempfile::TempDir,
    _served: Option<Child>,
}

impl Rig {
    fn new(name: &str, datapath: Option<&str>, more: &str) -> Self {
        let bed = Bed::up(&topology(&["client", "server"]), name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let served = datapath.map(|datapath| {
            let router = bed.host("router").unwrap();
            serve_between(router, &["client", "server"], folder.path(), datapath, more)
        });
        Self {
            bed,
            folder,
            _served: served,
        }
    }

    fn host(&self, name: &str) -> &Host {
        self.bed.host(name).unwrap()
    }

    /// Has a shell in the router carry out a line, in which CLIENT and SERVER stand for devices.
    fn sh(&self, line: &str) {
        let router = self.host("router");
        let name = |peer: &str| router.interface(peer).unwrap().name.clone();
        let line = line
            .replace("CLIENT", &name("client"))
            .replace("SERVER", &name("server"));
        let run = || Command::new("sh").args(["-ec", &line]).output().unwrap();
        let output = router.run(run).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
    }

    fn status(&self) -> Value {
        answer(&self.folder.path().join("r.sock"), &["status"])
    }

    fn packets(&self, end: &str) -> u64 {
        let status = self.status();
        let packets = status["packets"].as_array().unwrap();
        let found = packets.iter().find(|packets| packets["end"] == end);
        found.map_or(0, |found| found["packets"].as_u64().unwrap())
    }

    /// The checks because of which the kernel decides.
    fn checks(&self, of: &str) -> Vec<String> {
        let status = self.status();
        let findings = status["policy"][of].as_array().unwrap().iter();
        let named = findings.map(|finding| finding["check"].as_str().unwrap().to_owned());
        named.collect()
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            let status = self.status();
            assert!(started.elapsed() < TIMEOUT, "{what}: {status:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn address(&self, v4: bool) -> IpAddr {
        let server = self.host("server").interface("router").unwrap();
        if v4 { server.v4 } else { server.v6 }
    }

    fn receiver(&self, v4: bool, port: u16) -> UdpSocket {
        let at = SocketAddr::new(self.address(v4), port);
        let server = self.host("server");
        let receiver = server.run(|| UdpSocket::bind(at).unwrap()).unwrap();
        receiver.set_read_timeout(Some(SILENCE)).unwrap();
        receiver
    }

    fn sender(&self, v4: bool) -> UdpSocket {
        let any = if v4 { "0.0.0.0:0" } else { "[::]:0" };
        let client = self.host("client");
        client.run(|| UdpSocket::bind(any).unwrap()).unwrap()
    }

    /// Sends datagrams until one arrives, as long as neighbours are not known.
    fn open(&self) {
        for v4 in [true, false] {
            let (receiver, sender) = (self.receiver(v4, OPEN_PORT), self.sender(v4));
            let to = receiver.local_addr().unwrap();
            let started = Instant::now();
            loop {
                sender.send_to(b"open", to).unwrap();
                if receiver.recv(&mut [0; 16]).is_ok() {
                    break;
                }
                assert!(started.elapsed() < TIMEOUT, "nothing came to {to}");
            }
        }
    }

    /// Whether a datagram comes through.
    fn passes(&self, v4: bool) -> bool {
        let (receiver, sender) = (self.receiver(v4, OPEN_PORT), self.sender(v4));
        let to = receiver.local_addr().unwrap();
        sender.send_to(b"passes", to).unwrap();
        receiver.recv(&mut [0; 16]).is_ok()
    }

    /// Sends a frame from the client, by its device.
    fn send_frame(&self, packet: build::Builder) {
        let near = self.host("client").interface("router").unwrap();
        let frame = packet.macs(near.mac, near.peers[0].mac).frame();
        let send_it = || {
            let socket = sys::socket::raw_sender(near.ifindex).unwrap();
            send(socket.as_raw_fd(), &frame, MsgFlags::empty()).unwrap()
        };
        assert_eq!(self.host("client").run(send_it).unwrap(), frame.len());
    }

    /// From the client to a port of the server.
    fn packet(&self, v4: bool, port: u16) -> build::Builder {
        let near = self.host("client").interface("router").unwrap();
        let from = if v4 { near.v4 } else { near.v6 };
        let to = SocketAddr::new(self.address(v4), port);
        build::udp(SocketAddr::new(from, 4000), to).ttl(64)
    }
}

/// Packets that a datapath does not forward itself, by what they are.
fn odd(rig: &Rig, v4: bool, port: u16) -> Vec<(&'static str, build::Builder)> {
    let packet = || rig.packet(v4, port);
    if v4 {
        return vec![("plain", packet()), ("options", packet().options(2))];
    }
    let options = |count| {
        let option = || Extension::DestinationOptions(0);
        (0..count).fold(packet(), |packet, _| packet.extension(option()))
    };
    vec![
        ("plain", packet()),
        ("hop-by-hop", packet().extension(Extension::HopByHop(0))),
        ("one destination option", options(1)),
        ("nine destination options", options(9)),
    ]
}

#[test]
fn drop_rules_hold_for_packets_that_are_left_to_the_kernel() {
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.csv");
        let rules = format!("action,protocol,destination_ports\ndrop,udp,{DROP_PORT}\n");
        fs::write(&file, rules).unwrap();
        let more = format!("[rules]\nfile = {file:?}\n");
        let rig = Rig::new(&format!("bypass-{datapath}"), Some(datapath), &more);
        rig.open();
        for v4 in [true, false] {
            let (dropped, open) = (rig.receiver(v4, DROP_PORT), rig.receiver(v4, OPEN_PORT));
            dropped.set_nonblocking(true).unwrap();
            open.set_read_timeout(Some(TIMEOUT)).unwrap();
            let arrives = |what: &str| {
                let mut bytes = [0; 4096];
                let received = open.recv(&mut bytes);
                let length = received.unwrap_or_else(|error| panic!("{datapath}: {what}: {error}"));
                assert!(
                    bytes[..length].starts_with(what.as_bytes()),
                    "{datapath}: {what}"
                );
                assert!(dropped.recv(&mut bytes).is_err(), "{datapath}: {what}");
            };
            let both = odd(&rig, v4, DROP_PORT)
                .into_iter()
                .zip(odd(&rig, v4, OPEN_PORT));
            for ((what, to_dropped), (_, to_open)) in both {
                rig.send_frame(to_dropped.payload(what));
                rig.send_frame(to_open.payload(what));
                arrives(what);
            }
            // In fragments, which the other end puts together.
            let sender = rig.sender(v4);
            let whole = |to: &UdpSocket| {
                let mut bytes = vec![b'.'; 3000];
                bytes[..9].copy_from_slice(b"fragments");
                sender.send_to(&bytes, to.local_addr().unwrap()).unwrap();
            };
            whole(&dropped);
            whole(&open);
            arrives("fragments");
        }
        let rules = answer(&rig.folder.path().join("r.sock"), &["rules"]);
        let packets = |at: usize| rules[at]["packets"].as_u64().unwrap();
        // Plain, with options, and the first fragment; then plain, with headers of options, and the first fragment.
        assert_eq!((packets(0), packets(2)), (3, 5), "{datapath}: {rules}");
    }
}

/// How packets of a kind come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fast,
    Kernel,
    Refused,
}
use Outcome::{Fast, Kernel, Refused};

/// A setting, the check that it concerns, and the outcome for IPv4 and for IPv6 packets from client to server.
const POLICIES: &[(&str, &str, Outcome, Outcome)] = &[
    ("", "", Fast, Fast),
    (
        "nft 'table inet f { chain i { type filter hook input priority 0; policy drop; ct state established accept; }; }'",
        "",
        Fast,
        Fast,
    ),
    (
        "nft 'table inet f { chain f { type filter hook forward priority 0; counter accept; }; }'",
        "",
        Fast,
        Fast,
    ),
    (
        "nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; iifname \"CLIENT\" oifname \"SERVER\" accept; }; }'",
        "nft-forward",
        Fast,
        Fast,
    ),
    (
        "nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; ct state vmap { established : accept, related : accept, new : accept }; }; }'",
        "nft-forward",
        Kernel,
        Kernel,
    ),
    (
        "nft 'table ip f { chain f { type filter hook forward priority 0; policy drop; }; }'",
        "nft-forward",
        Refused,
        Fast,
    ),
    (
        "nft 'table inet f { chain p { type filter hook prerouting priority raw; policy drop; }; }'",
        "nft-prerouting",
        Refused,
        Refused,
    ),
    (
        "nft 'table inet f { chain p { type filter hook postrouting priority 0; udp dport 7001 drop; }; }'",
        "nft-postrouting",
        Refused,
        Refused,
    ),
    (
        "nft 'table netdev f { chain p { type filter hook ingress device \"CLIENT\" priority 0; ip6 hoplimit < 100 drop; }; }'",
        "nft-ingress",
        Fast,
        Refused,
    ),
    (
        "nft 'table netdev f { chain p { type filter hook egress device \"SERVER\" priority 0; ip ttl < 100 drop; }; }'",
        "nft-egress",
        Refused,
        Fast,
    ),
    (
        "nft 'table ip f { chain n { type nat hook postrouting priority 100; oifname \"SERVER\" masquerade; }; }'",
        "nft-postrouting",
        Kernel,
        Fast,
    ),
    (
        "sysctl -qw net.ipv4.conf.CLIENT.forwarding=0",
        "forwarding",
        Refused,
        Fast,
    ),
    (
        "sysctl -qw net.ipv6.conf.all.forwarding=0",
        "forwarding",
        Fast,
        Refused,
    ),
    (
        "sysctl -qw net.ipv4.conf.CLIENT.rp_filter=1",
        "",
        Fast,
        Fast,
    ),
    ("sysctl -qw net.ipv4.conf.all.rp_filter=2", "", Fast, Fast),
    ("ip rule add iif CLIENT prohibit", "ip-rules", Refused, Fast),
    (
        "ip -6 rule add from 2001:db8::/32 lookup 100",
        "ip-rules",
        Fast,
        Kernel,
    ),
    ("ip rule add iif SERVER lookup 100", "ip-rules", Fast, Fast),
    (
        "ip xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir fwd action block",
        "ipsec-forward",
        Refused,
        Fast,
    ),
];

/// Takes back whatever a policy has set.
const UNDO: &str = "nft flush ruleset; sysctl -qw net.ipv4.ip_forward=0; sysctl -qw net.ipv4.ip_forward=1 \
    net.ipv6.conf.all.forwarding=1 net.ipv4.conf.CLIENT.rp_filter=0 net.ipv4.conf.all.rp_filter=0; \
    ip rule flush; ip rule add pref 32766 lookup main; ip rule add pref 32767 lookup default; \
    ip -6 rule flush; ip -6 rule add pref 32766 lookup main; ip xfrm policy flush";

#[test]
fn the_kernels_policy_decides_as_without_a_router() {
    if !sys::require::root() {
        return;
    }
    let reference = Rig::new("policy-kernel", None, "");
    reference.open();
    for (line, _, v4, v6) in POLICIES {
        reference.sh(line);
        let passes = [true, false].map(|version| reference.passes(version));
        assert_eq!(passes, [*v4 != Refused, *v6 != Refused], "{line}");
        reference.sh(UNDO);
    }
    drop(reference);
    for datapath in FAST {
        let rig = Rig::new(&format!("policy-{datapath}"), Some(datapath), "");
        rig.open();
        for (line, check, v4, v6) in POLICIES {
            rig.until("nothing is left to the kernel", || {
                rig.checks("kernel").is_empty()
            });
            rig.sh(line);
            if !check.is_empty() {
                rig.until(line, || rig.checks("kernel").contains(&(*check).to_owned()));
            }
            for (version, expected) in [(true, v4), (false, v6)] {
                let what = format!("{datapath}: {line}, IPv4 {version}");
                let before = rig.packets("forwarded");
                assert_eq!(rig.passes(version), *expected != Refused, "{what}");
                if *expected == Fast {
                    rig.until(&what, || rig.packets("forwarded") > before);
                } else {
                    assert_eq!(rig.packets("forwarded"), before, "{what}");
                }
            }
            rig.sh(UNDO);
        }
    }
}

#[test]
fn a_bypassed_check_is_skipped_and_named() {
    if !sys::require::root() {
        return;
    }
    let more = "bypass = [\"nft-forward\"]\n";
    for datapath in FAST {
        let rig = Rig::new(&format!("skip-{datapath}"), Some(datapath), more);
        rig.open();
        rig.sh(
            "nft 'table inet f { chain f { type filter hook forward priority 0; policy drop; }; }'",
        );
        rig.until("named", || {
            let bypassed = rig.checks("bypassed");
            !bypassed.is_empty() && bypassed.iter().all(|check| check == "nft-forward")
        });
        assert_eq!(rig.checks("kernel"), [""; 0]);
        for v4 in [true, false] {
            assert!(rig.passes(v4), "{datapath}");
        }
    }
}

#[test]
fn sources_are_looked_for_as_the_kernel_does() {
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(&format!("rpf-{datapath}"), Some(datapath), "");
        rig.open();
        let receiver = rig.receiver(true, OPEN_PORT);
        let server = rig.host("server").interface("router").unwrap().v4;
        let IpAddr::V4(server) = server else { panic!() };
        let beside = IpAddr::from((server.to_bits() ^ 1).to_be_bytes());
        let unknown: IpAddr = [198, 51, 100, 7].into();
        let comes = |source: IpAddr| {
            let to = SocketAddr::new(rig.address(true), OPEN_PORT);
            rig.send_frame(build::udp(SocketAddr::new(source, 9), to).ttl(64));
            receiver.recv(&mut [0; 64]).is_ok()
        };
        // Off: from anywhere. Strict: not from the server's own network. Loose: from wherever a route leads.
        for (setting, expected) in [(0, [true, true]), (1, [false, false]), (2, [true, false])] {
            rig.sh(&format!(
                "sysctl -qw net.ipv4.conf.CLIENT.rp_filter={setting}"
            ));
            let started = Instant::now();
            while [beside, unknown].map(comes) != expected {
                assert!(
                    started.elapsed() < TIMEOUT,
                    "{datapath}: rp_filter {setting}"
                );
            }
        }
        assert_eq!(rig.checks("kernel"), [""; 0]);
    }
}
