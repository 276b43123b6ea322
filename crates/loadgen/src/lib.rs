//! Packet generators and pcap replay: an open loop on an absolute schedule, which records how late
//! it was itself and never catches up silently.

mod af_xdp;
mod engine;
mod far_end;
mod frame;
mod lateness;
mod live;
pub mod mix;
mod replay;
mod schedule;
mod skel;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use netdev::requirement::Requirement;
use packet::payload;
use stats::Histogram;
use sys::caps::Capability;

pub use far_end::{FarCounts, FarEnd, Verdict};
pub use replay::{Replay, SkipCounts, Timing};

/// The requirements of each backend, by its name.
pub const REQUIREMENTS: &[(&str, &[Requirement])] = &[
    ("socket", &[]),
    (
        "live",
        &[
            Requirement::Kernel {
                major: 5,
                minor: 18,
            },
            Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin]),
        ],
    ),
    (
        "af-xdp",
        &[
            Requirement::KernelOption("CONFIG_XDP_SOCKETS"),
            Requirement::Capabilities(&[Capability::NetRaw, Capability::Bpf]),
        ],
    ),
    ("pcap", &[Requirement::Capabilities(&[Capability::NetRaw])]),
];

/// How frames come to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// A UDP socket: what applications use, and the only one that tc egress sees.
    Socket,
    /// Frames through AF_XDP, past the queueing discipline.
    AfXdp,
    /// Frames made by a BPF program inside the kernel, as fast as it can; the receiving device
    /// needs an XDP program or GRO. What arrives must be counted at the far end.
    Live,
    /// The frames of a capture, through the queueing discipline.
    Pcap(Replay),
}

impl Backend {
    /// `socket`, `af-xdp`, `live`, `pcap`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::AfXdp => "af-xdp",
            Self::Live => "live",
            Self::Pcap(_) => "pcap",
        }
    }
}

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// After this many packets over all flows.
    Packets(u64),
    /// After this time; with a rate, the packets that are due in it.
    Time(Duration),
}

/// The packets to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub backend: Backend,
    /// The device to send from; unused by `Socket`.
    pub ifindex: u32,
    /// The source of every flow.
    pub source: SocketAddr,
    /// One flow each, of the source's family. Packet k belongs to flow k modulo their number.
    /// `Pcap` may send everything to the first.
    pub destinations: Vec<SocketAddr>,
    /// Link-layer addresses of `AfXdp` and `Live` frames, and of rewritten `Pcap` frames.
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    /// UDP payload bytes, at least [`payload::LEN`]. With `Pcap`, as everything below that says
    /// what to send, it is the capture's business.
    pub payload_len: usize,
    /// Packets a second over all flows; `None` is as fast as it goes. `Live` waits in the kernel and
    /// occupies its CPU all the time. `Pcap` has its own timing.
    pub rate: Option<f64>,
    pub amount: Amount,
    /// Packets that are due together and sent in one call; for `Live`, the kernel's batch
    /// (at most 256).
    pub burst: usize,
    /// Tells this run's packets from others'.
    pub run: u32,
    /// Keep the sending thread to this CPU.
    pub cpu: Option<usize>,
    /// Real-time priority. The thread then sleeps at least a tenth of the time, in naps of some 20 us
    /// where the schedule leaves no longer ones: the kernel stops a real-time thread that spins for
    /// about 50 ms each second.
    pub fifo: bool,
}

/// The result of sending a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendReport {
    /// Packets that were due.
    pub scheduled: u64,
    /// Packets the kernel took. With `Live`, packets handed to the device: some may be dropped
    /// there without a word.
    pub sent: u64,
    /// Packets the kernel had no room for (EAGAIN, ENOBUFS); their sequence numbers are not used.
    pub refused: u64,
    /// Packets that could not be sent for another reason.
    pub errors: u64,
    /// By flow: packets sent, which is also the next sequence number. A capture is one flow.
    pub flows: Vec<u64>,
    /// From the first packet's due time until the last was handed over.
    pub elapsed_ns: u64,
    /// The part of that time within calls that each send many packets: `Live` at full speed pauses between
    /// them. 0 with other back ends.
    pub sending_ns: u64,
    /// Nanoseconds from due to handed over, a value for each packet; empty without a rate.
    pub lateness: Histogram,
    /// The part of `lateness` that is the generator's own and not the time the kernel took for
    /// earlier packets.
    pub lateness_outside_send: Histogram,
    pub achieved_pps: f64,
    /// CPU time of the sending thread, softirq it was made to run included.
    pub thread_cpu_ns: u64,
    /// Frames of a capture that were not replayed, and why.
    pub skipped: SkipCounts,
}

