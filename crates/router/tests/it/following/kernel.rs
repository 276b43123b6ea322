//! Routes, neighbours, links and next-hop objects as `ip` changes them.

use std::net::IpAddr;

use router::follow::{Options, SyncState};
use router::forward::{Forwarding, Punt};
use sys::require::{Class, skip};

use super::lab::{Space, TestFollower, assert_agree, follow, follow_with, ip, until};
use super::plane::Memory;

const PUNT_UNRESOLVED: Forwarding = Forwarding::Punt(Punt::Unresolved);

/// A router with two cables: eth1 (10.1.0.1/24, fd01::1/64) and eth2 (10.2.0.1/24, fd02::1/64)
/// to hosts with .2 and ::2.
pub(crate) fn router(name: &str) -> Option<(Space, Space, Space)> {
    let router = Space::new(&format!("{name}-r"))?;
    let hosts = [1, 2].map(|n| Space::new(&format!("{name}-{n}")).unwrap());
    for (n, host) in (1..).zip(&hosts) {
        router.cable(&format!("eth{n}"), host, "eth0");
        router.run(&format!("ip addr add 10.{n}.0.1/24 dev eth{n}"));
        router.run(&format!("ip addr add fd0{n}::1/64 dev eth{n} nodad"));
        host.run(&format!("ip addr add 10.{n}.0.2/24 dev eth0"));
        host.run(&format!("ip addr add fd0{n}::2/64 dev eth0 nodad"));
    }
    let [one, two] = hosts;
    Some((router, one, two))
}

pub(crate) fn leaves_to(
    space: &Space,
    followed: &TestFollower,
    to: &str,
    mac: [u8; 6],
    device: &str,
) {
    let index = space.index(device);
    until(&format!("{to} by {device}"), followed, |follow| {
        let adjacency = follow.plane().neighbour(ip(to), 0);
        adjacency.is_some_and(|to| (to.destination, to.ifindex) == (mac, index))
    });
}

pub(crate) fn is(followed: &TestFollower, to: &str, what: impl Into<Option<Forwarding>>) {
    let what = what.into();
    until(&format!("{to} is {what:?}"), followed, |follow| {
        follow.plane().forward(ip(to), 0) == what
    });
}

const KINDS: [&str; 14] = [
    "blackhole 192.0.2.0/25",
    "unreachable 192.0.2.128/26",
    "prohibit 192.0.2.192/26",
    "throw 198.51.100.0/24",
    "203.0.113.0/24 via 10.1.0.2 metric 20",
    "203.0.113.0/24 via 10.2.0.2 metric 10",
    "203.0.113.128/25 via 10.1.0.2 mtu 1300",
    "100.64.0.0/10 via inet6 fd02::2 dev eth2",
    "100.65.0.0/16 via 172.31.0.1 dev eth1 onlink",
    "default via 10.1.0.2",
    "-6 default via fd01::2",
    "-6 2001:db8::/32 via fd02::2",
    "-6 blackhole 2001:db8:1::/48",
    "-6 unreachable 2001:db8:2::/48",
];
/// Addresses at the bounds of those.
const KINDS_AT: [&str; 35] = [
    "192.0.2.0",
    "192.0.2.127",
    "192.0.2.128",
    "192.0.2.191",
    "192.0.2.192",
    "192.0.3.0",
    "203.0.112.255",
    "203.0.113.0",
    "203.0.113.127",
    "203.0.113.128",
    "203.0.113.255",
    "100.63.255.255",
    "100.64.0.0",
    "100.65.0.0",
    "100.127.255.255",
    "100.128.0.0",
    "10.1.0.0",
    "10.1.0.1",
    "10.1.0.2",
    "10.1.0.255",
    "10.1.1.0",
    "127.0.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "fd01::1",
    "fd01::2",
    "fd01::3",
    "fd02::1",
    "2001:db8::1",
    "2001:db8:1::1",
    "2001:db8:2::1",
    "2001:db8:3::",
    "2001:db9::",
    "::1",
    "ff02::1",
];

