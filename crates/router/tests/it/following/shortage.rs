//! Prefixes without room in the plane are left to the kernel, even if a covering prefix has a next hop.

use router::forward::{Family, Forwarding, Punt};

use super::kernel::{is, leaves_to, router};
use super::lab::{follow, until};

const KERNEL: Forwarding = Forwarding::Punt(Punt::Device);

#[test]
fn a_prefix_without_room_is_not_answered_for_by_others() {
    let Some((router, one, two)) = router("room") else {
        return;
    };
    router.run("ping -c 1 -W 5 10.1.0.2 && ping -c 1 -W 5 10.2.0.2");
    router.run("ping -c 1 -W 5 fd01::2 && ping -c 1 -W 5 fd02::2");
    router.run("ip route add default via 10.1.0.2 && ip -6 route add default via fd01::2");
    let followed = follow(&router);
    let (first, second) = (one.mac("eth0"), two.mac("eth0"));
    leaves_to(&router, &followed, "203.0.113.1", first, "eth1");
    leaves_to(&router, &followed, "2001:db8:1::1", first, "eth1");
    let full = |prefix: &str| {
        let long = |limit: u8| prefix.rsplit('/').next().unwrap().parse::<u8>().unwrap() > limit;
        if prefix.contains(':') {
            prefix.starts_with("2001:db8:1:") && long(48)
        } else {
            prefix.starts_with("203.0.113.") && long(24)
        }
    };
    followed.with(|follow| follow.plane_mut().full = full);
    router.run("ip route add 203.0.113.7 via 10.2.0.2");
    router.run("ip route add blackhole 203.0.113.8");
    router.run("ip -6 route add 2001:db8:1:2::/64 via fd02::2");
    for to in ["203.0.113.7", "203.0.113.8", "2001:db8:1:2::1"] {
        is(&followed, to, KERNEL);
    }
    // Other addresses are forwarded as before.
    leaves_to(&router, &followed, "203.0.114.1", first, "eth1");
    leaves_to(&router, &followed, "2001:db8:2::1", first, "eth1");
    let unplaced = |follow: &router::follow::Follow<_>| {
        let status = follow.status();
        (status.ipv4.without_room, status.ipv6.without_room)
    };
    until("counted", &followed, |follow| unplaced(follow) == (2, 1));
    // A new covering route does not forward their packets either.
    router.run("ip route add 203.0.112.0/23 via 10.1.0.2");
    is(&followed, "203.0.113.7", KERNEL);
    // One prefix is removed: the other still has no room.
    router.run("ip route del 203.0.113.7");
    until("one", &followed, |follow| unplaced(follow).0 == 1);
    is(&followed, "203.0.113.8", KERNEL);
    // With room again, all prefixes are as in the kernel within a second.
    followed.with(|follow| follow.plane_mut().full = |_| false);
    is(&followed, "203.0.113.8", Forwarding::Drop);
    leaves_to(&router, &followed, "203.0.113.7", first, "eth1");
    leaves_to(&router, &followed, "2001:db8:1:2::1", second, "eth2");
    until("all have room", &followed, |follow| {
        unplaced(follow) == (0, 0)
    });
}

#[test]
fn where_nothing_can_be_changed_the_family_is_the_kernels() {
    let Some((router, _one, _two)) = router("stuck") else {
        return;
    };
    router.run("ip -6 route add blackhole 2001:db8::/32");
    let followed = follow(&router);
    is(&followed, "2001:db8::1", Forwarding::Drop);
    followed.with(|follow| follow.plane_mut().full = |prefix| prefix.contains("2001:db8"));
    router.run("ip -6 route del blackhole 2001:db8::/32");
    let withheld = |families: &'static [Family]| {
        until("withheld", &followed, |follow| {
            follow.plane().withheld == families
        });
    };
    withheld(&[Family::V6]);
    assert!(followed.status().ipv6.withheld && !followed.status().ipv4.withheld);
    followed.with(|follow| follow.plane_mut().full = |_| false);
    withheld(&[]);
    is(&followed, "2001:db8::1", None);
}
