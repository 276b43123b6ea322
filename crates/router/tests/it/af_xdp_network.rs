//! The af-xdp data plane between a client and a server, each in a namespace, with the programs that
//! people use.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use acl::{Action, Protocol, Rule4, Rule6};
use lpm::Prefix;
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use packet::{build, ipv4};
use router::cpu;
use router::cpu::af_xdp::{AfXdp, Counters, PuntReason, Settings};
use router::engine::{Contents, Function};
use router::forward::{Family, Forwarding, Member, Plane, Punt};
use router::gpu::Options as Gpu;
use router::gpu::cpu_fallback::Options;
use router::rules::RuleSet;
use testbed::{Bed, Host, Neighbours, Topology};

use crate::common::network::{self, await_that, hop, none_is_lost, topology};

const TO_SERVER: u16 = 1;
const TO_CLIENT: u16 = 2;
const LOCAL: u16 = 3;
const GROUP: u16 = 4;
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

struct Rig {
    bed: Bed,
    plane: AfXdp,
}

impl Rig {
    /// With routes to both networks and the router's own addresses, and no neighbour known.
    fn new(name: &str, topology: &Topology) -> Self {
        Self::with(name, topology, None, Duration::ZERO)
    }

    /// As `new`, on a device, where packets wait for others.
    fn with(name: &str, topology: &Topology, device: Option<Gpu>, wait: Duration) -> Self {
        let bed = Bed::up(topology, name).unwrap();
        let router = bed.host("router").unwrap();
        let mut contents = Contents::default();
        for (peer, number) in [("server", TO_SERVER), ("client", TO_CLIENT)] {
            let interface = router.interface(peer).unwrap();
            let (IpAddr::V4(v4), IpAddr::V6(v6)) = (interface.v4, interface.v6) else {
                panic!("addresses of the wrong families");
            };
            for (number, len4, len6) in [(number, 24, 64), (LOCAL, 32, 128)] {
                let prefix = Prefix::containing(v4.to_bits(), len4).unwrap();
                contents.v4.insert(prefix, hop(number));
                let prefix = Prefix::containing(v6.to_bits(), len6).unwrap();
                contents.v6.insert(prefix, hop(number));
            }
        }
        let settings = Settings {
            engine: Options {
                cpu: cpu::Options::default(),
                device,
                fallback: false,
            },
            function: Function::Both,
            threads: 1,
            batch: 256,
            wait,
            seed: 0,
        };
        let devices: Vec<u32> = router.interfaces().iter().map(|one| one.ifindex).collect();
        let plane = router
            .run(|| {
                let mut plane = AfXdp::start(&settings, contents, &devices).unwrap();
                for family in FAMILIES {
                    let local = Forwarding::Punt(Punt::Local);
                    plane.next_hop(family, hop(LOCAL), &local).unwrap();
                }
                plane.listen().unwrap();
                plane
            })
            .unwrap();
        Self { bed, plane }
    }

    fn host(&self, name: &str) -> &Host {
        self.bed.host(name).unwrap()
    }

    /// Sends to both ends by what the bed says of them.
    fn introduce(&mut self) {
        for (peer, number) in [("server", TO_SERVER), ("client", TO_CLIENT)] {
            let to = Forwarding::Neighbour(network::adjacency(self.host("router"), peer));
            for family in FAMILIES {
                self.plane.next_hop(family, hop(number), &to).unwrap();
            }
        }
    }

    fn counters(&self) -> Counters {
        self.plane.counters().unwrap()
    }

    fn punted(&self, why: PuntReason) -> u64 {
        self.counters().punted[why as usize]
    }

    fn address(&self, host: &str, peer: &str, family: Family) -> IpAddr {
        network::address(self.host(host), peer, family)
    }

    fn server(&self, family: Family) -> IpAddr {
        self.address("server", "router", family)
    }

    /// Whether a program succeeds in a host, and what it prints.
    fn print(&self, host: &str, command: &str) -> (bool, String) {
        network::print(self.host(host), command)
    }

    /// Until three answers have come. Of two, the last is waited for by `-W` no longer than twice what they took.
    fn ping(&self, to: IpAddr) -> (bool, String) {
        self.print("client", &format!("ping -n -c 3 -i 0.05 -w 30 {to}"))
    }

    /// No answer comes.
    fn ping_in_vain(&self, to: IpAddr) {
        let (worked, said) = self.print("client", &format!("ping -n -c 3 -i 0.05 -W 3 {to}"));
        assert!(!worked, "{said}");
    }

    /// A conversation of a mebibyte in each direction.
    fn converse(&self, family: Family) {
        let at = SocketAddr::new(self.server(family), 7000);
        network::converse(self.host("client"), self.host("server"), at);
    }

    /// Sends datagrams to the server.
    fn send(&self, family: Family, port: u16, count: u64) {
        let server = SocketAddr::new(self.server(family), port);
        let any = if server.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let client = self.host("client").run(|| UdpSocket::bind(any).unwrap());
        let client = client.unwrap();
        for _ in 0..count {
            client.send_to(b"question", server).unwrap();
        }
    }

