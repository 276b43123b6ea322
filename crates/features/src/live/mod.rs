//! Live datapaths: turn a device's frames into flows until they are stopped.

mod af_xdp;
mod device;
mod frame_reader;
mod group;
mod kernel;
mod recv;
mod tc_flow;
mod tpacket;
mod worker;
mod xdp_flow;
mod xdp_ringbuf;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use datapath::{Datapath, Error};
use netdev::XdpMode;
use netdev::requirement::Requirement;
use sys::caps::Capability;

use crate::counters::Counters;
use crate::kernel::{ModelSlot, Wakeup};
use crate::options::Options;
use crate::recording::Recorder;
use crate::schema::{Description, Schema};
use crate::sink::Sink;

pub use device::{Device, OFFLOADS};

/// The features job: the types of its datapaths' plans and counters.
#[derive(Debug)]
pub enum Features {}

impl datapath::Job for Features {
    type Plan = Plan;
    type Counters = LiveCounters;
    type Summary = RunSummary;
    type FastPath = ();
}

/// A running datapath.
pub type Running = Box<dyn datapath::Running<Features>>;

/// All live datapaths, userspace first. A new datapath is added here.
pub fn datapaths() -> Vec<Box<dyn Datapath<Features>>> {
    let xdp_flow = |name, mode| xdp_flow::XdpFlow { name, mode };
    vec![
        Box::new(recv::Recv),
        Box::new(tpacket::Tpacket),
        Box::new(xdp_ringbuf::XdpRingbuf),
        Box::new(xdp_flow("xdp-flow", XdpMode::Native)),
        Box::new(xdp_flow("xdp-generic", XdpMode::Generic)),
        Box::new(tc_flow::TcFlow),
        Box::new(af_xdp::AfXdp),
    ]
}

/// The datapaths that supply a column, captures first. Programs in the kernel supply header fields or only flows. All
/// other datapaths supply whole frames.
pub fn givers(schema: &Schema, column: &Description) -> Vec<&'static str> {
    let gives = |name: &&'static str| match *name {
        "xdp-flow" | "xdp-generic" | "tc-flow" => {
            schema.flow_columns().is_some() && !column.needs_payload
        }
        "xdp-ringbuf" => !column.needs_payload,
        _ => true,
    };
    let live = datapaths();
    let names = live.iter().map(|datapath| datapath.name());
    std::iter::once("pcap").chain(names).filter(gives).collect()
}

/// Creates a worker's sink.
pub type SinkOf = Arc<dyn Fn() -> Box<dyn Sink> + Send + Sync>;

/// The plan of a capture: its device and options, and the destination of its rows.
#[derive(Clone)]
pub struct Plan {
    pub interface: String,
    pub ifindex: u32,
    pub options: Options,
    pub schema: &'static Schema,
    pub direction: Direction,
    /// Capture frames for other machines as well.
    pub promiscuous: bool,
    /// Drop frames after counting them. This is for input that is a copy of the traffic.
    pub tap: bool,
    /// Threads that share the device's flows. `None` lets the datapath choose.
    pub workers: Option<NonZeroUsize>,
    /// When the reader of the XDP datapaths' rings wakes.
    pub wakeup: Wakeup,
    /// Count both directions of a flow on one CPU, whichever queue they arrive on.
    pub steer: bool,
    pub sink: SinkOf,
    /// Classifies flows in the kernel and determines the action for them.
    pub model: Option<Arc<ModelSlot>>,
    /// Records the frames whose packets make rows.
    pub recorder: Option<Recorder>,
}

/// The direction of the captured frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Frames that arrive.
    #[default]
    In,
    /// Frames that this machine sends.
    Out,
    Both,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounters {
    pub account: Counters,
    /// Frames that the kernel dropped for lack of room.
    pub no_room: u64,
    /// Packets that arrived on another queue than the previous packet of their flow and direction. Counted only where a
    /// program in the kernel counts flows.
    pub changed_queue: Option<u64>,
    pub rows: u64,
    pub lost_rows: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// The last counters that could be read.
    pub counters: LiveCounters,
    /// The first error, during the run or at its end.
    pub failed: Option<String>,
}

