//! Watched next hops follow the kernel's tables.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use netdev::{
    Destination, LinkSpec, NeighbourState, NextHop, NextHopTracker, Route, UnresolvedReason,
};

use crate::common::{FAR, Pair, ip};

/// Long enough for the kernel to give up on a neighbour three times.
const TIMEOUT: Duration = Duration::from_secs(20);

type Changes = Receiver<(Destination, NextHop)>;

fn tracker(pair: &Pair) -> (NextHopTracker, Changes) {
    let (changed, changes) = mpsc::channel();
    let report = move |destination, next_hop| {
        let _ = changed.send((destination, next_hop));
    };
    let tracker = pair
        .near
        .run(move || NextHopTracker::start(report).unwrap());
    (tracker, changes)
}

/// The first change of `address` that meets `wanted`.
fn until(changes: &Changes, address: &str, wanted: impl Fn(&NextHop) -> bool) -> NextHop {
    let started = std::time::Instant::now();
    loop {
        let left = TIMEOUT.saturating_sub(started.elapsed());
        let (destination, next_hop) = changes.recv_timeout(left).unwrap();
        if destination.address == ip(address) && wanted(&next_hop) {
            return next_hop;
        }
    }
}

fn is_ready_to(mac: [u8; 6]) -> impl Fn(&NextHop) -> bool {
    move |hop| matches!(hop, NextHop::Ready { destination_mac, .. } if *destination_mac == mac)
}

fn is(why: UnresolvedReason) -> impl Fn(&NextHop) -> bool {
    move |hop| *hop == NextHop::Unresolved(why)
}

#[test]
fn unknown_neighbour_is_probed_and_changes_reported() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let (tracker, changes) = tracker(&pair);
    for far in ["10.9.0.2", "fd09::2"] {
        let destination = Destination::from(ip(far));
        let unknown = UnresolvedReason::NoNeighbour {
            ifindex: pair.ifindex,
            gateway: ip(far),
        };
        let first = tracker.watch(destination).unwrap();
        assert_eq!(first, NextHop::Unresolved(unknown));
        let ready = until(&changes, far, is_ready_to(FAR));
        assert_eq!(tracker.next_hop(&destination), Some(ready));
        let other = [2, 0, 0, 0, 0, 9];
        pair.near
            .netlink()
            .set_neighbours(&[(pair.ifindex, ip(far), other)], NeighbourState::Permanent)
            .unwrap();
        until(&changes, far, is_ready_to(other));
    }
    assert!(tracker.generation() >= 4);
    assert_eq!(tracker.failed(), None);
    let far = Destination::from(ip("fd09::2"));
    tracker.forget(&far);
    assert_eq!(tracker.next_hop(&far), None);
}

