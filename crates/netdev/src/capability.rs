//! What a device can do with redirected frames, asked before any is lost silently.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd};
use sys::ethtool::Ethtool;
use sys::netns::{self, Namespace};

use crate::{Error, Link, Netlink, generic};

pub use crate::peer::{PeerDelivery, peer_delivery};

/// `NETDEV_XDP_ACT_NDO_XMIT`
const CAN_TRANSMIT: u64 = 1 << 2;
/// Drivers that transmit redirected frames in Linux 6.1, which cannot be asked.
const TRANSMITTERS: [&str; 17] = [
    "atlantic",
    "bnxt_en",
    "dpaa2-eth",
    "ena",
    "fsl_dpa",
    "fsl_enetc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
    "mvneta",
    "mvpp2",
    "sfc",
    "tun",
    "virtio_net",
];

/// Whether frames that XDP redirects to a device leave by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RedirectTarget {
    /// They do.
    Ready,
    /// A veth whose other end has neither an XDP program nor GRO: they are lost silently.
    PeerWithoutNapi,
    /// Its driver cannot: they are lost, with an error that only a tracepoint shows.
    Unsupported,
    /// It cannot be found out here; why.
    Unknown(String),
}

impl RedirectTarget {
    /// What to do about a target that is not ready.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Ready => None,
            Self::PeerWithoutNapi => Some(
                "turn GRO on at the other end: ethtool -K DEVICE gro on, in the namespace where it is",
            ),
            Self::Unsupported => Some("use the tc datapath, which any device can do"),
            Self::Unknown(_) => Some("send one packet and look whether it arrives"),
        }
    }
}

/// Whether a device of the calling thread's namespace transmits frames redirected to it.
pub fn redirect_target(ifindex: u32) -> Result<RedirectTarget, Error> {
    let link = Netlink::new()?.link_by_index(ifindex)?;
    let is_veth = link.kind.as_deref() == Some("veth");
    // A veth's flag follows its other end's NAPI, wherever that is.
    match generic::xdp_features(ifindex)? {
        Some(features) if features & CAN_TRANSMIT != 0 => Ok(RedirectTarget::Ready),
        Some(_) if is_veth => Ok(RedirectTarget::PeerWithoutNapi),
        Some(_) => Ok(RedirectTarget::Unsupported),
        None if is_veth => veth_peer(ifindex),
        None => Ok(by_driver(&link)),
    }
}

/// Looks for the other end of a veth and asks it, as kernels before 6.3 make necessary.
///
/// An end in a namespace that has no name under `/run/netns` is not found.
pub fn veth_peer(ifindex: u32) -> Result<RedirectTarget, Error> {
    let mut netlink = Netlink::new()?;
    let link = netlink.link_by_index(ifindex)?;
    let Some(peer) = link.link else {
        return Ok(unknown("the other end has no index"));
    };
    let Some(id) = link.link_namespace else {
        return Ok(napi_of(&mut netlink, peer));
    };
    for name in netns::names() {
        let Ok(namespace) = Namespace::named(&name) else {
            continue;
        };
        // One that is just being made or removed is not asked about.
        if netlink.namespace_id(&namespace).ok().flatten() == Some(id) {
            let asked = namespace.run(|| Netlink::new().map(|mut there| napi_of(&mut there, peer)));
            return asked.unwrap_or_else(|error| Ok(unknown(&error.to_string())));
        }
    }
    Ok(unknown(
        "the other end is in a namespace that has no name under /run/netns",
    ))
}

/// A veth has NAPI while it has an XDP program or GRO.
fn napi_of(netlink: &mut Netlink, ifindex: u32) -> RedirectTarget {
    let link = match netlink.link_by_index(ifindex) {
        Ok(link) => link,
        Err(error) => return unknown(&error.to_string()),
    };
    if link.xdp.is_some() {
        return RedirectTarget::Ready;
    }
    match Ethtool::open(&link.name).and_then(|ethtool| ethtool.features()) {
        Ok(features) if features.get("rx-gro").is_some_and(|gro| gro.active) => {
            RedirectTarget::Ready
        }
        Ok(_) => RedirectTarget::PeerWithoutNapi,
        Err(error) => unknown(&error.to_string()),
    }
}

fn by_driver(link: &Link) -> RedirectTarget {
    match Ethtool::open(&link.name).and_then(|ethtool| ethtool.driver()) {
        Ok(driver) if TRANSMITTERS.contains(&driver.as_str()) => RedirectTarget::Ready,
        Ok(driver) => unknown(&format!("nothing is known of driver {driver}")),
        Err(error) => unknown(&error.to_string()),
    }
}

fn unknown(why: &str) -> RedirectTarget {
    RedirectTarget::Unknown(why.to_owned())
}

impl Netlink {
    /// This namespace's number for another one; none where it has not given it one.
    pub fn namespace_id(&mut self, namespace: &Namespace) -> Result<Option<i32>, Error> {
        let mut request = NsidMessage::default();
        let fd = namespace.as_fd().as_raw_fd().cast_unsigned();
        request.attributes.push(NsidAttribute::Fd(fd));
        let request = RouteNetlinkMessage::GetNsId(request);
        match self.get(request, "asking for a namespace's number")? {
            RouteNetlinkMessage::NewNsId(answer) => {
                Ok(answer.attributes.iter().find_map(|a| match a {
                    NsidAttribute::Id(id) => Some(*id).filter(|id| *id >= 0),
                    _ => None,
                }))
            }
            _ => Ok(None),
        }
    }
}
