//! The xdp data plane between a client and a server, each in a namespace, with the programs that people
//! use.

mod losses;
mod rig;

use netdev::XdpMode;
use rig::{LOCAL, Rig, TO_CLIENT, TO_SERVER, flag};
use router::forward::{Adjacency, Family, Forwarding, Plane};
use router::xdp::{End, Port};
use std::net::IpAddr;
use sys::require::Class;
use testbed::Neighbours;

use crate::common::network::{await_that, hop, none_is_lost, topology};

#[test]
fn tcp_udp_and_ping_pass_without_the_kernel() {
    if !sys::require::root() {
        return;
    }
    for (name, mode) in [
        ("xdp-native", XdpMode::Native),
        ("xdp-generic", XdpMode::Generic),
    ] {
        let mut rig = Rig::new(name, &topology(Neighbours::Permanent, 1500), mode);
        rig.introduce();
        for family in [Family::V4, Family::V6] {
            let before = rig.packets(End::Forwarded);
            rig.converse(family);
            rig.ask(family);
            let server = rig.server(family);
            let (worked, said) =
                rig.print("client", &format!("ping -n -c 3 -i 0.05 -w 30 {server}"));
            assert!(worked && none_is_lost(&said), "{said}");
            assert!(rig.packets(End::Forwarded) > before + 100);
        }
        let counters = rig.xdp.counters().unwrap();
        for end in [
            End::Unresolved,
            End::NoRoute,
            End::NoMeaning,
            End::Malformed,
            End::Martian,
        ] {
            assert_eq!(counters.get(end).packets, 0, "{}", end.name());
        }
        let router = rig.bed.host("router").unwrap();
        let stopped = router.run(|| rig.xdp.stop().unwrap()).unwrap();
        assert_eq!(stopped.get(End::DroppedAtDevice).packets, 0);
    }
}

#[test]
fn errors_are_the_kernels_to_send() {
    if !sys::require::root() {
        return;
    }
    let topology = topology(Neighbours::Permanent, 1400);
    let mut rig = Rig::new("xdp-errors", &topology, XdpMode::Native);
    rig.introduce();
    for family in [Family::V4, Family::V6] {
        let (server, flag) = (rig.server(family), flag(family));
        let near = rig.host("router").interface("client").unwrap();
        let near = if family == Family::V4 {
            near.v4
        } else {
            near.v6
        };
        let (_, said) = rig.print("client", &format!("ping {flag} -n -c 1 -t 1 {server}"));
        assert!(
            said.contains(&near.to_string()) && said.contains("exceeded"),
            "{said}"
        );
        let trace = format!("traceroute {flag} -n -q 1 -w 30 {server}");
        let (worked, said) = rig.print("client", &trace);
        let hops: Vec<_> = said.lines().skip(1).collect();
        assert!(worked && hops.len() == 2, "{said}");
        assert!(hops[0].contains(&format!(" {near} ")), "{said}");
        assert!(hops[1].contains(&format!(" {server} ")), "{said}");
        let expired = rig.packets(End::TtlExpired);
        assert!(expired >= 2, "{expired}");
        let long = format!("ping {flag} -n -c 1 -M do -s 1440 {server}");
        let (worked, said) = rig.print("client", &long);
        assert!(!worked && said.contains("1400"), "{said}");
        // The path's MTU is known now, and TCP finds it out by itself.
        rig.converse(family);
    }
    assert!(rig.packets(End::TooLong) >= 2);
    // Nobody has this address; the route is a network's.
    let IpAddr::V4(server) = rig.server(Family::V4) else {
        panic!()
    };
    let nobody = std::net::Ipv4Addr::from_bits(0x0808_0808);
    let (worked, said) = rig.print(
        "client",
        &format!("ip route add {nobody} via {}", {
            rig.host("router").interface("client").unwrap().v4
        }),
    );
    assert!(worked, "{said}");
    let (worked, said) = rig.print("client", &format!("ping -n -c 1 -W 30 {nobody}"));
    assert!(!worked && said.contains("nreachable"), "{said} {server}");
    assert_eq!(rig.packets(End::NoRoute), 1);
}

