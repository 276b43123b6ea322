//! The `tc` datapath: the network stack clones each frame as it comes in, on any device.
//! Which frames, to whom and with what headers is decided by bpf/tc.bpf.c and its tables.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::attach::{self, Attached, Direction};

use crate::counters::Counters;
use crate::handover::FastPath;
use crate::kernel::{self, Loaded, Tables, interfaces};
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
        let mut running = RunningTc {
            attached: BTreeMap::new(),
            program: object.program("relay_ingress")?,
            // The stack sends on every device it has.
            tables: Arc::new(Tables::new(&object, None, |_| None)?),
        };
        running.apply(plan)?;
        Ok(Box::new(running))
    }
}

#[derive(Debug)]
struct RunningTc {
    /// First, so that it is dropped first: no frame is cloned by tables that are going.
    attached: BTreeMap<u32, Attached>,
    program: OwnedFd,
    tables: Arc<Tables>,
}

impl RunningTc {
    fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let plan = interfaces::resolved(plan)?;
        let wanted = interfaces::all(&plan);
        self.tables.apply(&plan)?;
        for ifindex in &wanted {
            if !self.attached.contains_key(ifindex) {
                let program = self.program.as_fd();
                let via = attach::tc_via();
                let attached = attach::tc(program, *ifindex, Direction::Ingress, via)
                    .map_err(|error| Error::failed("attaching the tc datapath", error))?;
                self.attached.insert(*ifindex, attached);
            }
        }
        self.attached.retain(|ifindex, _| wanted.contains(ifindex));
        Ok(())
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