#[test]
fn stale_neighbour_is_probed_without_traffic() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    // The kernel waits this many seconds before it probes a stale entry that is used.
    pair.near
        .sysctl("ipv4/neigh/eth0/delay_first_probe_time", "1");
    let far = ip("10.9.0.2");
    pair.near
        .netlink()
        .set_neighbours(&[(pair.ifindex, far, FAR)], NeighbourState::Stale)
        .unwrap();
    let (tracker, _changes) = tracker(&pair);
    assert!(is_ready_to(FAR)(&tracker.watch(far.into()).unwrap()));
    let mut netlink = pair.near.netlink();
    let started = std::time::Instant::now();
    loop {
        let entry = netlink.neighbour(pair.ifindex, far).unwrap().unwrap();
        assert!(entry.usable(), "{entry:?}");
        if entry.state == NeighbourState::Reachable {
            break;
        }
        assert!(started.elapsed() < TIMEOUT, "{entry:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(tracker.generation(), 0, "nothing about it changed");
}

#[test]
fn routes_addresses_mtus_and_links_are_followed() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let ifindex = pair.ifindex;
    let mut netlink = pair.near.netlink();
    for gateway in ["10.9.0.2", "fd09::2"] {
        netlink
            .set_neighbours(&[(ifindex, ip(gateway), FAR)], NeighbourState::Permanent)
            .unwrap();
    }
    let (tracker, changes) = tracker(&pair);
    for (target, network, prefix_len, gateway) in [
        ("192.0.2.9", "192.0.2.0", 24, "10.9.0.2"),
        ("2001:db8::9", "2001:db8::", 32, "fd09::2"),
    ] {
        let first = tracker.watch(ip(target).into()).unwrap();
        assert_eq!(first, NextHop::Unresolved(UnresolvedReason::NoRoute));
        let mut route = Route {
            destination: ip(network),
            prefix_len,
            gateway: Some(ip(gateway)),
            ifindex: None,
            mtu: None,
        };
        netlink.add_routes(&[route]).unwrap();
        until(&changes, target, is_ready_to(FAR));
        route.mtu = Some(1300);
        netlink.add_routes(&[route]).unwrap();
        until(&changes, target, |hop| {
            matches!(hop, NextHop::Ready { mtu: 1300, .. })
        });
    }
    let link = |spec: LinkSpec<'_>| pair.near.netlink().set_link(ifindex, &spec).unwrap();
    link(LinkSpec::unnamed().mtu(1290));
    until(&changes, "192.0.2.9", |hop| {
        matches!(hop, NextHop::Ready { mtu: 1290, .. })
    });
    link(LinkSpec::unnamed().down());
    // They may be reported in either order.
    let down = is(UnresolvedReason::LinkDown { ifindex });
    let mut waiting = vec!["192.0.2.9", "2001:db8::9"];
    while !waiting.is_empty() {
        let (destination, hop) = changes.recv_timeout(TIMEOUT).unwrap();
        waiting.retain(|address| !(destination.address == ip(address) && down(&hop)));
    }
    link(LinkSpec::unnamed().up());
    let route = Route {
        destination: ip("192.0.2.0"),
        prefix_len: 24,
        gateway: Some(ip("10.9.0.2")),
        ifindex: None,
        mtu: None,
    };
    netlink
        .set_neighbours(&[(ifindex, ip("10.9.0.2"), FAR)], NeighbourState::Permanent)
        .unwrap();
    netlink.add_routes(&[route]).unwrap();
    until(&changes, "192.0.2.9", is_ready_to(FAR));
    netlink.delete_link(ifindex).unwrap();
    until(
        &changes,
        "192.0.2.9",
        is(UnresolvedReason::LinkDown { ifindex }),
    );
}

#[test]
fn overrun_loses_no_change() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let far = ip("10.9.0.2");
    let mut netlink = pair.near.netlink();
    let mut set = |address, mac| {
        let neighbours = [(pair.ifindex, address, mac)];
        netlink
            .set_neighbours(&neighbours, NeighbourState::Permanent)
            .unwrap();
    };
    set(far, FAR);
    let (entered, is_in) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let tracker = pair.near.run(move || {
        NextHopTracker::start(move |_, _| {
            let _ = entered.send(());
            let _ = held.recv_timeout(TIMEOUT);
        })
        .unwrap()
    });
    tracker.watch(far.into()).unwrap();
    set(far, [2, 0, 0, 0, 0, 3]);
    is_in.recv_timeout(TIMEOUT).unwrap();
    // The callback blocks the tracker's thread, so these fill the message buffer.
    for number in 0..1000_u16 {
        let [high, low] = number.to_be_bytes();
        set(ip(&format!("10.9.{}.{low}", high + 1)), FAR);
    }
    let last = [2, 0, 0, 0, 0, 4];
    set(far, last);
    drop(release);
    let started = std::time::Instant::now();
    while !tracker
        .next_hop(&far.into())
        .is_some_and(|hop| is_ready_to(last)(&hop))
    {
        assert!(started.elapsed() < TIMEOUT);
        std::thread::yield_now();
    }
    assert!(tracker.overruns() > 0, "the test did not overrun anything");
}