#[test]
fn kinds_of_routes_are_what_the_kernel_makes_of_them() {
    let Some((router, _one, _two)) = router("kinds") else {
        return;
    };
    for route in KINDS {
        let (family, route) = route.strip_prefix("-6 ").map_or(("", route), |r| ("-6", r));
        router.run(&format!("ip {family} route add {route}"));
    }
    let followed = follow(&router);
    let addresses = KINDS_AT.map(ip);
    assert_agree(&router, &followed, &addresses);
    is(&followed, "192.0.2.1", Forwarding::Drop);
    is(
        &followed,
        "192.0.2.129",
        Some(Forwarding::Punt(Punt::Refused)),
    );
    is(
        &followed,
        "198.51.100.1",
        Some(Forwarding::Punt(Punt::Refused)),
    );
    is(&followed, "10.1.0.1", Forwarding::Punt(Punt::Local));
    is(&followed, "10.1.0.77", PUNT_UNRESOLVED);
    for (route, to) in [
        ("del default", "192.0.3.0"),
        ("del 203.0.113.0/24 metric 10", "203.0.113.1"),
        ("replace blackhole 203.0.113.0/24 metric 20", "203.0.113.1"),
        ("add 203.0.113.0/24 via 10.2.0.2 metric 5", "203.0.113.1"),
        ("change 203.0.113.0/24 via 10.1.0.2 metric 5", "203.0.113.1"),
        ("append 203.0.113.0/24 via 10.2.0.2 metric 5", "203.0.113.1"),
        (
            "prepend 203.0.113.0/24 via 10.2.0.2 metric 4",
            "203.0.113.1",
        ),
    ] {
        let before = followed.status().changes.routes;
        router.run(&format!("ip route {route}"));
        until(route, &followed, |follow| {
            follow.status().changes.routes > before
        });
        assert_agree(&router, &followed, &[&addresses[..], &[ip(to)]].concat());
    }
    let mtu = followed.with(|follow| follow.next_hops());
    assert!(mtu.iter().any(|hop| hop.to == "via 10.1.0.2 dev eth1"));
}

#[test]
fn neighbours_are_followed() {
    let Some((router, one, two)) = router("neigh") else {
        return;
    };
    router.run("ip route add 203.0.113.0/24 via 10.1.0.2");
    router.run("ip -6 route add 2001:db8::/32 via fd02::2");
    let followed = follow(&router);
    // Gateways are asked for, before any packet comes.
    leaves_to(&router, &followed, "203.0.113.1", one.mac("eth0"), "eth1");
    leaves_to(&router, &followed, "2001:db8::1", two.mac("eth0"), "eth2");
    // They are neighbours on a link as well; others there are the kernel's to find.
    leaves_to(&router, &followed, "10.1.0.2", one.mac("eth0"), "eth1");
    is(&followed, "10.1.0.9", PUNT_UNRESOLVED);
    router.run("ip neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev eth1 nud permanent");
    leaves_to(&router, &followed, "10.1.0.9", [2, 0, 0, 0, 0, 9], "eth1");
    router.run("ip neigh replace 10.1.0.9 lladdr 02:00:00:00:00:0a dev eth1 nud permanent");
    leaves_to(&router, &followed, "10.1.0.9", [2, 0, 0, 0, 0, 10], "eth1");
    // A route within the link goes before the neighbour.
    router.run("ip route add 10.1.0.8/29 via 10.2.0.2");
    leaves_to(&router, &followed, "10.1.0.9", two.mac("eth0"), "eth2");
    router.run("ip route del 10.1.0.8/29");
    leaves_to(&router, &followed, "10.1.0.9", [2, 0, 0, 0, 0, 10], "eth1");
    router.run("ip neigh del 10.1.0.9 dev eth1");
    is(&followed, "10.1.0.9", PUNT_UNRESOLVED);
    router.run("ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:0b dev eth1 nud permanent");
    leaves_to(
        &router,
        &followed,
        "203.0.113.1",
        [2, 0, 0, 0, 0, 11],
        "eth1",
    );
    let adjacency = followed.with(|follow| follow.plane().neighbour(ip("203.0.113.1"), 0));
    let adjacency = adjacency.unwrap();
    assert_eq!(adjacency.source, router.mac("eth1"));
    assert_eq!((adjacency.mtu, adjacency.vlan), (1500, None));
}

