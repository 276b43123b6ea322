//! The `xdp` datapath: the driver sends the copies before the network stack has seen the frame.
//! Which frames, to whom and with what headers is decided by bpf/xdp.bpf.c and its tables.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::attach::{self, Attached};
use netdev::{Netlink, NextHop, XdpMode};

use crate::counters::Counters;
use crate::handover::FastPath;
use crate::kernel::{self, Copies, Loaded, Tables, interfaces};
use crate::plan::{Plan, Subscriber};
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
        kernel::check()
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        let object = Loaded::load("xdp", OBJECT)?;
        let tables = Tables::new(&object, Some("relay_egress"), slow)?;
        let mut running = RunningXdp {
            program: object.program("relay_ingress")?,
            _copies: Copies::deliver(object.map("copies")?)?,
            tables: Arc::new(tables),
            attached: BTreeMap::new(),
        };
        running.apply(plan)?;
        Ok(Box::new(running))
    }
}

#[derive(Debug)]
struct RunningXdp {
    /// First, so that it is dropped first: no frame is redirected by tables that are going.
    attached: BTreeMap<u32, Attached>,
    program: OwnedFd,
    tables: Arc<Tables>,
    _copies: Copies,
}

impl RunningXdp {
    fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let plan = interfaces::resolved(plan)?;
        let wanted = interfaces::all(&plan);
        self.tables.apply(&plan)?;
        for ifindex in &wanted {
            if !self.attached.contains_key(ifindex) {
                let attached = attach::xdp(self.program.as_fd(), *ifindex, XdpMode::Native)
                    .map_err(|error| Error::failed("attaching the xdp datapath", error))?;
                self.attached.insert(*ifindex, attached);
            }
        }
        self.attached.retain(|ifindex, _| wanted.contains(ifindex));
        Ok(())
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
        kernel::gone(self.attached.keys())
    }

    fn fast_path(&self) -> Option<Arc<dyn FastPath>> {
        Some(Arc::clone(&self.tables) as Arc<dyn FastPath>)
    }

    fn stop(mut self: Box<Self>) -> Counters {
        self.attached.clear();
        self.tables.counters()
    }
}

/// A device that no driver sends redirected frames on.
fn slow(subscriber: &Subscriber) -> Option<String> {
    let NextHop::Ready { ifindex, .. } = subscriber.next_hop else {
        return None;
    };
    let link = Netlink::new().ok()?.link_by_index(ifindex).ok()?;
    (link.loopback || !link.ethernet)
        .then(|| format!("{} cannot send redirected frames", link.name))
}
