//! Live datapaths: a device's frames to flows, until stopped.

mod framed;
mod kernel;
mod recv;
mod tpacket;
mod worker;
mod xdp_flow;
mod xdp_ringbuf;

use std::fmt;
use std::sync::Arc;

use datapath::{Datapath, Error, Missing};
use netdev::XdpMode;
use sys::caps::{Capability, Effective};
use sys::capture::Capture;

use crate::counters::{Counters, Exported, Seen};
use crate::extractor::Options;
use crate::kernel::Wakeup;
use crate::schema::Schema;
use crate::sink::Sink;

/// The features job: what its datapaths are asked and count.
#[derive(Debug)]
pub enum Features {}

impl datapath::Job for Features {
    type Plan = Plan;
    type Counters = LiveCounters;
    type FastPath = ();
}

/// A datapath, running.
pub type Running = Box<dyn datapath::Running<Features>>;

/// Every live datapath, userspace first. A new one is one line here.
pub fn datapaths() -> Vec<Box<dyn Datapath<Features>>> {
    let xdp_flow = |name, mode| xdp_flow::XdpFlow { name, mode };
    vec![
        Box::new(recv::Recv),
        Box::new(tpacket::Tpacket),
        Box::new(xdp_ringbuf::XdpRingbuf),
        Box::new(xdp_flow("xdp-flow", XdpMode::Native)),
        Box::new(xdp_flow("xdp-generic", XdpMode::Generic)),
    ]
}

/// Makes a worker's sink.
pub type SinkOf = Arc<dyn Fn() -> Box<dyn Sink> + Send + Sync>;

/// What to capture, and what becomes of it.
#[derive(Clone)]
pub struct Plan {
    pub interface: String,
    pub ifindex: u32,
    pub options: Options,
    pub schema: &'static Schema,
    /// Frames that this machine sends, too.
    pub outgoing: bool,
    /// Frames for other machines, too.
    pub promiscuous: bool,
    /// Threads that share the device's flows.
    pub workers: usize,
    /// When whoever reads the rings of the XDP datapaths wakes.
    pub wakeup: Wakeup,
    /// Have both directions of a flow counted on one CPU, wherever they come in.
    pub steer: bool,
    pub sink: SinkOf,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounters {
    pub account: Counters,
    /// Frames that the kernel had for us and had no room for.
    pub no_room: u64,
    /// Packets that came by another of the device's queues than the one before in their flow and
    /// direction; where a program in the kernel counts flows.
    pub changed_queue: Option<u64>,
    pub rows: u64,
    pub lost_rows: u64,
}

impl LiveCounters {
    /// What two workers have counted, as one.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            account: Counters {
                seen: Seen::and(self.account.seen, other.account.seen),
                exported: Exported::and(self.account.exported, other.account.exported),
                open: self.account.open + other.account.open,
            },
            no_room: self.no_room + other.no_room,
            changed_queue: self.changed_queue.or(other.changed_queue),
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
    /// A capture for each worker; several share the device's flows as a group of their own.
    fn captures(&self) -> impl Iterator<Item = Capture> {
        // Groups are the network namespace's: another process must not join this one by chance.
        let group = (std::process::id() ^ self.ifindex) & 0xffff;
        let capture = Capture {
            ifindex: self.ifindex,
            outgoing: self.outgoing,
            promiscuous: self.promiscuous,
            fanout: (self.workers > 1).then(|| u16::try_from(group).unwrap_or(0)),
        };
        std::iter::repeat_n(capture, self.workers.max(1))
    }
}

/// The link type of frames from a device of this hardware type.
fn link_type(hardware: u16) -> u32 {
    const RAW: u32 = 101;
    /// Of linux/if_arp.h.
    const ARPHRD_RAWIP: u16 = 519;
    match hardware {
        libc::ARPHRD_NONE
        | ARPHRD_RAWIP
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | libc::ARPHRD_PPP
        | libc::ARPHRD_IPGRE => RAW,
        _ => packet::pcap::ETHERNET,
    }
}

/// Refuses to steer where all packets meet in one table anyway.
fn needs_no_steering(name: &str, plan: &Plan) -> Result<(), Error> {
    if !plan.steer {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{name} counts no flows in the kernel, where directions could miss each other; xdp-flow does"
    )))
}

/// Refuses a wake-up that was asked for, where there is no ring of records.
fn wakes_by_itself(name: &str, plan: &Plan) -> Result<(), Error> {
    needs_no_steering(name, plan)?;
    if plan.wakeup == Wakeup::default() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "{name} has no ring of records whose reader could be woken otherwise; the XDP datapaths have"
    )))
}

/// What every datapath that captures with a packet socket needs.
fn may_capture() -> Result<(), Missing> {
    let missing = Effective::read().map(|own| own.missing(&[Capability::NetRaw]));
    match missing {
        Ok(missing) if missing.is_empty() => Ok(()),
        _ => Err(Missing::new(
            "needs CAP_NET_RAW",
            "run with sudo, or: setcap cap_net_raw+ep",
        )),
    }
}
