//! Several ways to one place, by routes and by next-hop objects.

use router::forward::Forwarding;

use super::kernel::{is, leaves_to, router};
use super::lab::{assert_agree, follow, ip, until};

#[test]
fn several_ways_are_shared_by_those_that_work() {
    let Some((router, one, two)) = router("ecmp") else {
        return;
    };
    let both = "nexthop via 10.1.0.2 weight 3 nexthop via 10.2.0.2";
    router.run(&format!("ip route add 203.0.113.0/24 {both}"));
    let both6 = "nexthop via fd01::2 nexthop via fd02::2";
    router.run(&format!("ip -6 route add 2001:db8::/32 {both6}"));
    let followed = follow(&router);
    let macs = [one.mac("eth0"), two.mac("eth0")];
    let shares = |to: &str, count: usize| {
        let mut shares = [0, 0];
        until(&format!("{to} is shared"), &followed, |follow| {
            let ways = |mac| {
                (0..count).filter(move |flow| {
                    let adjacency = follow.plane().neighbour(ip(to), *flow);
                    adjacency.is_some_and(|to| to.destination == mac)
                })
            };
            ways(macs[0]).count() > 0 && ways(macs[1]).count() > 0
        });
        for flow in 0..count {
            let to = followed.with(|follow| follow.plane().neighbour(ip(to), flow));
            shares[usize::from(to.unwrap().destination == macs[1])] += 1;
        }
        shares
    };
    assert_eq!(shares("203.0.113.1", 4), [3, 1]);
    assert_eq!(shares("2001:db8::1", 4), [2, 2]);
    // A neighbour that is no longer there leaves the group, and comes back to it.
    one.run("ip link set eth0 down");
    leaves_to(&router, &followed, "203.0.113.1", macs[1], "eth2");
    leaves_to(&router, &followed, "2001:db8::1", macs[1], "eth2");
    one.run("ip link set eth0 up");
    one.run("ip addr replace fd01::2/64 dev eth0 nodad");
    assert_eq!(shares("203.0.113.1", 4), [3, 1]);
    assert_eq!(shares("2001:db8::1", 4), [2, 2]);
    // Hops of an IPv6 route come and go one by one.
    router.run("ip -6 route del 2001:db8::/32 via fd01::2");
    leaves_to(&router, &followed, "2001:db8::1", macs[1], "eth2");
    until("one hop is left", &followed, |follow| {
        follow.routes(Some(ip("2001:db8::1")), 1)[0].to == "via fd02::2 dev eth2"
    });
    router.run("ip -6 route append 2001:db8::/32 via fd01::2");
    assert_eq!(shares("2001:db8::1", 4), [2, 2]);
    assert_agree(&router, &followed, &["203.0.113.1", "2001:db8::1"].map(ip));
    router.run("ip route del 203.0.113.0/24");
    router.run("ip -6 route del 2001:db8::/32");
    is(&followed, "203.0.113.1", None);
    is(&followed, "2001:db8::1", None);
    until("no group is left", &followed, |follow| {
        follow
            .next_hops()
            .iter()
            .all(|hop| !hop.means.starts_with("group"))
    });
}

#[test]
fn next_hop_objects_change_under_their_routes() {
    let Some((router, one, two)) = router("nhid") else {
        return;
    };
    router.run("ip nexthop add id 1 via 10.1.0.2 dev eth1");
    router.run("ip nexthop add id 2 via 10.2.0.2 dev eth2");
    router.run("ip nexthop add id 10 group 1,2/2");
    router.run("ip nexthop add id 3 blackhole");
    router.run("ip route add 203.0.113.0/24 nhid 1");
    router.run("ip route add 192.0.2.0/24 nhid 10");
    router.run("ip route add 198.51.100.0/24 nhid 3");
    let followed = follow(&router);
    let ours = ["203.0.113.1", "192.0.2.1", "198.51.100.1"].map(ip);
    let macs = [one.mac("eth0"), two.mac("eth0")];
    leaves_to(&router, &followed, "203.0.113.1", macs[0], "eth1");
    is(&followed, "198.51.100.1", Forwarding::Drop);
    until("a group of both", &followed, |follow| {
        let hops = follow.next_hops();
        hops.iter()
            .any(|hop| hop.to.starts_with("nhid 10 ") && hop.means.contains("x2"))
    });
    router.run("ip nexthop replace id 1 via 10.2.0.2 dev eth2");
    leaves_to(&router, &followed, "203.0.113.1", macs[1], "eth2");
    router.run("ip nexthop replace id 1 via 10.1.0.2 dev eth1");
    leaves_to(&router, &followed, "203.0.113.1", macs[0], "eth1");
    router.run("ip nexthop replace id 10 group 2");
    leaves_to(&router, &followed, "192.0.2.1", macs[1], "eth2");
    router.run("ip nexthop replace id 10 group 1,3/2");
    until("a group of both", &followed, |follow| {
        let hops = follow.next_hops();
        hops.iter()
            .any(|hop| hop.to.starts_with("nhid 10 ") && hop.means.contains("x3"))
    });
    assert_agree(&router, &followed, &ours);
    // With the carrier the kernel drops the object, out of groups and with its routes.
    one.run("ip link set eth0 down");
    leaves_to(&router, &followed, "192.0.2.1", macs[1], "eth2");
    is(&followed, "203.0.113.1", None);
    assert_agree(&router, &followed, &ours);
    router.run("ip nexthop del id 2");
    is(&followed, "192.0.2.1", None);
    router.run("ip nexthop del id 3");
    is(&followed, "198.51.100.1", None);
    assert_agree(&router, &followed, &ours);
}
