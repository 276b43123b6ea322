//! Runs the kernel's programs on given frames without attaching them, to measure the cost of each program on this
//! machine.
//!
//! Each frame is run once, in order and with its own timestamp, so that flows begin, continue and end as in the
//! capture. The kernel's clock is read before and after each run. A program that does nothing shows the cost of that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bpf::{Plain as _, Run};
use datapath::Error;
use libbpf_rs::libbpf_sys::xdp_md;
use packet::pcap::Frame;

use super::calls;
use super::fanout::chooser;
use super::flows::FlowPlane;
use super::hand_over::HandOver;
use super::packets::PacketPlane;
use super::rings::PacketRings;
use super::settings::{Clock, Settings};
use super::skel::flow::types;
use crate::options::Options;

/// Identifies our metadata to the programs.
const MAGIC: u32 = 0x6d72_6f66;
/// The maximum number of bytes of a frame that are run. At tc a frame must fit into a page, with space around it.
const MAX_FRAME: usize = 3500;
/// Frames between two reads of the programs' results, fewer than the rings hold.
const BATCH: u32 = 1024;
/// The interval of sweeps for ended flows, in nanoseconds of the frames' timestamps.
const TICK_NS: i64 = 1_000_000_000;

/// A program that processes every packet of a datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An empty program as the baseline.
    Empty,
    XdpRingbuf,
    XdpFlow,
    TcFlow,
    AfXdp,
    /// The program that distributes the frames of `recv` and `tpacket` among workers.
    Fanout,
}

/// What runs have taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    pub runs: u64,
    pub ns: u64,
}

/// A program that was loaded to be timed, and what it has seen.
#[derive(Debug)]
pub struct Trial {
    subject: Subject,
    program: Program,
    timed: RunTime,
    /// Since the last look at what it has left.
    frames: u32,
    swept_ns: Option<i64>,
    /// A frame with what is told in front of it.
    room: Vec<u8>,
    refused: Option<io::Error>,
}

#[derive(Debug)]
enum Program {
    Empty(OwnedFd),
    Packets(Box<PacketPlane>, Vec<PacketRings>),
    Flows(Box<FlowPlane>),
    FlowsAtTc(Box<FlowPlane>),
    Handing(Box<HandOver>),
    Fanout(OwnedFd),
}

impl Subject {
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::XdpRingbuf,
        Self::XdpFlow,
        Self::TcFlow,
        Self::AfXdp,
        Self::Fanout,
    ];

    /// Its datapath's name, where it belongs to one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::XdpRingbuf => "xdp-ringbuf",
            Self::XdpFlow => "xdp-flow",
            Self::TcFlow => "tc-flow",
            Self::AfXdp => "af-xdp",
            Self::Fanout => "fanout",
        }
    }

    fn failed(self, error: io::Error) -> Error {
        Error::failed(format!("running the program {}", self.name()), error)
    }
}

impl Trial {
    /// Loads the program with empty tables. The calling thread must stay on one CPU until the end: each
    /// CPU has tables of its own.
    pub fn load(subject: Subject, options: &Options) -> Result<Self, Error> {
        let settings = Settings {
            options: options.clone(),
            clock: Clock::Metadata,
            ..Settings::default()
        };
        let program = match subject {
            Subject::Empty => {
                let loaded = calls::load_empty();
                Program::Empty(loaded.map_err(|error| Error::failed("an empty program", error))?)
            }
            Subject::XdpRingbuf => {
                let (plane, rings) = PacketPlane::load(&settings)?;
                Program::Packets(Box::new(plane), rings)
            }
            Subject::XdpFlow => Program::Flows(Box::new(FlowPlane::load(&settings)?)),
            Subject::TcFlow => Program::FlowsAtTc(Box::new(FlowPlane::load_tc(&settings)?)),
            Subject::AfXdp => Program::Handing(Box::new(HandOver::load(&settings, 1)?)),
            Subject::Fanout => Program::Fanout(chooser(false, &Options::default())?),
        };
        Ok(Self {
            subject,
            program,
            timed: RunTime::default(),
            frames: 0,
            swept_ns: None,
            room: Vec::new(),
            refused: None,
        })
    }