#[test]
fn neighbours_are_found_by_the_kernel() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new(
        "xdp-neighbours",
        &topology(Neighbours::Dynamic, 1500),
        XdpMode::Native,
    );
    for family in [Family::V4, Family::V6] {
        // Each of them has to ask for its neighbour, and be answered.
        rig.converse(family);
        assert!(rig.packets(End::Unresolved) > 0);
        assert_eq!(rig.packets(End::Forwarded), 0);
    }
    for (peer, number) in [("server", TO_SERVER), ("client", TO_CLIENT)] {
        for family in [Family::V4, Family::V6] {
            let interface = rig.host("router").interface(peer).unwrap().clone();
            let there = &interface.peers[0];
            let address = if family == Family::V4 {
                there.v4
            } else {
                there.v6
            };
            let mut netlink = rig.host("router").netlink();
            let known = netlink.neighbour(interface.ifindex, address).unwrap();
            let known = known.unwrap();
            drop(netlink);
            assert!(known.usable());
            let to = Adjacency {
                ifindex: interface.ifindex,
                source: interface.mac,
                destination: known.mac.unwrap(),
                vlan: None,
                mtu: interface.mtu,
            };
            rig.next_hop(family, number, &Forwarding::Neighbour(to));
        }
    }
    for family in [Family::V4, Family::V6] {
        let before = (rig.packets(End::Unresolved), rig.packets(End::Forwarded));
        rig.converse(family);
        assert_eq!(rig.packets(End::Unresolved), before.0);
        assert!(rig.packets(End::Forwarded) > before.1 + 100);
    }
}

#[test]
fn vlans_are_routed_to_plain_links_and_back() {
    if !sys::require::root() {
        return;
    }
    let mut rig = Rig::new(
        "xdp-vlan",
        &topology(Neighbours::Permanent, 1500),
        XdpMode::Native,
    );
    rig.introduce();
    let lower = rig.host("router").interface("client").unwrap().clone();
    for (host, device, address) in [("client", "router", 2), ("router", "client", 1)] {
        for words in [
            format!("ip link add link {device} name vlan7 type vlan id 7"),
            format!("ip address add 10.7.0.{address}/24 dev vlan7"),
            format!("ip address add fd07::{address}/64 dev vlan7 nodad"),
            "ip link set vlan7 up".to_owned(),
        ] {
            let (worked, said) = rig.print(host, &words);
            if said.contains("Unknown device type") {
                // What the program does with tags is tested on frames, too.
                return sys::require::skip(Class::Hardware, "this kernel has no VLAN devices");
            }
            assert!(worked, "{words}: {said}");
        }
    }
    for (host, words) in [
        ("client", "ip route replace 10.173.1.0/24 via 10.7.0.1"),
        ("client", "ip route replace fd0a:ad00:0:1::/64 via fd07::1"),
        ("server", "ip route add 10.7.0.0/24 via 10.173.1.1"),
        ("server", "ip route add fd07::/64 via fd0a:ad00:0:1::1"),
    ] {
        let (worked, said) = rig.print(host, words);
        assert!(worked, "{words}: {said}");
    }
    // The VLAN devices have the address of the device below.
    let tagged = Adjacency {
        ifindex: lower.ifindex,
        source: lower.mac,
        destination: lower.peers[0].mac,
        vlan: Some(7),
        mtu: 1500,
    };
    const VLAN_HOP: u16 = 9;
    let mut ports = Vec::new();
    for interface in rig.host("router").interfaces() {
        for tag in [0, 7] {
            ports.push(Port {
                ifindex: interface.ifindex,
                tags: [tag, 0],
                mac: interface.mac,
            });
        }
    }
    let router = rig.bed.host("router").unwrap();
    let xdp = &mut rig.xdp;
    router
        .run(|| {
            for family in [Family::V4, Family::V6] {
                let to = Forwarding::Neighbour(tagged);
                xdp.next_hop(family, hop(VLAN_HOP), &to).unwrap();
            }
            xdp.route4("10.7.0.0/24".parse().unwrap(), Some(hop(VLAN_HOP)))
                .unwrap();
            xdp.route4("10.7.0.1/32".parse().unwrap(), Some(hop(LOCAL)))
                .unwrap();
            xdp.route6("fd07::/64".parse().unwrap(), Some(hop(VLAN_HOP)))
                .unwrap();
            xdp.route6("fd07::1/128".parse().unwrap(), Some(hop(LOCAL)))
                .unwrap();
            xdp.listen(&ports).unwrap();
        })
        .unwrap();
    // Neighbours on the VLAN find each other by the kernel.
    await_that("the VLAN does not come up", || {
        rig.print("client", "ping -n -c 1 -W 1 10.7.0.1").0
            && rig.print("client", "ping -n -c 1 -W 1 fd07::1").0
    });
    for family in [Family::V4, Family::V6] {
        let before = rig.packets(End::Forwarded);
        rig.converse(family);
        assert!(rig.packets(End::Forwarded) > before + 100);
    }
}