impl LiveCounters {
    /// The sum of two workers' or two runs' counters.
    pub fn and(self, other: Self) -> Self {
        let changed_queue = match (self.changed_queue, other.changed_queue) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
        Self {
            account: self.account.and(other.account),
            no_room: self.no_room + other.no_room,
            changed_queue,
            rows: self.rows + other.rows,
            lost_rows: self.lost_rows + other.lost_rows,
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("interface", &self.interface)
            .field("options", &self.options)
            .field("schema", &self.schema.name)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Checks that a packet socket supports the plan. The error names the datapaths that do.
    fn check_socket(&self, name: &str) -> Result<(), Error> {
        if self.tap {
            return Err(Error::Plan(format!(
                "{name} gets copies, and cannot drop what they were made of; the xdp datapaths and tc-flow can"
            )));
        }
        if self.direction == Direction::Out {
            return Err(Error::Plan(format!(
                "{name} sees what is sent only beside what comes in (--direction both); tc-flow sees it alone"
            )));
        }
        device::check_plan(name, self)
    }

    /// Checks that the plan has no model, for datapaths without a kernel program to evaluate it.
    fn without_model(&self, name: &str) -> Result<(), Error> {
        if self.model.is_none() {
            return Ok(());
        }
        Err(Error::Plan(format!(
            "{name} asks no model in the kernel; xdp-flow, xdp-generic and tc-flow do, and scores of rows need none"
        )))
    }

    /// The number of workers.
    fn workers(&self, best: usize) -> usize {
        self.workers.map_or_else(|| best.max(1), NonZeroUsize::get)
    }

    /// The options of one of several workers, with its share of the flow limit.
    fn part(&self, workers: usize) -> Options {
        let mut options = self.options.clone();
        options.limits.most_flows = (options.limits.most_flows / workers).max(1);
        options
    }
}

/// Half of the CPUs, because the others process incoming traffic. The number is capped, because more workers contend.
fn half_the_cpus() -> usize {
    const MAX_WORKERS: usize = 4;
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (cpus / 2).clamp(1, MAX_WORKERS)
}

/// The link type of frames from a device of this ARP hardware type.
fn link_type(hardware: u16) -> u32 {
    const RAW: u32 = 101;
    if is_raw(hardware) {
        RAW
    } else {
        packet::pcap::ETHERNET
    }
}

/// Whether the frames of a device with this hardware type begin with the IP header.
fn is_raw(hardware: u16) -> bool {
    /// From linux/if_arp.h.
    const ARPHRD_RAWIP: u16 = 519;
    matches!(
        hardware,
        libc::ARPHRD_NONE
            | ARPHRD_RAWIP
            | libc::ARPHRD_TUNNEL
            | libc::ARPHRD_TUNNEL6
            | libc::ARPHRD_SIT
            | libc::ARPHRD_PPP
            | libc::ARPHRD_IPGRE
    )
}

/// Checks that the plan does not steer, for a datapath that does not support it.
fn does_not_steer(name: &str, plan: &Plan) -> Result<(), Error> {
    if !plan.steer {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{name} does not bring the directions of a flow to one CPU; xdp-flow and xdp-generic do"
    )))
}

/// Checks that the plan sets no wake-up, for a datapath without a ring of records.
fn wakes_by_itself(name: &str, plan: &Plan) -> Result<(), Error> {
    does_not_steer(name, plan)?;
    if plan.wakeup == Wakeup::default() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{name} has no ring of records whose reader could be woken otherwise; the XDP datapaths have"
    )))
}

/// The requirements of every datapath that captures with a packet socket.
const CAPTURE: &[Requirement] = &[Requirement::Capabilities(&[Capability::NetRaw])];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn a_column_names_the_datapaths_that_give_it() {
        let given = |schema: &str, column: &str| {
            let schema = schema::find(schema).unwrap();
            let columns = schema.columns();
            let column = columns.iter().find(|known| known.name == column).unwrap();
            givers(schema, column)
        };
        let all = given("flow.v1", "packets");
        assert_eq!(all.len(), 1 + datapaths().len());
        assert!(!given("flow.v1", "tls_sni").contains(&"xdp-flow"));
        let packets = given("packet.v1", "ttl");
        assert!(packets.contains(&"xdp-ringbuf") && !packets.contains(&"xdp-flow"));
        assert!(!given("nprint.v1", "bits").contains(&"xdp-ringbuf"));
        assert_eq!(given("conn.v1", "packets").len(), all.len());
        let states = given("conn.v1", "conn_state");
        assert_eq!(states, ["pcap", "recv", "tpacket", "af-xdp"]);
    }
}
