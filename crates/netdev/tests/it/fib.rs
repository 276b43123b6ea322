//! Next hops as the kernel's tables give them: on the link, by gateway, limited, down, local.

use std::os::fd::AsFd;

use netdev::{Destination, Fib, LinkSpec, NeighbourState, NextHop, Route, UnresolvedReason};

use crate::common::{FAR, NEAR, Pair, Space, ip};

fn fib(pair: &Pair) -> Fib {
    pair.near.run(|| Fib::new().unwrap())
}

fn route(destination: &str, prefix_len: u8, gateway: Option<&str>, mtu: Option<u32>) -> Route {
    Route {
        destination: ip(destination),
        prefix_len,
        gateway: gateway.map(ip),
        ifindex: None,
        mtu,
    }
}

#[test]
fn a_destination_on_the_link_is_ready_once_its_neighbour_is_known() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut fib = fib(&pair);
    for (near, far) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        let far = ip(far);
        let unknown = UnresolvedReason::NoNeighbour {
            ifindex: pair.ifindex,
            gateway: far,
        };
        assert_eq!(
            fib.next_hop(far.into()).unwrap(),
            NextHop::Unresolved(unknown)
        );
        pair.near
            .netlink()
            .set_neighbours(&[(pair.ifindex, far, FAR)], NeighbourState::Permanent)
            .unwrap();
        let ready = NextHop::Ready {
            ifindex: pair.ifindex,
            source_mac: NEAR,
            destination_mac: FAR,
            mtu: 1500,
            source: ip(near),
        };
        assert_eq!(fib.next_hop(far.into()).unwrap(), ready);
    }
}

#[test]
fn a_gateway_is_the_neighbour_and_the_smaller_mtu_holds() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut netlink = pair.near.netlink();
    let routes = [
        route("192.0.2.0", 24, Some("10.9.0.2"), Some(1300)),
        route("2001:db8::", 32, Some("fd09::2"), None),
        route("198.51.100.0", 24, Some("fd09::2"), None),
    ];
    netlink.add_routes(&routes).unwrap();
    let listed = netlink.routes().unwrap();
    for route in &routes {
        let route = Route {
            ifindex: Some(pair.ifindex),
            ..*route
        };
        let found = listed.iter().any(|listed| {
            (listed.destination, listed.gateway) == (route.destination, route.gateway)
                && listed.mtu == route.mtu
        });
        assert!(found, "{route:?} not in {listed:?}");
    }
    for gateway in ["10.9.0.2", "fd09::2"] {
        netlink
            .set_neighbours(
                &[(pair.ifindex, ip(gateway), FAR)],
                NeighbourState::Reachable,
            )
            .unwrap();
    }
    let mut fib = fib(&pair);
    for (destination, source, wanted) in [
        ("192.0.2.7", "10.9.0.1", 1300),
        ("2001:db8::7", "fd09::1", 1500),
        ("198.51.100.7", "10.9.0.1", 1500),
    ] {
        let ready = NextHop::Ready {
            ifindex: pair.ifindex,
            source_mac: NEAR,
            destination_mac: FAR,
            mtu: wanted,
            source: ip(source),
        };
        assert_eq!(fib.next_hop(ip(destination).into()).unwrap(), ready);
    }
    netlink.delete_route(&routes[0]).unwrap();
    assert_eq!(
        fib.next_hop(ip("192.0.2.7").into()).unwrap(),
        NextHop::Unresolved(UnresolvedReason::NoRoute)
    );
}

#[test]
fn what_no_frame_can_reach_says_why() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut fib = fib(&pair);
    let mut why = |address: &str, ifindex| {
        let destination = Destination {
            source: None,
            address: ip(address),
            ifindex,
        };
        match fib.next_hop(destination).unwrap() {
            NextHop::Unresolved(why) => why,
            ready @ NextHop::Ready { .. } => panic!("{ready:?}"),
        }
    };
    for destination in ["192.0.2.1", "2001:db8::1", "239.1.1.1"] {
        assert_eq!(
            why(destination, None),
            UnresolvedReason::NoRoute,
            "{destination}"
        );
    }
    for own in ["10.9.0.1", "fd09::1"] {
        assert_eq!(why(own, None), UnresolvedReason::Local, "{own}");
    }
    let gone = UnresolvedReason::LinkDown { ifindex: 4000 };
    assert_eq!(why("10.9.0.2", Some(4000)), gone);
    pair.far
        .netlink()
        .set_link(pair.far.index("eth0"), &LinkSpec::unnamed().down())
        .unwrap();
    let ifindex = pair.ifindex;
    for far in ["10.9.0.2", "fd09::2"] {
        assert_eq!(
            why(far, Some(ifindex)),
            UnresolvedReason::LinkDown { ifindex },
            "no carrier to {far}"
        );
    }
}

#[test]
fn groups_leave_by_the_chosen_device_under_derived_addresses() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut fib = fib(&pair);
    for (group, mac, source) in [
        ("239.129.1.2", [1, 0, 0x5e, 1, 1, 2], "10.9.0.1"),
        ("ff35::1:2", [0x33, 0x33, 0, 1, 0, 2], "fd09::1"),
    ] {
        let destination = Destination {
            source: None,
            address: ip(group),
            ifindex: Some(pair.ifindex),
        };
        let ready = NextHop::Ready {
            ifindex: pair.ifindex,
            source_mac: NEAR,
            destination_mac: mac,
            mtu: 1500,
            source: ip(source),
        };
        assert_eq!(fib.next_hop(destination).unwrap(), ready);
    }
}

