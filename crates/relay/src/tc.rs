//! The `tc` datapath: the network stack clones each frame as it comes in, on any device.
//! Which frames, to whom and with what headers is decided by bpf/tc.bpf.c and its tables.

use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::capability::{PeerDelivery, peer_delivery};

use crate::counters::Counters;
use crate::handover::FastPath;
use crate::kernel::{self, Attachments, Exit, Loaded, Tables, Watch, interfaces};
use crate::plan::Plan;
use crate::{Relay, Running};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o"));

/// The datapath; by tcx, or by clsact where the kernel has no tcx.
#[derive(Clone, Copy, Debug)]
pub struct Tc;

impl Datapath<Relay> for Tc {
    fn name(&self) -> &'static str {
        "tc"
    }

    fn check(&self) -> Result<(), Missing> {
        kernel::check()
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        let object = Loaded::load("tc", OBJECT)?;
        let tables = Arc::new(Tables::new(&object, None, look)?);
        let mut running = RunningTc {
            attached: Attachments::tc("tc", object.program("relay_ingress")?),
            _watch: Watch::start(&tables)?,
            tables,
        };
        running.apply(plan)?;
        Ok(Box::new(running))
    }
}

#[derive(Debug)]
struct RunningTc {
    /// First, so that it is dropped first: no frame is cloned by tables that are going.
    attached: Attachments,
    tables: Arc<Tables>,
    _watch: Watch,
}

impl RunningTc {
    fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let plan = interfaces::resolved(plan)?;
        self.tables.apply(&plan)?;
        self.attached.follow(&interfaces::all(&plan))
    }
}

impl datapath::Running<Relay> for RunningTc {
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

/// The stack sends on every device it has.
fn look(ifindex: u32) -> Exit {
    let peer = peer_delivery(ifindex)
        .unwrap_or_else(|error| PeerDelivery::Through(format!("it cannot be looked at: {error}")));
    Exit {
        slow: None,
        peer: Some(peer),
    }
}
