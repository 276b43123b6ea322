//! A veth that would lose redirected frames is told from one that delivers them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Pair, Space};
use netdev::LinkSpec;
use netdev::capability::{RedirectTarget, redirect_target, veth_peer};
use sys::ethtool::Ethtool;
use sys::netns;

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