#[test]
fn what_a_link_carries_goes_with_it() {
    let Some((router, one, two)) = router("link") else {
        return;
    };
    router.run("ip route add 203.0.113.0/24 via 10.1.0.2 metric 10");
    router.run("ip route add 203.0.113.0/24 via 10.2.0.2 metric 20");
    router.run("ip route add 192.0.2.0/24 via 10.1.0.2");
    router.run("ip route add 100.64.0.0/10 via 10.2.0.2 src 10.1.0.1");
    let followed = follow(&router);
    let ours = [
        "203.0.113.1",
        "192.0.2.1",
        "10.1.0.1",
        "10.1.0.2",
        "100.64.0.1",
    ]
    .map(ip);
    leaves_to(&router, &followed, "203.0.113.1", one.mac("eth0"), "eth1");
    leaves_to(&router, &followed, "100.64.0.1", two.mac("eth0"), "eth2");
    // No carrier: the kernel keeps its routes, and packets are its to refuse.
    one.run("ip link set eth0 down");
    is(&followed, "203.0.113.1", PUNT_UNRESOLVED);
    is(&followed, "192.0.2.1", PUNT_UNRESOLVED);
    one.run("ip link set eth0 up");
    leaves_to(&router, &followed, "203.0.113.1", one.mac("eth0"), "eth1");
    // Down: its routes are gone, without a word for IPv4.
    router.run("ip link set eth1 down");
    leaves_to(&router, &followed, "203.0.113.1", two.mac("eth0"), "eth2");
    is(&followed, "192.0.2.1", None);
    is(&followed, "10.1.0.2", None);
    assert_agree(&router, &followed, &ours);
    router.run("ip link set eth1 up");
    router.run("ip route add 192.0.2.0/24 via 10.1.0.2");
    leaves_to(&router, &followed, "192.0.2.1", one.mac("eth0"), "eth1");
    leaves_to(&router, &followed, "10.1.0.2", one.mac("eth0"), "eth1");
    assert_agree(&router, &followed, &ours);
    router.run("ip addr del 10.1.0.1/24 dev eth1");
    is(&followed, "100.64.0.1", None);
    is(&followed, "10.1.0.1", None);
    assert_agree(&router, &followed, &ours);
    router.run("ip link del eth2");
    is(&followed, "203.0.113.1", None);
    assert_agree(&router, &followed, &ours);
    // A new listing finds nothing else.
    let listings = followed.status().listings;
    until("another listing", &followed, |follow| {
        follow.status().listings > listings || !follow.needs_resync()
    });
    assert_agree(&router, &followed, &ours);
}

#[test]
fn vlans_leave_by_the_device_below() {
    let Some((router, one, _two)) = router("vlan") else {
        return;
    };
    if router
        .output("ip link add link eth1 name eth1.7 type vlan id 7", b"")
        .status
        .code()
        != Some(0)
    {
        return skip(Class::Hardware, "this kernel has no VLAN devices");
    }
    router.run("ip link set eth1.7 up");
    router.run("ip addr add 10.7.0.1/24 dev eth1.7");
    one.run("ip link add link eth0 name eth0.7 type vlan id 7");
    one.run("ip link set eth0.7 up");
    one.run("ip addr add 10.7.0.2/24 dev eth0.7");
    router.run("ip route add 203.0.113.0/24 via 10.7.0.2 mtu 1400");
    let followed = follow(&router);
    leaves_to(&router, &followed, "203.0.113.1", one.mac("eth0.7"), "eth1");
    let adjacency = followed.with(|follow| follow.plane().neighbour(ip("203.0.113.1"), 0));
    let adjacency = adjacency.unwrap();
    assert_eq!((adjacency.vlan, adjacency.mtu), (Some(7), 1400));
    router.run("ip link set eth1.7 down");
    is(&followed, "203.0.113.1", None);
}