    /// Stops it: everything that was steered has come to one end.
    fn stop(self) -> Counters {
        let Self { bed, plane } = self;
        let router = bed.host("router").unwrap();
        let counters = router.run(|| plane.stop().unwrap()).unwrap();
        assert_eq!(counters.steered, counters.ends(), "{counters:?}");
        assert!(counters.seen >= counters.steered);
        assert_eq!(counters.drops_reinject, 0);
        counters
    }
}

#[test]
fn tcp_and_ping_pass_without_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new("afxdp-pass", &topology(Neighbours::Permanent, 1500));
    rig.introduce();
    for family in FAMILIES {
        let before = rig.counters().forwarded;
        rig.converse(family);
        let (worked, said) = rig.ping(rig.server(family));
        assert!(worked && none_is_lost(&said), "{said}");
        await_that("all are counted", || {
            rig.counters().forwarded > before + 100
        });
    }
    for why in [
        PuntReason::NoRoute,
        PuntReason::Unresolved,
        PuntReason::Device,
        PuntReason::Local,
    ] {
        assert_eq!(rig.punted(why), 0, "{}", why.name());
    }
    // By a group of next hops, which a flow chooses from.
    for family in FAMILIES {
        let member = |number, weight| Member {
            hop: hop(number),
            weight,
        };
        let group = Forwarding::Group(vec![member(TO_SERVER, 1), member(TO_SERVER, 2)]);
        rig.plane.next_hop(family, hop(GROUP), &group).unwrap();
        let to = rig.server(family);
        match to {
            IpAddr::V4(to) => {
                let prefix = Prefix::new(to.to_bits(), 32).unwrap();
                rig.plane.route4(prefix, Some(hop(GROUP))).unwrap();
            }
            IpAddr::V6(to) => {
                let prefix = Prefix::new(to.to_bits(), 128).unwrap();
                rig.plane.route6(prefix, Some(hop(GROUP))).unwrap();
            }
        }
        let (worked, said) = rig.ping(to);
        assert!(worked, "{said}");
    }
    rig.stop();
}

#[test]
fn what_cannot_be_forwarded_reaches_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new("afxdp-back", &topology(Neighbours::Permanent, 1400));
    for family in FAMILIES {
        // No neighbour is known: the kernel forwards.
        let (worked, said) = rig.ping(rig.server(family));
        assert!(worked && none_is_lost(&said), "{said}");
        // A batch is counted once its frames have left.
        await_that("both directions", || {
            rig.punted(PuntReason::Unresolved) >= 6
        });
        assert_eq!(rig.counters().forwarded, 0);
    }
    rig.introduce();
    for family in FAMILIES {
        let server = rig.server(family);
        let near = rig.address("router", "client", family);
        let (_, said) = rig.print("client", &format!("ping -n -c 1 -t 1 {server}"));
        assert!(
            said.contains(&near.to_string()) && said.contains("exceeded"),
            "{said}"
        );
        let long = format!("ping -n -c 1 -W 30 -M do -s 1440 {server}");
        let (worked, said) = rig.print("client", &long);
        assert!(!worked && said.contains("1400"), "{said}");
        // This host answers, by either of its addresses.
        for peer in ["client", "server"] {
            let (worked, said) = rig.ping(rig.address("router", peer, family));
            assert!(worked, "{said}");
        }
    }
    await_that("those too long", || rig.punted(PuntReason::TooLong) >= 2);
    assert_eq!(rig.punted(PuntReason::Local), 0, "these never came here");
    let near = rig.address("router", "client", Family::V4);
    let (worked, said) = rig.print("client", &format!("ip route add 8.8.8.8 via {near}"));
    assert!(worked, "{said}");
    let (worked, said) = rig.print("client", "ping -n -c 1 -W 30 8.8.8.8");
    assert!(!worked && said.contains("nreachable"), "{said}");
    await_that("the one without a route", || {
        rig.punted(PuntReason::NoRoute) >= 1
    });
    assert_eq!(rig.punted(PuntReason::NoRoute), 1);
    rig.stop();
}

#[test]
fn rules_drop_what_is_forwarded_and_leave_this_host_alone() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new("afxdp-rules", &topology(Neighbours::Permanent, 1500));
    rig.introduce();
    let udp = Protocol::exactly(17);
    let rules = RuleSet {
        v4: vec![Rule4 {
            protocol: udp,
            action: Action::Drop,
            ..Rule4::default()
        }],
        v6: vec![Rule6 {
            protocol: udp,
            action: Action::Drop,
            ..Rule6::default()
        }],
        ..RuleSet::default()
    };
    rig.plane.rules(&rules).unwrap();
    for (round, family) in (1..).zip(FAMILIES) {
        rig.send(family, 7001, 20);
        await_that("the datagrams are dropped", || {
            rig.counters().dropped_by_rule == 20 * round
        });
        let hits = rig.plane.hits();
        assert_eq!(hits[usize::from(round == 2)].rules, [20]);
        // Others pass.
        rig.converse(family);
    }
    assert!(rig.plane.hits().iter().all(|hits| hits.none > 100));
    let everything = RuleSet {
        v4: vec![Rule4 {
            action: Action::Drop,
            ..Rule4::default()
        }],
        ..RuleSet::default()
    };
    rig.plane.rules(&everything).unwrap();
    // Nothing is forwarded.
    rig.ping_in_vain(rig.server(Family::V4));
    let near = rig.address("router", "client", Family::V4);
    let (worked, said) = rig.ping(near);
    assert!(worked, "{said}");
    rig.plane.rules(&RuleSet::default()).unwrap();
    let (worked, said) = rig.ping(rig.server(Family::V4));
    assert!(worked, "{said}");
    rig.stop();
}

