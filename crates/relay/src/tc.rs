//! The `tc` datapath: the network stack clones each frame as it comes in, on any device.
//! Which frames, to whom and with what headers is decided by bpf/tc.bpf.c and its tables.

use std::mem::MaybeUninit;
use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::attach::Direction;
use netdev::capability::{PeerDelivery, peer_delivery};
use netdev::{Attachments, Hook, requirement};

use crate::kernel::skel::tc::TcSkelBuilder;
use crate::kernel::{self, EgressDevice, InKernel, Tables, Watch};
use crate::plan::Plan;
use crate::{Relay, Running};

/// The datapath; by tcx, or by clsact where the kernel has no tcx.
#[derive(Clone, Copy, Debug)]
pub struct Tc;

impl Datapath<Relay> for Tc {
    fn name(&self) -> &'static str {
        "tc"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(&[kernel::CAPABILITIES])
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        let mut storage = MaybeUninit::uninit();
        let skel = kernel::load(TcSkelBuilder::default(), &mut storage, self.name())?;
        let tables = Arc::new(Tables::new(kernel::maps!(skel), None, look)?);
        let ingress = bpf::program(&skel.progs.relay_ingress)?;
        let attached = Attachments::new(ingress, Hook::Tc(Direction::Ingress));
        let watch = Watch::start(&tables)?;
        InKernel::start(attached, tables, watch, plan)
    }
}

/// The stack sends on every device it has.
fn look(ifindex: u32) -> EgressDevice {
    let peer = peer_delivery(ifindex)
        .unwrap_or_else(|error| PeerDelivery::Through(format!("it cannot be looked at: {error}")));
    EgressDevice {
        slow: None,
        peer: Some(peer),
    }
}