#[test]
fn what_only_the_kernel_can_do_is_left_to_it() {
    let Some((router, _one, _two)) = router("kernels") else {
        return;
    };
    router.run("ip link add br0 type bridge");
    router.run("ip link set br0 up");
    router.run("ip addr add 10.8.0.1/24 dev br0");
    router.run("ip neigh add 10.8.0.2 lladdr 02:00:00:00:08:02 dev br0 nud permanent");
    router.run("ip route add 192.0.2.0/24 via 10.8.0.2");
    router.run("ip route add 198.51.100.0/24 tos 0x10 via 10.1.0.2");
    router.run("ip route add 198.51.100.0/24 via 10.2.0.2");
    let followed = follow(&router);
    is(&followed, "192.0.2.1", Forwarding::Punt(Punt::Device));
    // What depends on the type of service is the kernel's for all.
    is(
        &followed,
        "198.51.100.1",
        Some(Forwarding::Punt(Punt::Device)),
    );
    router.run("ip route del 198.51.100.0/24 tos 0x10");
    until("without the type of service", &followed, |follow| {
        follow.plane().neighbour(ip("198.51.100.1"), 0).is_some()
    });
}

#[test]
fn a_device_that_the_plane_cannot_send_by_is_the_kernels() {
    let Some((router, _one, two)) = router("unable") else {
        return;
    };
    router.run("ip route add 203.0.113.0/24 via 10.1.0.2");
    router.run("ip route add 192.0.2.0/24 nexthop via 10.1.0.2 nexthop via 10.2.0.2");
    let mut plane = Memory::new();
    plane.unable.push(router.index("eth1"));
    let followed = follow_with(&router, plane, Options::default());
    is(
        &followed,
        "203.0.113.1",
        Some(Forwarding::Punt(Punt::Device)),
    );
    // A group sends its share there.
    until("half by the kernel", &followed, |follow| {
        let plane = follow.plane();
        let ways = [0, 1].map(|flow| plane.forward(ip("192.0.2.1"), flow));
        let mac = two.mac("eth0");
        let by_two = |way: &Option<Forwarding>| matches!(way, Some(Forwarding::Neighbour(to)) if to.destination == mac);
        ways.contains(&Some(Forwarding::Punt(Punt::Device))) && ways.iter().any(by_two)
    });
}

#[test]
fn without_numbers_packets_are_the_kernels_and_numbers_come_back() {
    let Some((router, one, _two)) = router("numbers") else {
        return;
    };
    let plane = Memory::new();
    let options = Options {
        next_hops: 8,
        ..Options::default()
    };
    let followed = follow_with(&router, plane, options);
    for host in 3..20 {
        let lladdr = format!("02:00:00:00:00:{host:02x}");
        router.run(&format!(
            "ip neigh add 10.1.0.{host} lladdr {lladdr} dev eth1 nud permanent"
        ));
        router.run(&format!("ip route add 192.0.2.{host}/32 via 10.1.0.{host}"));
    }
    is(
        &followed,
        "192.0.2.19",
        Some(Forwarding::Punt(Punt::Device)),
    );
    for host in 3..19 {
        router.run(&format!("ip route del 192.0.2.{host}/32 via 10.1.0.{host}"));
        router.run(&format!("ip neigh del 10.1.0.{host} dev eth1"));
    }
    until("a number for the last", &followed, |follow| {
        let to = follow.plane().neighbour(ip("192.0.2.19"), 0);
        to.is_some_and(|to| to.destination == [2, 0, 0, 0, 0, 19])
    });
    until("all placed", &followed, |follow| {
        follow.status().ipv4.unplaced == 0
    });
    router.run("ip route add 203.0.113.0/24 via 10.1.0.2");
    leaves_to(&router, &followed, "203.0.113.1", one.mac("eth0"), "eth1");
}

