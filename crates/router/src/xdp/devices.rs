//! The devices that frames are sent by.

use std::collections::BTreeSet;

use bpf::Map;
use libbpf_rs::libbpf_sys::bpf_devmap_val;
use netdev::capability::{RedirectTarget, redirect_target};
use netdev::{Netlink, XdpMode};

use super::{Error, entries};

#[derive(Debug)]
pub(super) struct Devices {
    map: Map<u32, bpf_devmap_val>,
    mode: XdpMode,
    known: BTreeSet<u32>,
}

impl Devices {
    pub(super) fn new(map: Map<u32, bpf_devmap_val>, mode: XdpMode) -> Self {
        Self {
            map,
            mode,
            known: BTreeSet::new(),
        }
    }

    /// Makes sure that frames can be sent by a device. Where that cannot be found out they are.
    pub(super) fn send_by(&mut self, ifindex: u32) -> Result<(), Error> {
        if self.known.contains(&ifindex) {
            return Ok(());
        }
        if let Some(what) = obstacle(ifindex, self.mode) {
            return Err(Error::Device { ifindex, what });
        }
        self.map.set(&ifindex, &entries::device(ifindex))?;
        self.known.insert(ifindex);
        Ok(())
    }
}

/// Why a device does not send redirected frames.
fn obstacle(ifindex: u32, mode: XdpMode) -> Option<String> {
    let link = match Netlink::new().and_then(|mut netlink| netlink.link_by_index(ifindex)) {
        Ok(link) => link,
        Err(error) => return Some(error.to_string()),
    };
    if link.loopback || !link.ethernet {
        return Some(format!("{} is not an Ethernet device", link.name));
    }
    if mode == XdpMode::Generic {
        // Such frames leave as those of the kernel do.
        return None;
    }
    let target = redirect_target(ifindex).ok()?;
    let what = match target {
        RedirectTarget::Ready | RedirectTarget::Unknown(_) => return None,
        RedirectTarget::PeerWithoutNapi => "its other end loses redirected frames",
        RedirectTarget::Unsupported => {
            return Some(format!(
                "{} cannot send redirected frames; generic mode works on any device",
                link.name
            ));
        }
    };
    let remedy = target.remedy().unwrap_or_default();
    Some(format!("{}: {what}; {remedy}", link.name))
}
