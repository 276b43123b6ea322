//! A veth that would lose redirected frames is told from one that delivers them.

use netdev::LinkSpec;
use netdev::capability::{
    Metadata, PeerDelivery, RedirectTarget, peer_delivery, redirect_target, veth_peer, xdp_support,
};
use sys::ethtool::Ethtool;
use sys::kernel::Release;
use sys::netns;

use crate::common::{Pair, Space};

fn gro(space: &Space, on: bool) {
    space.run(|| {
        let device = Ethtool::open("eth0").unwrap();
        device.set_features(&[("rx-gro", on)]).unwrap();
    });
}

#[test]
fn a_veth_is_ready_when_its_other_end_has_napi() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let both = || {
        pair.near.run(|| {
            (
                redirect_target(pair.ifindex).unwrap(),
                veth_peer(pair.ifindex).unwrap(),
            )
        })
    };
    for (on, wanted) in [
        (false, RedirectTarget::PeerWithoutNapi),
        (true, RedirectTarget::Ready),
    ] {
        gro(&pair.far, on);
        assert_eq!(both(), (wanted.clone(), wanted));
    }
    assert!(
        RedirectTarget::PeerWithoutNapi
            .remedy()
            .unwrap()
            .contains("gro on")
    );
    netns::remove(&pair.far.name).unwrap();
    let (_, searched) = both();
    assert!(
        matches!(searched, RedirectTarget::Unknown(_)),
        "{searched:?}"
    );
}

fn why_not(space: &Space, ifindex: u32) -> String {
    match space.run(|| peer_delivery(ifindex).unwrap()) {
        PeerDelivery::Through(why) => why,
        PeerDelivery::Direct { .. } => String::new(),
    }
}

#[test]
fn the_other_end_is_reached_directly_across_namespaces_only() {
    if !sys::require::root() {
        return;
    }
    let pair = Pair::new();
    let mac = pair.far.netlink().link_by_name("eth0").unwrap().mac;
    let delivery = pair.near.run(|| peer_delivery(pair.ifindex).unwrap());
    assert_eq!(delivery, PeerDelivery::Direct { mac });
    // By its number, so that the namespace needs no name.
    netns::remove(&pair.far.name).unwrap();
    let delivery = pair.near.run(|| peer_delivery(pair.ifindex).unwrap());
    assert_eq!(delivery, PeerDelivery::Direct { mac });
    let down = LinkSpec::unnamed().down();
    pair.near.netlink().set_link(pair.ifindex, &down).unwrap();
    assert_eq!(why_not(&pair.near, pair.ifindex), "eth0 is down");

    let (one, other) = (LinkSpec::new("one").up(), LinkSpec::new("other"));
    pair.near.netlink().add_veth(&one, &other).unwrap();
    let why = why_not(&pair.near, pair.near.index("one"));
    assert!(why.contains("another network namespace"), "{why}");
}

#[test]
fn a_bridge_is_no_target() {
    if !sys::require::root() {
        return;
    }
    let space = Space::new();
    let bridge = LinkSpec::new("br0").up();
    space.netlink().add_bridge(&bridge).unwrap();
    let index = space.index("br0");
    let target = space.run(|| redirect_target(index).unwrap());
    assert!(
        matches!(
            target,
            RedirectTarget::Unsupported | RedirectTarget::Unknown(_)
        ),
        "{target:?}"
    );
}

#[test]
fn a_veth_reports_native_xdp_and_what_its_frames_know_and_the_loopback_nothing() {
    if !sys::require::root() {
        return;
    }
    const LOOPBACK: u32 = 1;
    let pair = Pair::new();
    let support = |ifindex| pair.near.run(move || xdp_support(ifindex).unwrap());
    let can_be_asked = Release::running().unwrap().at_least(6, 3);
    assert_eq!(support(pair.ifindex).is_some(), can_be_asked);
    assert_eq!(support(LOOPBACK).is_some(), can_be_asked);
    if !can_be_asked {
        return;
    }
    let veth = support(pair.ifindex).unwrap();
    assert!(veth.native && veth.redirect && !veth.offload, "{veth:?}");
    assert!(!veth.zero_copy && veth.zero_copy_segments.is_none());
    let nothing = support(LOOPBACK).unwrap();
    assert!(!nothing.native, "{nothing:?}");
    // The attribute came later than the family, and with it these two.
    if let (Some(veth), Some(nothing)) = (veth.metadata, nothing.metadata) {
        assert!(veth.timestamp && veth.hash, "{veth:?}");
        assert_eq!(nothing, Metadata::default());
    }
}
