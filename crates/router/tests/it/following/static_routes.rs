//! Static routes, which replace the kernel's routes and use its devices, networks and neighbours.

use std::convert::Infallible;

use lpm::{Fib4, Fib6, Layout4, Layout6};
use router::follow::{Follower, Options};
use router::forward::{Forwarding, Punt};
use router::image::ImageRoutes;
use router::routes;

use super::kernel::{is, leaves_to, router};
use super::lab::{Space, TestFollower, ip};
use super::plane::Memory;

const PUNT_UNRESOLVED: Forwarding = Forwarding::Punt(Punt::Unresolved);

/// A follower whose plane has these routes before its first call.
fn follow(space: &Space, list: &str) -> TestFollower {
    let read = routes::read("routes", list.as_bytes(), &routes::Options::default()).unwrap();
    let routes = read.routes;
    let (v4, v6) = (routes.numbered4().unwrap(), routes.numbered6().unwrap());
    let targets = |places: &[u32]| {
        let target = |place: &u32| routes.targets[*place as usize].clone();
        places.iter().map(target).collect()
    };
    let given = ImageRoutes {
        hops4: targets(&v4.targets),
        hops6: targets(&v6.targets),
        v4: v4.rib,
        v6: v6.rib,
    };
    space.inside(|| {
        let mut plane = Memory::new();
        plane.v4 = Fib4::build(given.v4.clone(), Layout4::Words).unwrap();
        plane.v6 = Fib6::build(given.v6.clone(), Layout6::Flat).unwrap();
        let options = Options::default();
        Follower::start_with(options, &given, |besides4, besides6| {
            for (prefix, hop) in &besides4 {
                plane.v4.insert(prefix, hop).unwrap();
            }
            for (prefix, hop) in &besides6 {
                plane.v6.insert(prefix, hop).unwrap();
            }
            Ok::<_, Infallible>(plane)
        })
        .unwrap()
    })
}

#[test]
fn given_routes_go_by_the_kernels_devices_and_neighbours() {
    let Some((space, one, two)) = router("given") else {
        return;
    };
    // These routes are not used.
    space.run("ip route add 198.51.100.0/24 via 10.1.0.2");
    space.run("ip route add 192.0.2.0/24 via 10.1.0.2");
    let list = "default via 10.1.0.2\n192.0.2.0/24 via 10.2.0.2\nblackhole 203.0.113.0/24\n\
        100.64.0.0/10 via 10.9.0.2\n100.65.0.0/16 dev eth2\n\
        100.66.0.0/16 \n\tnexthop via 10.1.0.2 dev eth1 weight 1 \n\tnexthop via 10.2.0.2 dev eth2 weight 1 \n\
        2001:db8::/32 via fd02::2 dev eth2\n";
    let followed = follow(&space, list);
    leaves_to(&space, &followed, "192.0.2.1", two.mac("eth0"), "eth2");
    leaves_to(&space, &followed, "198.51.100.1", one.mac("eth0"), "eth1");
    leaves_to(&space, &followed, "2001:db8::1", two.mac("eth0"), "eth2");
    is(&followed, "203.0.113.1", Forwarding::Drop);
    is(&followed, "100.64.0.1", PUNT_UNRESOLVED);
    is(&followed, "10.1.0.1", Forwarding::Punt(Punt::Local));
    let group = |flow| {
        let way = |plane: &Memory| plane.neighbour(ip("100.66.0.1"), flow).map(|to| to.ifindex);
        followed.with(|follow| way(follow.plane()))
    };
    leaves_to(&space, &followed, "100.66.0.1", one.mac("eth0"), "eth1");
    assert_eq!(group(1), Some(space.index("eth2")));
    // A connected network appears: the gateway in it resolves, until the network is removed.
    two.run("ip addr add 10.9.0.2/24 dev eth0");
    space.run("ip addr add 10.9.0.1/24 dev eth2");
    leaves_to(&space, &followed, "100.64.0.1", two.mac("eth0"), "eth2");
    space.run("ip addr del 10.9.0.1/24 dev eth2");
    is(&followed, "100.64.0.1", PUNT_UNRESOLVED);
    // Neighbours on the link of a connected route get host routes.
    two.run("ip addr add 100.65.0.2/16 dev eth0");
    let mac: Vec<String> = two
        .mac("eth0")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    space.run(&format!(
        "ip neigh replace 100.65.0.2 lladdr {} dev eth2",
        mac.join(":")
    ));
    leaves_to(&space, &followed, "100.65.0.2", two.mac("eth0"), "eth2");
    // Static routes stay when their device goes down, and work again with it.
    space.run("ip link set eth1 down");
    is(&followed, "198.51.100.1", PUNT_UNRESOLVED);
    space.run("ip link set eth1 up");
    leaves_to(&space, &followed, "198.51.100.1", one.mac("eth0"), "eth1");
    assert_eq!(
        followed.status().ipv4.next_hops.drops,
        1,
        "{:#?}",
        followed.status()
    );
}
