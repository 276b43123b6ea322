//! The `xdp-flow` datapath: flows are counted in the kernel, and only ended flows reach userspace. `xdp-generic` is
//! the same for devices whose driver does not support XDP.

use std::time::Duration;

use datapath::{Datapath, Error, Missing};
use netdev::XdpMode;
use netdev::requirement;
use sys::capture::Promiscuous;

use super::kernel::{self, Hook, PlaneWork};
use super::worker::{Capturing, Workers};
use super::{Features, LiveCounters, Plan, Running};
use crate::kernel::FlowPlane;

/// The time limit of a sweep. It does not delay packets, but the ring is not read in the meantime.
const SWEEP: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct XdpFlow {
    pub(super) name: &'static str,
    pub(super) mode: XdpMode,
}

impl Datapath<Features> for XdpFlow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(kernel::REQUIREMENTS)
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        kernel::only_flows(self.name, plan)?;
        kernel::one_worker(self.name, plan)?;
        let settings = kernel::settings(self.name, Hook::Xdp, plan)?;
        let promiscuous = kernel::promiscuous(plan)?;
        let mut plane = FlowPlane::load(&settings)?;
        kernel::connect(plan, &mut plane)?;
        plane.attach(plan.ifindex, self.mode)?;
        let flows = Flows::new(plane, PlaneWork::new(plan), Hook::Xdp, promiscuous);
        Workers::start(self.name, plan.ifindex, vec![flows])
    }
}

/// Exports the flows counted in the kernel, for any hook.
#[derive(Debug)]
pub(super) struct Flows {
    plane: FlowPlane,
    work: PlaneWork,
    /// Whether frames have a queue: they do in XDP, but outgoing frames do not have one yet.
    knows_queues: bool,
    _promiscuous: Option<Promiscuous>,
}

impl Flows {
    pub(super) fn new(
        plane: FlowPlane,
        work: PlaneWork,
        hook: Hook,
        promiscuous: Option<Promiscuous>,
    ) -> Self {
        Self {
            plane,
            work,
            knows_queues: hook == Hook::Xdp,
            _promiscuous: promiscuous,
        }
    }
}

impl Capturing for Flows {
    fn take(&mut self) -> Result<bool, String> {
        let work = &mut self.work;
        self.plane.wait().map_err(|error| error.to_string())?;
        let collected = self.plane.collect(&mut |flow| work.row(flow));
        collected.map_err(|error| error.to_string())?;
        Ok(false)
    }

    fn tick(&mut self, now_ns: i64) -> Result<(), String> {
        let work = &mut self.work;
        self.plane.set_clock().map_err(|error| error.to_string())?;
        let swept = self.plane.sweep(now_ns, SWEEP, &mut |flow| work.row(flow));
        work.flush();
        swept.map(drop).map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> Result<LiveCounters, String> {
        let account = self.plane.account().map_err(|error| error.to_string())?;
        Ok(LiveCounters {
            changed_queue: self.knows_queues.then_some(account.changed_queue),
            ..self.work.counters(account)
        })
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let work = &mut self.work;
        let finished = self.plane.finish(&mut |flow| work.row(flow));
        let account = finished.and_then(|()| self.plane.account());
        let told = account.as_ref().ok().filter(|_| self.knows_queues);
        let changed_queue = told.map(|account| account.changed_queue);
        let (counters, finished) = self.work.finish(account);
        let counters = LiveCounters {
            changed_queue,
            ..counters
        };
        (counters, finished)
    }
}
