//! The `tc` datapath: the network stack clones each frame as it comes in, on any device.
//! Which frames, to whom and with what headers is decided by bpf/tc.bpf.c and its tables.

use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::capability::{PeerDelivery, peer_delivery};

use crate::kernel::{self, Attachments, Exit, InKernel, Loaded, Tables, Watch};
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
        let attached = Attachments::tc("tc", object.program("relay_ingress")?);
        let watch = Watch::start(&tables)?;
        InKernel::start(attached, tables, watch, plan)
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
