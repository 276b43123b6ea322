//! Counts generated packets exactly where they arrive: an XDP program on the receiving device.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use bpf::PerCpu;
use netdev::XdpMode;
use netdev::attach::{self, Attachment};

use crate::Error;
use crate::skel::far_end::{FarEndSkelBuilder, types};

impl bpf::Counters for types::far_count {}

/// The fate of our packets once they are counted. Others always go up the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `XDP_DROP`
    Drop = 1,
    /// `XDP_PASS`
    Pass = 2,
}

/// An attached counter. Dropping it detaches it.
pub struct FarEnd {
    counts: PerCpu<types::far_count>,
    flows: u32,
    _attached: Attachment,
}

/// The packets that have arrived since the counter was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FarCounts {
    /// Packets of our run, by flow.
    pub flows: Vec<u64>,
    /// Frame bytes of those.
    pub bytes: u64,
    /// Frames that are not of our run.
    pub foreign: u64,
}

impl FarCounts {
    /// Packets of our run.
    pub fn packets(&self) -> u64 {
        self.flows.iter().sum()
    }
}

impl FarEnd {
    /// Counts packets of `run` with flow numbers below `flows` on a device of the calling thread's
    /// namespace, in native mode.
    ///
    /// # Errors
    /// The device has an XDP program already, or its driver has no XDP.
    pub fn attach(ifindex: u32, run: u32, flows: u32, verdict: Verdict) -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let builder = FarEndSkelBuilder::default();
        let skel = bpf::load(builder, &mut storage, "the counting program", |open| {
            if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
                knobs.flow_count = flows;
                knobs.run_id = run;
                knobs.verdict = verdict as u32;
            }
            open.maps
                .counts
                .set_max_entries(flows + 1)
                .map_err(Error::bpf("sizing the counters"))
        })?;
        let counts = PerCpu::new(&skel.maps.counts)?;
        let attached = attach::xdp(skel.progs.count.as_fd(), ifindex, XdpMode::Native)?;
        Ok(Self {
            counts,
            flows,
            _attached: attached,
        })
    }

    /// Sums over all CPUs. Exact once the sender has stopped and its packets have arrived.
    ///
    /// # Errors
    /// The kernel refuses to read the map, which it does not while this is attached.
    pub fn counts(&self) -> Result<FarCounts, Error> {
        let mut counts = FarCounts::default();
        for flow in 0..self.flows {
            let count = self.entry(flow)?;
            counts.flows.push(count.packets);
            counts.bytes += count.bytes;
        }
        counts.foreign = self.entry(self.flows)?.packets;
        Ok(counts)
    }

    fn entry(&self, index: u32) -> Result<types::far_count, Error> {
        let sum = self.counts.sum(index);
        sum.map_err(Error::bpf("reading the counters"))
    }
}

impl fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarEnd")
            .field("flows", &self.flows)
            .finish_non_exhaustive()
    }
}
