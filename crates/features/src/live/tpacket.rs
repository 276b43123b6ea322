//! The `tpacket` datapath: frames in a ring of blocks that the kernel fills.

use std::io;
use std::time::Duration;

use datapath::{Datapath, Error, Missing};
use netdev::requirement;
use packet::pcap::Frame;
use sys::capture::{Capture, FrameInfo, Socket, Statistics};
use sys::packet_ring::{Ring, Shape};

use super::frame_reader::Source;
use super::group::{self, Member};
use super::worker::{POLL_TIMEOUT, Workers};
use super::{CAPTURE, Features, Plan, Running, half_the_cpus};

/// 32 MiB: a tenth of a second of small packets at two million packets per second.
const SHAPE: Shape = Shape {
    block: 1 << 20,
    blocks: 32,
    patience: Duration::from_millis(10),
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Tpacket;

impl Datapath<Features> for Tpacket {
    fn name(&self) -> &'static str {
        "tpacket"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(CAPTURE)
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        super::wakes_by_itself(self.name(), plan)?;
        plan.without_model(self.name())?;
        plan.check_socket(self.name())?;
        let framed = group::open::<Blocks>(plan, half_the_cpus())?;
        Workers::start(self.name(), plan.ifindex, framed)
    }
}

#[derive(Debug)]
struct Blocks {
    ring: Ring,
    link_type: u32,
}

impl Member for Blocks {
    fn open(capture: &Capture) -> io::Result<Self> {
        let ring = Ring::open(capture, SHAPE)?;
        Ok(Self {
            link_type: super::link_type(ring.socket().hardware()?),
            ring,
        })
    }

    fn socket(&self) -> &Socket {
        self.ring.socket()
    }
}

impl Source for Blocks {
    fn frames(&mut self, mut take: impl FnMut(&Frame<'_>)) -> io::Result<bool> {
        let link_type = self.link_type;
        let mut take = |seen: FrameInfo, bytes: &[u8]| {
            take(&Frame {
                timestamp_ns: seen.time_ns,
                original_length: seen.length,
                link_type,
                bytes,
            });
        };
        if self.ring.next_block(&mut take) {
            return Ok(true);
        }
        self.ring.wait(POLL_TIMEOUT)?;
        Ok(self.ring.next_block(&mut take))
    }

    fn statistics(&mut self) -> io::Result<Statistics> {
        self.ring.statistics()
    }
}