#[test]
fn after_an_overrun_all_is_as_in_the_kernel() {
    let Some((router, _one, _two)) = router("overrun") else {
        return;
    };
    let options = Options {
        recv_buffer_bytes: 4 << 10,
        ..Options::default()
    };
    let followed = follow_with(&router, Memory::new(), options);
    let batch = |word: &str, from: u32, to: u32| {
        let lines = (from..to).map(|n| {
            format!(
                "route {word} 100.{}.{}.0/24 via 10.1.0.2\n",
                64 + n / 256,
                n % 256
            )
        });
        lines.collect::<String>()
    };
    router.feed("ip -batch -", batch("add", 0, 4000).as_bytes());
    // Nothing reads meanwhile, and the little room is soon full.
    followed.with(|_| router.feed("ip -batch -", batch("del", 1000, 3000).as_bytes()));
    let addresses: Vec<IpAddr> = (0..4000)
        .map(|n| ip(&format!("100.{}.{}.1", 64 + n / 256, n % 256)))
        .collect();
    until("2000 are left", &followed, |follow| {
        let gone = |n: usize| follow.plane().forward(addresses[n], 0).is_none();
        let wrong = (0..4000).find(|n| gone(*n) != (1000..3000).contains(n));
        wrong.is_none() && follow.status().sync == SyncState::Following
    });
    let status = followed.status();
    assert!(status.overruns > 0, "{status:?}");
    assert!(status.listings > 1, "{status:?}");
    assert_agree(&router, &followed, &addresses);
}

#[test]
fn calls_come_in_an_order_that_sends_nothing_astray() {
    let Some((router, one, _two)) = router("order") else {
        return;
    };
    let followed = follow(&router);
    router.run("ip neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev eth1 nud permanent");
    leaves_to(&router, &followed, "10.1.0.9", [2, 0, 0, 0, 0, 9], "eth1");
    // IPv6 addresses are the kernel's to choose, at a time of its own.
    let told = || {
        let mut calls = followed.with(|follow| std::mem::take(&mut follow.plane_mut().calls));
        calls.retain(|call| call.starts_with("203") || call.starts_with("V4"));
        calls
    };
    told();
    router.run("ip route add 203.0.113.0/24 via 10.1.0.9");
    leaves_to(
        &router,
        &followed,
        "203.0.113.1",
        [2, 0, 0, 0, 0, 9],
        "eth1",
    );
    let calls = told();
    assert_eq!(
        calls.len(),
        1,
        "the neighbour has a number already: {calls:?}"
    );
    assert!(calls[0].starts_with("203.0.113.0/24 Some("), "{calls:?}");
    router.run("ip route replace 203.0.113.0/24 via 10.1.0.10");
    is(&followed, "203.0.113.1", PUNT_UNRESOLVED);
    let calls = told();
    assert!(
        calls[0].contains("= Punt(Unresolved)"),
        "meaning first: {calls:?}"
    );
    assert!(calls[1].starts_with("203.0.113.0/24 Some("), "{calls:?}");
    // A link that goes: first nothing leaves by it, then routes go.
    router.run("ip route replace 203.0.113.0/24 via 10.1.0.2");
    leaves_to(&router, &followed, "203.0.113.1", one.mac("eth0"), "eth1");
    followed.with(|follow| follow.plane_mut().calls.clear());
    router.run("ip link set eth1 down");
    is(&followed, "203.0.113.1", None);
    let calls = told();
    let withdrawn = calls
        .iter()
        .position(|call| call == "203.0.113.0/24 None")
        .unwrap();
    let meanings = calls[..withdrawn]
        .iter()
        .filter(|call| call.contains("= Punt(Unresolved)"));
    assert!(meanings.count() >= 2, "{calls:?}");
}
