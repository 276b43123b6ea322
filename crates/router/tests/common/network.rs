//! A client, a router and a server, each in a namespace.

use std::time::{Duration, Instant};

use lpm::NextHop;
use testbed::{HostSpec, LinkKind, LinkSpec, Neighbours, Topology};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn topology(neighbours: Neighbours, server_mtu: u32) -> Topology {
    let mut topology = Topology::default();
    for name in ["client", "router", "server"] {
        let mut host = HostSpec::native();
        host.settings.forward = name == "router";
        host.settings.neighbours = neighbours;
        topology.host.insert(name.to_owned(), host);
    }
    for (ends, mtu) in [
        (["client", "router"], 1500),
        (["router", "server"], server_mtu),
    ] {
        let mut link = LinkSpec::new(LinkKind::Direct, &ends);
        // A frame is forwarded as it is.
        link.settings.tx_checksum = false;
        link.settings.tso = false;
        link.settings.udp_segmentation = false;
        link.settings.mtu = mtu;
        topology.link.push(link);
    }
    topology
}

pub(crate) fn hop(number: u16) -> NextHop {
    NextHop::new(number).unwrap()
}

/// Waits for a condition.
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