    /// Runs the program on an Ethernet frame. One that the kernel takes in no such run, as it is shorter
    /// than its headers, is passed over.
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        match self.run(frame) {
            Ok(ns) => {
                self.timed.runs += 1;
                self.timed.ns += u64::from(ns);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.refused = Some(error),
            Err(error) => return Err(self.subject.failed(error)),
        }
        self.frames += 1;
        if self.frames == BATCH {
            self.frames = 0;
            self.tidy(frame.timestamp_ns)?;
        }
        Ok(())
    }

    /// What the runs took. That the kernel took no frame at all is an error.
    pub fn finish(self) -> Result<RunTime, Error> {
        match self.refused {
            Some(error) if self.timed.runs == 0 => Err(self.subject.failed(error)),
            _ => Ok(self.timed),
        }
    }

    fn run(&mut self, frame: &Frame<'_>) -> io::Result<u32> {
        let bytes = &frame.bytes[..frame.bytes.len().min(MAX_FRAME)];
        let program = self.program.fd();
        match self.program {
            Program::FlowsAtTc(_) => run_once(program, bytes, &skb_context(frame)),
            Program::Fanout(_) => run_once(program, bytes, &[]),
            _ => {
                in_front(frame, bytes, &mut self.room);
                run_once(program, &self.room, around(self.room.len()).bytes())
            }
        }
    }

    /// Takes what the program has left, which is no part of what is timed: else its rings would be full.
    fn tidy(&mut self, now_ns: i64) -> Result<(), Error> {
        match &mut self.program {
            Program::Packets(_, rings) => {
                for rings in rings {
                    rings.collect(i64::MAX, |_| {});
                }
            }
            Program::Flows(plane) | Program::FlowsAtTc(plane) => {
                plane.collect(&mut drop)?;
                let swept_ns = *self.swept_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(swept_ns) >= TICK_NS {
                    self.swept_ns = Some(now_ns);
                    plane.sweep(now_ns, Duration::MAX, &mut drop)?;
                }
            }
            Program::Empty(_) | Program::Handing(_) | Program::Fanout(_) => {}
        }
        Ok(())
    }
}

impl Program {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Empty(program) | Self::Fanout(program) => program.as_fd(),
            Self::Packets(plane, _) => plane.program(),
            Self::Flows(plane) | Self::FlowsAtTc(plane) => plane.program(),
            Self::Handing(handing) => handing.program(),
        }
    }
}

/// What a run took, in nanoseconds.
fn run_once(program: BorrowedFd<'_>, frame: &[u8], context: &[u8]) -> io::Result<u32> {
    let run = Run {
        frame,
        context,
        repeat: 1,
        ..Default::default()
    };
    bpf::run(program, &run)
}

fn wire_length(frame: &Frame<'_>) -> u32 {
    let captured = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
    frame.original_length.max(captured)
}

/// A frame for XDP, with its time and its length on the wire in front.
fn in_front(frame: &Frame<'_>, bytes: &[u8], room: &mut Vec<u8>) {
    let metadata = types::metadata {
        time_ns: frame.timestamp_ns.cast_unsigned(),
        wire_length: wire_length(frame),
        magic: MAGIC,
        ..Default::default()
    };
    room.clear();
    room.extend_from_slice(metadata.bytes());
    room.extend_from_slice(bytes);
}

/// So many bytes, the first of which are metadata.
fn around(length: usize) -> xdp_md {
    xdp_md {
        data: u32::try_from(size_of::<types::metadata>()).unwrap_or(0),
        data_end: u32::try_from(length).unwrap_or(u32::MAX),
        ..Default::default()
    }
}

/// `struct __sk_buff` with the frame's time and its length on the wire: tstamp and wire_len.
fn skb_context(frame: &Frame<'_>) -> [u8; 192] {
    let mut context = [0; 192];
    context[152..160].copy_from_slice(&frame.timestamp_ns.to_ne_bytes());
    context[160..164].copy_from_slice(&wire_length(frame).min(65_536).to_ne_bytes());
    context
}
