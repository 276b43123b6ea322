//! The `xdp` datapath: the driver sends the copies before the network stack has seen the frame.
//! Which frames, to whom and with what headers is decided by bpf/xdp.bpf.c and its tables.

use std::mem::MaybeUninit;
use std::sync::Arc;

use bpf::Map;
use datapath::{Datapath, Error, Missing};
use netdev::capability::{RedirectTarget, redirect_target};
use netdev::requirement::{self, Requirement};
use netdev::{Attachments, Hook, Netlink, XdpMode};
use sys::caps::Capability;

use crate::kernel::skel::xdp::XdpSkelBuilder;
use crate::kernel::{self, Broadcast, EgressDevice, InKernel, Tables, Watch};
use crate::plan::Plan;
use crate::{Relay, Running};

const REQUIREMENTS: &[Requirement] = &[
    kernel::CAPABILITIES,
    Requirement::Else(&Requirement::TypeInformation, "use the tc datapath"),
    // A tracepoint counts the copies that a driver did not take.
    Requirement::Capabilities(&[Capability::Perfmon]),
];

/// The datapath; native mode, which every broadcast needs for its metadata.
#[derive(Clone, Copy, Debug)]
pub struct Xdp;

impl Datapath<Relay> for Xdp {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(REQUIREMENTS)
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        let mut storage = MaybeUninit::uninit();
        let skel = kernel::load(XdpSkelBuilder::default(), &mut storage, self.name())?;
        let broadcast = Broadcast {
            devmaps: Map::new(&skel.maps.fanouts)?,
            egress: bpf::program(&skel.progs.relay_egress)?,
        };
        let tables = Arc::new(Tables::new(kernel::maps!(skel), Some(broadcast), look)?);
        let resources = (
            // What counts the copies that a driver did not take.
            skel.progs
                .relay_transmitted
                .attach()
                .map_err(|error| Error::failed("attaching program relay_transmitted", error))?,
            Watch::start(&tables)?,
        );
        let ingress = bpf::program(&skel.progs.relay_ingress)?;
        let attached = Attachments::new(ingress, Hook::Xdp(XdpMode::Native));
        InKernel::start(attached, tables, resources, plan)
    }
}

fn look(ifindex: u32) -> EgressDevice {
    EgressDevice {
        slow: slow(ifindex),
        peer: None,
    }
}

/// Why no driver sends redirected frames on a device. Where that cannot be found out they are sent,
/// and what the driver does not take is counted.
fn slow(ifindex: u32) -> Option<String> {
    let link = Netlink::new().ok()?.link_by_index(ifindex).ok()?;
    let name = &link.name;
    if link.loopback || !link.ethernet {
        return Some(format!("{name} cannot send redirected frames"));
    }
    let target = redirect_target(ifindex).ok()?;
    let what = match target {
        RedirectTarget::Ready | RedirectTarget::Unknown(_) => return None,
        RedirectTarget::PeerWithoutNapi => {
            format!("the other end of {name} loses redirected frames")
        }
        RedirectTarget::Unsupported => format!("{name} cannot send redirected frames"),
    };
    Some(match target.remedy() {
        Some(remedy) => format!("{what}; {remedy}"),
        None => what,
    })
}
