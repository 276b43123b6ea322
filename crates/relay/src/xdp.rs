//! The `xdp` datapath: the driver sends the copies before the network stack has seen the frame.
//! Which frames, to whom and with what headers is decided by bpf/xdp.bpf.c and its tables.

use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::Netlink;
use netdev::capability::{RedirectTarget, redirect_target};

use crate::kernel::{self, Attachments, Copies, Exit, InKernel, Loaded, Tables, Watch};
use crate::plan::Plan;
use crate::{Relay, Running};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o"));

/// The datapath; native mode, which every broadcast needs for its metadata.
#[derive(Clone, Copy, Debug)]
pub struct Xdp;

impl Datapath<Relay> for Xdp {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn check(&self) -> Result<(), Missing> {
        kernel::check()?;
        kernel::can_trace()
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        let mut object = Loaded::load("xdp", OBJECT)?;
        let tables = Arc::new(Tables::new(&object, Some("relay_egress"), look)?);
        let beside = (
            Copies::deliver(object.map("copies")?)?,
            // What counts the copies that a driver did not take.
            object.trace("relay_transmitted")?,
            Watch::start(&tables)?,
        );
        let attached = Attachments::xdp("xdp", object.program("relay_ingress")?);
        InKernel::start(attached, tables, beside, plan)
    }
}

fn look(ifindex: u32) -> Exit {
    Exit {
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
