//! The XDP features of a device, as far as the kernel reports them; and whether a device takes redirected
//! frames, checked before any is lost silently.

use serde::{Deserialize, Serialize};
use sys::ethtool::Ethtool;
use sys::netns::{self, Namespace};

use crate::{Error, Link, Netlink, generic};

pub use crate::peer::{PeerDelivery, peer_delivery};

/// The XDP features that a device's driver reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpSupport {
    /// Programs run in the driver.
    pub native: bool,
    pub redirect: bool,
    /// Frames that others redirect to it leave by it.
    pub transmit: bool,
    /// AF_XDP sockets share their memory with the device.
    pub zero_copy: bool,
    /// Pieces that a frame may then have.
    pub zero_copy_segments: Option<u32>,
    /// Programs run in the device.
    pub offload: bool,
    /// Frames longer than a buffer.
    pub fragments: bool,
    /// The metadata of a frame that a program can read from the device; none where the kernel does
    /// not report it.
    pub metadata: Option<Metadata>,
}

/// Facts of a received frame that a device has and XDP programs may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// When it came, by the device's clock.
    pub timestamp: bool,
    /// A hash of its addresses and ports.
    pub hash: bool,
    /// The VLAN tag that the device has taken out.
    pub vlan_tag: bool,
}

/// Asks the kernel about a device of the calling thread's namespace; none where it cannot be asked
/// (before Linux 6.3).
pub fn xdp_support(ifindex: u32) -> Result<Option<XdpSupport>, Error> {
    Ok(generic::xdp(ifindex)?.map(XdpSupport::from))
}

impl From<generic::Answer> for XdpSupport {
    fn from(answer: generic::Answer) -> Self {
        // `NETDEV_XDP_ACT_*` and `NETDEV_XDP_RX_METADATA_*` of linux/netdev.h.
        let has = |bit: u32| answer.features >> bit & 1 == 1;
        Self {
            native: has(0),
            redirect: has(1),
            transmit: has(2),
            zero_copy: has(3),
            zero_copy_segments: answer.zero_copy_segments,
            offload: has(4),
            fragments: has(5),
            metadata: answer.metadata.map(|bits| Metadata {
                timestamp: bits & 1 != 0,
                hash: bits >> 1 & 1 != 0,
                vlan_tag: bits >> 2 & 1 != 0,
            }),
        }
    }
}

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
    match xdp_support(ifindex)? {
        Some(support) if support.transmit => Ok(RedirectTarget::Ready),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_the_kernels_answer_has_its_name() {
        let of = |features, metadata| {
            XdpSupport::from(generic::Answer {
                features,
                zero_copy_segments: Some(17),
                metadata,
            })
        };
        let all = of(0x7f, Some(7));
        assert!(all.native && all.redirect && all.transmit && all.zero_copy);
        assert!(all.offload && all.fragments);
        assert_eq!(all.zero_copy_segments, Some(17));
        let has = |support: XdpSupport| [support.native, support.redirect, support.transmit];
        assert_eq!(has(of(1, None)), [true, false, false]);
        assert_eq!(has(of(4, None)), [false, false, true]);
        assert_eq!(
            of(8, None),
            XdpSupport {
                zero_copy: true,
                ..of(0, None)
            }
        );
        assert_eq!(
            of(16, None),
            XdpSupport {
                offload: true,
                ..of(0, None)
            }
        );
        assert_eq!(
            of(32, None),
            XdpSupport {
                fragments: true,
                ..of(0, None)
            }
        );
        let metadata = |bits| of(0, Some(bits)).metadata.unwrap();
        assert!(metadata(1).timestamp && !metadata(1).hash && !metadata(1).vlan_tag);
        assert!(metadata(2).hash && !metadata(2).timestamp);
        assert!(metadata(4).vlan_tag && !metadata(4).hash);
    }
}
