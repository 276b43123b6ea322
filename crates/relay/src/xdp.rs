//! The `xdp` datapath: the driver sends the copies before the network stack has seen the frame.
//! Which frames, to whom and with what headers is decided by bpf/xdp.bpf.c and its tables.

use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use libbpf_rs::Link;
use netdev::Netlink;
use netdev::capability::{RedirectTarget, redirect_target};

use crate::counters::Counters;
use crate::handover::FastPath;
use crate::kernel::{self, Attachments, Copies, Exit, Loaded, Tables, Watch, interfaces};
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
        let mut running = RunningXdp {
            attached: Attachments::xdp("xdp", object.program("relay_ingress")?),
            _copies: Copies::deliver(object.map("copies")?)?,
            _transmitted: object.trace("relay_transmitted")?,
            _watch: Watch::start(&tables)?,
            tables,
        };
        running.apply(plan)?;
        Ok(Box::new(running))
    }
}

#[derive(Debug)]
struct RunningXdp {
    /// First, so that it is dropped first: no frame is redirected by tables that are going.
    attached: Attachments,
    tables: Arc<Tables>,
    _copies: Copies,
    /// What counts the copies that a driver did not take.
    _transmitted: Link,
    _watch: Watch,
}

impl RunningXdp {
    fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let plan = interfaces::resolved(plan)?;
        self.tables.apply(&plan)?;
        self.attached.follow(&interfaces::all(&plan))
    }
}

impl datapath::Running<Relay> for RunningXdp {
    fn reconfigure(&mut self, plan: &Plan) -> Result<(), Error> {
        self.apply(plan)
    }

    fn counters(&self) -> Counters {
        self.tables.counters()
    }

    fn failed(&self) -> Option<String> {
        self.attached.gone()
    }

    fn fast_path(&self) -> Option<Arc<dyn FastPath>> {
        Some(Arc::clone(&self.tables) as Arc<dyn FastPath>)
    }

    fn stop(mut self: Box<Self>) -> Counters {
        self.attached.clear();
        self.tables.counters()
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
