//! The `tc-flow` datapath: `xdp-flow` at tc, for outgoing traffic and for devices without XDP.

use datapath::{Datapath, Error, Missing};
use netdev::attach::Direction as Side;
use netdev::requirement;

use super::group;
use super::kernel::{self, Hook, PlaneWork};
use super::worker::Workers;
use super::xdp_flow::Flows;
use super::{Direction, Features, Plan, Running};
use crate::kernel::{FlowPlane, Settings};

#[derive(Clone, Copy, Debug)]
pub(super) struct TcFlow;

impl Datapath<Features> for TcFlow {
    fn name(&self) -> &'static str {
        "tc-flow"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(kernel::REQUIREMENTS)
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        kernel::only_flows(self.name(), plan)?;
        kernel::one_worker(self.name(), plan)?;
        super::does_not_steer(self.name(), plan)?;
        let settings = Settings {
            raw: super::is_raw(group::hardware(plan)?),
            ..kernel::settings(self.name(), Hook::Tc, plan)?
        };
        let promiscuous = kernel::promiscuous(plan)?;
        let mut plane = FlowPlane::load_tc(&settings)?;
        kernel::connect(plan, &mut plane)?;
        for side in sides(plan.direction) {
            plane.attach_tc(plan.ifindex, *side)?;
        }
        let flows = Flows::new(plane, PlaneWork::new(plan), Hook::Tc, promiscuous);
        Workers::start(self.name(), plan.ifindex, vec![flows])
    }
}

fn sides(direction: Direction) -> &'static [Side] {
    match direction {
        Direction::In => &[Side::Ingress],
        Direction::Out => &[Side::Egress],
        Direction::Both => &[Side::Ingress, Side::Egress],
    }
}
