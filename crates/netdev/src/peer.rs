//! Whether a frame may be handed to the other end of a veth directly, past everything between.

use std::io;

use sys::ethtool::Ethtool;

use crate::attach::{Direction, tcx_programs};
use crate::{Error, Link, Netlink, clsact, policy};

/// The packet sockets of the calling thread's namespace.
const PACKET_SOCKETS: &str = "/proc/thread-self/net/packet";
/// `ETH_P_ALL`, as that file has it: of all sockets these see what is sent as well.
const ALL_PROTOCOLS: &str = "0003";

/// Whether frames for a veth may go to its other end directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerDelivery {
    /// Frames for this address, the other end's own, arrive the same either way.
    Direct { mac: [u8; 6] },
    /// Only by the device; what is there that would miss them.
    Through(String),
}

/// Whether `bpf_redirect_peer` to a device of the calling thread's namespace leaves out nothing
/// that anybody put there.
///
/// It skips what this end does to a frame it sends (queueing discipline, tc programs and filters,
/// nftables, packet sockets, checksums made in software, the counters of what was sent) and how
/// the other end takes frames in (XDP, its MTU, its look at the frame's destination, GRO, RPS),
/// and the receiver's stack runs at once on the same CPU. It is direct where all of the former and
/// the first three of the latter would do nothing to a frame for the other end's address; GRO, RPS
/// and this end's counters are given up. What the other end does from its own tc ingress on, it
/// does.
pub fn peer_delivery(ifindex: u32) -> Result<PeerDelivery, Error> {
    let mut netlink = Netlink::new()?;
    let link = netlink.link_by_index(ifindex)?;
    let end = match (link.kind.as_deref(), link.link, link.link_namespace) {
        (Some("veth"), Some(index), Some(namespace)) => (index, namespace),
        _ => {
            let why = "is not a veth whose other end is in another network namespace";
            return Ok(PeerDelivery::Through(format!("{} {why}", link.name)));
        }
    };
    if let Some(what) = on_the_way_out(&mut netlink, &link)? {
        return Ok(PeerDelivery::Through(format!("{} {what}", link.name)));
    }
    Ok(match netlink.link_elsewhere(end.0, end.1) {
        Err(error) => PeerDelivery::Through(error.to_string()),
        Ok(peer) => match on_the_way_in(&link, &peer) {
            Some(what) => PeerDelivery::Through(format!("the other end of {} {what}", link.name)),
            None => PeerDelivery::Direct { mac: peer.mac },
        },
    })
}

fn on_the_way_out(netlink: &mut Netlink, link: &Link) -> Result<Option<String>, Error> {
    if !link.up {
        return Ok(Some("is down".to_owned()));
    }
    if link.qdisc != "noqueue" {
        return Ok(Some(format!("has the queueing discipline {}", link.qdisc)));
    }
    let what = if has_egress_programs(netlink, link.index)? {
        "has tc egress programs"
    } else if policy::has_device_chains()? {
        "may have nftables chains: its namespace has some of family netdev"
    } else if is_listened_to(link.index)? {
        "is listened to by a packet socket"
    } else if makes_checksums(&link.name) {
        "makes checksums before it sends (tx-checksum-ip-generic is off)"
    } else {
        return Ok(None);
    };
    Ok(Some(what.to_owned()))
}

fn on_the_way_in(link: &Link, peer: &Link) -> Option<&'static str> {
    if !peer.up {
        Some("is down")
    } else if peer.xdp.is_some() {
        Some("has an XDP program")
    } else if peer.mtu < link.mtu {
        Some("has a smaller MTU")
    } else {
        None
    }
}

fn has_egress_programs(netlink: &mut Netlink, ifindex: u32) -> Result<bool, Error> {
    let tcx = match tcx_programs(ifindex, Direction::Egress) {
        // No tcx, so nothing is attached by it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Vec::new(),
        ids => ids.map_err(refused(format!("listing tcx programs of {ifindex}")))?,
    };
    Ok(!tcx.is_empty() || clsact::count(netlink, ifindex, Direction::Egress)? > 0)
}

/// By a socket that sees every frame a device sends, as of a packet capture.
fn is_listened_to(ifindex: u32) -> Result<bool, Error> {
    let sockets = std::fs::read_to_string(PACKET_SOCKETS)
        .map_err(refused("listing packet sockets".into()))?;
    Ok(sockets.lines().skip(1).any(|line| {
        // sk RefCnt Type Proto Iface ..; interface 0 is all of them.
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (protocol, interface) = (fields.next(), fields.next());
        let interface = interface.and_then(|text| text.parse().ok());
        protocol == Some(ALL_PROTOCOLS) && interface.is_none_or(|at: u32| at == 0 || at == ifindex)
    }))
}

/// Whether a checksum that the sender left to the device is completed at this end.
fn makes_checksums(name: &str) -> bool {
    Ethtool::open(name)
        .and_then(|ethtool| ethtool.features())
        .ok()
        .and_then(|features| features.get("tx-checksum-ip-generic").copied())
        .is_none_or(|feature| !feature.active)
}

fn refused(action: String) -> impl FnOnce(io::Error) -> Error {
    |source| Error::refused(action, source)
}