/// Why a load could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Load(String),
    #[error("{what}: {cause}")]
    Io { what: String, cause: io::Error },
    #[error(transparent)]
    AfXdp(#[from] xsk::Error),
    #[error("{what}: {cause}")]
    Bpf {
        what: String,
        cause: libbpf_rs::Error,
    },
    #[error(transparent)]
    Device(#[from] netdev::Error),
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |cause| Self::Io {
            what: what.into(),
            cause,
        }
    }

    /// For `map_err` of libbpf and of `bpf`, whose own words for the attempt are dropped.
    fn bpf<E: Into<libbpf_rs::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Bpf {
            what: what.to_owned(),
            cause: error.into(),
        }
    }
}

impl From<bpf::Error> for Error {
    fn from(error: bpf::Error) -> Self {
        Self::Bpf {
            what: error.what,
            cause: error.source,
        }
    }
}

/// Sends a load from the calling thread, which must be in the sender's network namespace and is
/// best one of its own: its CPU and priority are changed. Returns when all is sent or `stop` is
/// set.
///
/// # Errors
/// The load cannot be sent here at all; packets refused on the way are counted instead.
pub fn generate(load: &Load, stop: &AtomicBool) -> Result<SendReport, Error> {
    load.check()?;
    if matches!(load.backend, Backend::AfXdp | Backend::Live) {
        load.check_mtu()?;
    }
    load.place()?;
    match &load.backend {
        Backend::Socket => engine::run(load, &mut socket::Sender::new(load)?, stop),
        Backend::AfXdp => engine::run(load, &mut af_xdp::Sender::new(load)?, stop),
        Backend::Live => live::run(load, stop),
        Backend::Pcap(replay) => replay::run(load, replay, stop),
    }
}

/// Minimum packets a second with `Live`: the program's wait for a packet is limited.
const LIVE_MIN_RATE: f64 = 100.0;

impl Load {
    fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Load(what));
        let v4 = self.source.is_ipv4();
        let (overhead, maximum) = if v4 { (28, 65_507) } else { (48, 65_527) };
        if let Backend::Pcap(_) = self.backend {
            return Ok(());
        }
        if self.destinations.is_empty() {
            return refuse("a load needs a destination".into());
        }
        if let Some(other) = self.destinations.iter().find(|to| to.is_ipv4() != v4) {
            return refuse(format!("{other} cannot be reached from {}", self.source));
        }
        if !(payload::LEN..=maximum).contains(&self.payload_len) {
            return refuse(format!(
                "payload_len must be {} to {maximum} bytes, not {}",
                payload::LEN,
                self.payload_len
            ));
        }
        if self.backend != Backend::Socket && self.payload_len + overhead + 14 > frame::MAX {
            return refuse(format!(
                "{} sends frames of at most {} bytes",
                self.backend.name(),
                frame::MAX
            ));
        }
        if !(1..=1024).contains(&self.burst) {
            return refuse(format!("burst must be 1 to 1024, not {}", self.burst));
        }
        if self.rate.is_some_and(|rate| !(1e-3..=1e9).contains(&rate)) {
            return refuse("rate must be 0.001 to 1e9 packets a second".into());
        }
        if self.backend == Backend::Live && self.rate.is_some() {
            if self.burst > live::MAX_BATCH {
                return refuse(format!(
                    "paced live frames go in bursts of at most {}, not {}",
                    live::MAX_BATCH,
                    self.burst
                ));
            }
            if self.rate.is_some_and(|rate| rate < LIVE_MIN_RATE) {
                return refuse(format!(
                    "live frames cannot be paced slower than {LIVE_MIN_RATE} a second; use socket or af-xdp"
                ));
            }
        }
        Ok(())
    }

    /// Frames longer than the device's MTU would be dropped without a word.
    fn check_mtu(&self) -> Result<(), Error> {
        let link = netdev::Netlink::new()?.link_by_index(self.ifindex)?;
        let headers = if self.source.is_ipv4() { 28 } else { 48 };
        let packet = self.payload_len + headers;
        if packet > link.mtu as usize {
            return Err(Error::Load(format!(
                "packets of {packet} bytes do not fit {}, whose MTU is {}",
                link.name, link.mtu
            )));
        }
        Ok(())
    }

    fn place(&self) -> Result<(), Error> {
        if let Some(cpu) = self.cpu {
            sys::sched::pin(cpu).map_err(Error::io(format!("CPU {cpu}")))?;
        }
        if self.fifo {
            sys::sched::fifo(50).map_err(Error::io("real-time priority"))?;
        }
        Ok(())
    }
}