#[test]
fn a_link_local_address_is_found_on_its_device_only() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    // RFC 4291 appendix A makes it of FAR.
    let far = ip("fe80::ff:fe00:2");
    pair.near
        .netlink()
        .set_neighbours(&[(pair.ifindex, far, FAR)], NeighbourState::Permanent)
        .unwrap();
    let destination = Destination {
        source: None,
        address: far,
        ifindex: Some(pair.ifindex),
    };
    let ready = NextHop::Ready {
        ifindex: pair.ifindex,
        source_mac: NEAR,
        destination_mac: FAR,
        mtu: 1500,
        source: ip("fe80::ff:fe00:1"),
    };
    assert_eq!(fib(&pair).next_hop(destination).unwrap(), ready);
}

#[test]
fn a_learned_path_mtu_holds() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let far = ip("10.9.0.2");
    let neighbours = [(pair.ifindex, far, FAR)];
    pair.near
        .netlink()
        .set_neighbours(&neighbours, NeighbourState::Permanent)
        .unwrap();
    let mtu = |fib: &mut Fib| match fib.next_hop(ip("192.0.2.9").into()).unwrap() {
        NextHop::Ready { mtu, .. } => mtu,
        NextHop::Unresolved(why) => panic!("{why:?}"),
    };
    let route = route("192.0.2.0", 24, Some("10.9.0.2"), None);
    pair.near.netlink().add_routes(&[route]).unwrap();
    // The far end forwards to a link that is narrower, and says so.
    pair.far.sysctl("ipv4/ip_forward", "1");
    let mut there = pair.far.netlink();
    there
        .add_bridge(&LinkSpec::new("narrow").mtu(1300).up())
        .unwrap();
    let narrow = pair.far.index("narrow");
    there
        .add_addresses(&[(narrow, ip("192.0.2.1"), 24)])
        .unwrap();
    let mut fib = fib(&pair);
    assert_eq!(mtu(&mut fib), 1500);
    let started = std::time::Instant::now();
    while mtu(&mut fib) != 1300 {
        assert!(started.elapsed() < std::time::Duration::from_secs(10));
        pair.near.run(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            // Refused once the path's limit is known.
            let _ = socket.send_to(&[0; 1400], "192.0.2.9:9");
        });
    }
}

#[test]
fn bridges_and_macvlans_are_resolved_like_any_device() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mut netlink = pair.near.netlink();
    netlink
        .add_macvlan(
            &LinkSpec::new("mac0").mac([2, 0, 0, 0, 0, 7]).up(),
            pair.ifindex,
        )
        .unwrap();
    netlink
        .add_bridge(&LinkSpec::new("br0").mac([2, 0, 0, 0, 0, 8]).up())
        .unwrap();
    let [mac0, br0] = ["mac0", "br0"].map(|name| pair.near.index(name));
    let port = Space::new();
    netlink
        .add_veth(
            &LinkSpec::new("port0").controller(br0).up(),
            &LinkSpec::new("eth0").namespace(port.namespace.as_fd()),
        )
        .unwrap();
    port.netlink()
        .set_link(port.index("eth0"), &LinkSpec::unnamed().up())
        .unwrap();
    netlink
        .add_addresses(&[(mac0, ip("10.8.0.1"), 24), (br0, ip("10.7.0.1"), 24)])
        .unwrap();
    let neighbours = [(mac0, ip("10.8.0.2"), FAR), (br0, ip("10.7.0.2"), FAR)];
    netlink
        .set_neighbours(&neighbours, NeighbourState::Permanent)
        .unwrap();
    let links = netlink.links().unwrap();
    let kind = |index| {
        let link = links.iter().find(|link| link.index == index).unwrap();
        link.kind.as_deref().unwrap()
    };
    assert_eq!((kind(mac0), kind(br0)), ("macvlan", "bridge"));
    let port0 = netlink.link_by_name("port0").unwrap();
    assert_eq!(port0.controller, Some(br0));
    assert!(port0.link_namespace.is_some(), "its peer is elsewhere");
    let mut fib = fib(&pair);
    for (ifindex, address, _) in neighbours {
        let hop = fib.next_hop(address.into()).unwrap();
        assert!(
            matches!(hop, NextHop::Ready { ifindex: i, destination_mac: FAR, .. } if i == ifindex),
            "{hop:?}"
        );
    }
    netlink.delete_link(mac0).unwrap();
    assert!(matches!(
        netlink.link_by_name("mac0"),
        Err(netdev::Error::NoInterface(name)) if name == "mac0"
    ));
}

#[test]
fn a_refusal_carries_the_kernels_words() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let error = pair
        .near
        .netlink()
        .add_routes(&[route("192.0.2.0", 24, Some("203.0.113.1"), None)])
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("192.0.2.0/24"), "{text}");
    assert!(text.contains("(Nexthop has invalid gateway)"), "{text}");
}
