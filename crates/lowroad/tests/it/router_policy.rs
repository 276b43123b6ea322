//! The real binary leaves to the kernel what the kernel's own policy is about, and keeps its rules for every packet.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, send};
use packet::build::{self, Extension};
use serde_json::Value;
use test_support::bpf_link;
use testbed::{Bed, Child, Host};

use crate::router_topology::{TIMEOUT, answer, serve_between, topology};

const FAST: [&str; 2] = ["xdp", "af-xdp"];
const OPEN_PORT: u16 = 7001;
const DROP_PORT: u16 = 9999;
/// How long nothing comes where nothing is to come.
const SILENCE: Duration = Duration::from_millis(200);

struct Rig {
    bed: Bed,
    folder: tempfile::TempDir,
    served: Child,
}

impl Rig {
    fn new(name: &str, datapath: &str, more: &str) -> Self {
        let bed = Bed::up(&topology(&["client", "server"]), name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let router = bed.host("router").unwrap();
        let served = serve_between(router, &["client", "server"], folder.path(), datapath, more);
        Self {
            bed,
            folder,
            served,
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
        let rig = Rig::new(&format!("bypass-{datapath}"), datapath, &more);
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

#[test]
fn a_bypassed_check_is_skipped_and_named() {
    if !sys::require::root() {
        return;
    }
    let more = "bypass = [\"nft-forward\"]\n";
    for datapath in FAST {
        let rig = Rig::new(&format!("skip-{datapath}"), datapath, more);
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
fn a_program_that_another_one_detaches_is_attached_again() {
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(&format!("detached-{datapath}"), datapath, "");
        let client = rig.host("router").interface("client").unwrap().clone();
        for times in 1..=2 {
            let detached = bpf_link::detach(rig.served.id(), "xdp", client.ifindex);
            assert_eq!(detached, 1, "{datapath}");
            rig.until("attached again", || {
                let status = rig.status();
                let detachment = &status["detachments"][0];
                detachment["count"] == times
                    && detachment["device"] == *client.name
                    && detachment["error"].is_null()
            });
        }
        rig.open();
    }
}

#[test]
fn sources_are_looked_for_as_the_kernel_does() {
    if !sys::require::root() {
        return;
    }
    for datapath in FAST {
        let rig = Rig::new(&format!("rpf-{datapath}"), datapath, "");
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
