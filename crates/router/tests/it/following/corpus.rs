//! A full table: listed at the start, then changed.

use std::io::Read;
use std::net::IpAddr;

use lpm::{Prefix4, Prefix6};
use netdev::{NeighbourState, Netlink, Route};

use super::lab::{Space, assert_agree, follow_with, ip, until};
use super::plane::Memory;

const GATEWAYS: usize = 200;

#[test]
fn a_full_table_is_loaded_and_changed() {
    let (Some(corpus), Some(router)) = (sys::require::corpus(), Space::new("full")) else {
        return;
    };
    let far = Space::new("full-far").unwrap();
    router.cable("eth0", &far, "eth0");
    router.run("ip addr add 10.255.0.1/16 dev eth0");
    router.run("ip addr add fdff::1/64 dev eth0 nodad");
    let prefixes = read(&corpus.join("fib/prefixes.txt.gz"));
    assert!(prefixes.len() > 1_000_000);
    let mut netlink = router.inside(|| Netlink::new().unwrap());
    let ifindex = router.index("eth0");
    let mac = |n: usize| [2, 0, 0, 0, 0, u8::try_from(n).unwrap()];
    for of in [gateway4, gateway6] {
        let neighbours: Vec<_> = (0..GATEWAYS)
            .map(|n| (ifindex, ip(&of(n)), mac(n)))
            .collect();
        netlink
            .set_neighbours(&neighbours, NeighbourState::Permanent)
            .unwrap();
    }
    let routes: Vec<Route> = prefixes
        .iter()
        .enumerate()
        .map(|(at, prefix)| route(prefix, at))
        .collect();
    // More at a time, and the kernel has no room for its answers.
    for some in routes.chunks(100) {
        netlink.add_routes(some).unwrap();
    }
    let mut plane = Memory::new();
    plane.quiet = true;
    let followed = follow_with(&router, plane, router::follow::Options::default());
    let status = followed.status();
    let known = status.ipv4.prefixes + status.ipv6.prefixes;
    assert!(known >= prefixes.len(), "{status:?}");
    assert_eq!((status.ipv4.unplaced, status.ipv6.unplaced), (0, 0));
    // Another offset each time, so that prefixes of all lengths are among them.
    let boundaries = |offset: usize| -> Vec<IpAddr> {
        let some = prefixes.iter().skip(offset).step_by(499);
        some.flat_map(|prefix| around(prefix)).collect()
    };
    assert_agree(&router, &followed, &boundaries(0));

    let before = followed.status();
    let mut changes = 0;
    for (at, pair) in prefixes.chunks_exact(50).enumerate() {
        netlink.delete_route(&routes[at * 50]).unwrap();
        netlink.add_routes(&[route(&pair[1], at * 50 + 8)]).unwrap();
        changes += 2;
    }
    until("all changes", &followed, |follow| {
        follow.status().changes.routes - before.changes.routes >= changes
    });
    let after = followed.status();
    assert_eq!(after.overruns, 0, "room for all of them");
    assert_agree(&router, &followed, &boundaries(0));
    assert_agree(&router, &followed, &boundaries(1));

    // A link that goes takes a million routes with it.
    router.run("ip link set eth0 down");
    until("nothing is left", &followed, |follow| {
        follow.plane().forward(ip("1.0.0.1"), 0).is_none() && follow.status().ipv4.prefixes < 20
    });
}

fn read(path: &std::path::Path) -> Vec<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    let mut file = flate2::read::GzDecoder::new(file);
    file.read_to_string(&mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn route(prefix: &str, at: usize) -> Route {
    let (address, len) = prefix.split_once('/').unwrap();
    Route {
        destination: ip(address),
        prefix_len: len.parse().unwrap(),
        gateway: Some(ip(&gateway(prefix, at))),
        ifindex: None,
        mtu: None,
    }
}

fn gateway(prefix: &str, at: usize) -> String {
    if prefix.contains(':') {
        gateway6(at % GATEWAYS)
    } else {
        gateway4(at % GATEWAYS)
    }
}

fn gateway4(n: usize) -> String {
    format!("10.255.1.{n}")
}

fn gateway6(n: usize) -> String {
    format!("fdff::1:{n:x}")
}

/// First, last, and the addresses next to them.
fn around(prefix: &str) -> Vec<IpAddr> {
    if let Ok(prefix) = prefix.parse::<Prefix4>() {
        let (first, last) = (prefix.first(), prefix.last());
        let all = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
        return all
            .map(|bits| std::net::Ipv4Addr::from_bits(bits).into())
            .to_vec();
    }
    let prefix: Prefix6 = prefix.parse().unwrap();
    let (first, last) = (prefix.first(), prefix.last());
    let all = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
    all.map(|bits| std::net::Ipv6Addr::from_bits(bits).into())
        .to_vec()
}