/// RFC 1812, 5.2.2 and 5.3.7; what is behind the packet is no part of it.
#[test]
fn damaged_and_forged_packets_stay_and_others_are_cut_to_their_length() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new("afxdp-1812", &topology(Neighbours::Permanent, 1500));
    rig.introduce();
    let near = rig.host("client").interface("router").unwrap().clone();
    let seen = rig.host("server").run(|| {
        let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
        socket::socket(AddressFamily::Packet, kind, flags, SockProtocol::EthAll).unwrap()
    });
    let seen = seen.unwrap();
    for family in FAMILIES {
        let from = rig.address("client", "router", family);
        let packet = |source: IpAddr, payload: &[u8]| {
            let to = SocketAddr::new(rig.server(family), 9);
            let packet = build::udp(SocketAddr::new(source, 9), to).ttl(64);
            packet.macs(near.mac, near.peers[0].mac).payload(payload)
        };
        let mut frames = Vec::new();
        if family == Family::V4 {
            let mut damaged = packet(from, &[b'd'; 64]).frame();
            let mut ip = ipv4::Packet::new_checked(&mut damaged[14..]).unwrap();
            let wrong = ip.checksum() ^ 1;
            ip.set_checksum(wrong);
            frames.push(damaged);
            // Of IPv6 the kernel does not look for forged sources.
            for peer in ["client", "server"] {
                let own = rig.address("router", peer, family);
                frames.push(packet(own, &[b'f'; 64]).frame());
            }
        }
        let whole = packet(from, &[b'w'; 64]);
        frames.push(whole.clone().padding(300).frame());
        let send = || {
            let sender = sys::socket::raw_sender(near.ifindex).unwrap();
            for frame in &frames {
                socket::send(sender.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
            }
        };
        rig.host("client").run(send).unwrap();
        let length = whole.frame().len();
        // The last one is behind all others.
        loop {
            let mut bytes = [0; 2048];
            let received = socket::recv(seen.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
            let ends = bytes[length - 64..length].to_vec();
            assert!(ends != [b'd'; 64] && ends != [b'f'; 64], "{family:?}");
            if ends == [b'w'; 64] {
                assert_eq!(received, length, "{family:?}");
                break;
            }
        }
    }
    rig.stop();
}

#[test]
fn a_device_decides_about_what_comes_by_devices() {
    if !sys::require::root() {
        return;
    }
    let listed = match gpu::Backend::OpenCl.devices() {
        Ok(devices) => devices.into_iter().next().unwrap(),
        Err(missing) => {
            let reason = format!("{missing}: {}", missing.remedy);
            return sys::require::skip(sys::require::Class::Core, &reason);
        }
    };
    let device = Gpu {
        latest: true,
        ..Gpu::of(listed)
    };
    let wait = Duration::from_millis(1);
    let topology = topology(Neighbours::Permanent, 1500);
    let mut rig = Rig::with("afxdp-device", &topology, Some(device), wait);
    rig.introduce();
    let udp = RuleSet {
        v4: vec![Rule4 {
            protocol: Protocol::exactly(17),
            action: Action::Drop,
            ..Rule4::default()
        }],
        ..RuleSet::default()
    };
    rig.plane.rules(&udp).unwrap();
    for family in FAMILIES {
        let before = rig.counters().forwarded;
        let (worked, said) = rig.ping(rig.server(family));
        assert!(worked && none_is_lost(&said), "{said}");
        // Answers can arrive before their batch is counted, which is once its frames have left.
        await_that("both directions", || rig.counters().forwarded >= before + 6);
    }
    rig.send(Family::V4, 7001, 20);
    await_that("the datagrams are dropped", || {
        rig.counters().dropped_by_rule == 20
    });
    // Another meaning, and another route, from the next packet on.
    let IpAddr::V4(server) = rig.server(Family::V4) else {
        panic!("an address of the wrong family");
    };
    let prefix = Prefix::new(server.to_bits(), 32).unwrap();
    let drop = Forwarding::Drop;
    rig.plane.next_hop(Family::V4, hop(GROUP), &drop).unwrap();
    rig.plane.route4(prefix, Some(hop(GROUP))).unwrap();
    // Its route leads nowhere.
    rig.ping_in_vain(server.into());
    await_that("the packets are dropped", || {
        rig.counters().dropped_by_route >= 3
    });
    rig.plane.route4(prefix, None).unwrap();
    let (worked, said) = rig.ping(server.into());
    assert!(worked, "{said}");
    assert_eq!(rig.plane.fallback_status(), None);
    assert_eq!(rig.stop().drops_undecided, 0);
}
