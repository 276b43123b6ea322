//! The `af-xdp` datapath: whole frames that bypass the network stack, in memory shared with the kernel.
//!
//! The stack does not receive these frames, so this datapath is for taps. A socket is bound to one queue of the device,
//! and the directions of a flow may arrive on different queues. One worker therefore reads the frames of all queues, in
//! the order of their timestamps.

use std::time::Duration;
use std::{io, thread};

use bpf::Plain as _;
use datapath::{Datapath, Error, Missing};
use netdev::Netlink;
use netdev::requirement::{self, Requirement};
use packet::pcap::{ETHERNET, Frame};
use sys::capture::Promiscuous;
use xsk::{Bind, Mode, Pump, Umem, Wait};

use super::kernel::{self, Hook};
use super::worker::{Capturing, POLL_TIMEOUT, Workers, now_ns};
use super::{Features, LiveCounters, Plan, Running};
use crate::counters::Counters;
use crate::dissect::Tunnels;
use crate::extractor::RowExtractor;
use crate::filter::Selection;
use crate::kernel::{Account, HandOver, Settings};
use crate::options::Options;

/// Entries of a socket's rings.
const RING: u32 = 4096;
/// Frames of a queue: some for the kernel to fill, the others held here until the frames of other queues arrive.
const FRAMES: u32 = 2 * RING;
/// Nothing is transmitted, but a socket requires these rings.
const UNUSED_RING: u32 = 64;
/// Bytes of a frame's memory before its data: the kernel's headroom and a timestamp.
const BEFORE: u32 = 256;
/// Bytes of the timestamp that the program writes in front of a frame.
const STAMP: usize = size_of::<i64>();
/// A frame younger than this may have a predecessor that another queue is still receiving.
const YOUNG: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct AfXdp;

impl Datapath<Features> for AfXdp {
    fn name(&self) -> &'static str {
        "af-xdp"
    }

    fn check(&self) -> Result<(), Missing> {
        requirement::check(&[kernel::CAPABILITIES, Requirement::AfXdp])
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        super::wakes_by_itself(self.name(), plan)?;
        kernel::one_worker(self.name(), plan)?;
        plan.without_model(self.name())?;
        if !plan.tap {
            return Err(Error::Plan(
                "af-xdp takes packets away from the network stack: use it with --tap where they are copies, or tpacket"
                    .into(),
            ));
        }
        let options = plan.schema.options(&plan.options);
        let wanted = options.selection.clone();
        // The kernel does not open tunnels, so a selection by inner headers is applied here.
        let (there, here) = if options.tunnels == Tunnels::Inner {
            (Selection::default(), wanted)
        } else {
            (wanted, Selection::default())
        };
        let settings = Settings {
            options: Options {
                by_vlan: options.by_vlan,
                ignore_icmp_id: options.ignore_icmp_id,
                selection: there,
                ..Options::default()
            },
            ..kernel::any_settings(self.name(), Hook::Xdp, plan)?
        };
        let promiscuous = kernel::promiscuous(plan)?;
        let mut sockets = Sockets::open(plan, &settings)?;
        sockets.handing.attach(plan.ifindex)?;
        let capturing = Frames {
            sockets,
            work: RowExtractor::to_sink_selecting(here, plan.schema, &options, (plan.sink)())
                .recorded_by(plan.recorder.clone()),
            account: Account::default(),
            no_room: 0,
            _promiscuous: promiscuous,
        };
        Workers::start(self.name(), plan.ifindex, vec![capturing])
    }
}

/// One socket for each queue of a device.
#[derive(Debug)]
struct Sockets {
    handing: HandOver,
    pump: Pump,
    /// Received frames in the order of their timestamps.
    waiting: Vec<(i64, xsk::Frame)>,
}

impl Sockets {
    fn open(plan: &Plan, settings: &Settings) -> Result<Self, Error> {
        let link = Netlink::new().and_then(|mut netlink| netlink.link_by_index(plan.ifindex));
        let link = link.map_err(|error| Error::failed(plan.interface.clone(), error))?;
        let queues = link.rx_queues.max(1);
        // With the Ethernet header and two VLAN tags.
        let longest = link.mtu + 22 + BEFORE;
        let size = if longest <= 2048 { 2048 } else { 4096 };
        let mut pump = Pump::new(queues * FRAMES, size)?;
        let handing = HandOver::load(settings, queues)?;
        for queue in 0..queues {
            let bind = Bind {
                receive: RING,
                fill: RING,
                transmit: UNUSED_RING,
                completion: UNUSED_RING,
                ..Bind::new(plan.ifindex, queue, Mode::Copy)
            };
            let port = match pump.open(bind) {
                // A device may use fewer queues than it has.
                Err(xsk::Error::NoQueue { .. }) if queue > 0 => break,
                opened => opened?,
            };
            // The maximum that the kernel holds: its two rings.
            pump.set_quota(port, 2 * RING as usize);
            handing.steer(queue, &pump.ports[port])?;
        }
        Ok(Self {
            handing,
            pump,
            waiting: Vec::new(),
        })
    }

    /// Takes the received frames, and passes on in order those stamped before this time. Returns how many arrived.
    fn take(&mut self, before_ns: i64, mut take: impl FnMut(&Frame<'_>)) -> usize {
        let waiting = &mut self.waiting;
        let arrived = self.pump.receive_each(RING as usize, |pump, mut frame| {
            let time_ns = stamp(&pump.umem, &mut frame);
            waiting.push((time_ns, frame));
        });
        if self.pump.ports.len() > 1 {
            // The sort is stable, so frames of one queue keep their order.
            self.waiting.sort_by_key(|(time_ns, _)| *time_ns);
        }
        let ready = self
            .waiting
            .partition_point(|(time_ns, _)| *time_ns < before_ns);
        for (timestamp_ns, frame) in self.waiting.drain(..ready) {
            take(&Frame {
                timestamp_ns,
                original_length: u32::try_from(frame.len()).unwrap_or(u32::MAX),
                link_type: ETHERNET,
                bytes: self.pump.umem.bytes(&frame),
            });
            self.pump.free.push(frame);
        }
        arrived
    }

    /// Waits for a frame, with a short timeout.
    fn wait(&self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            thread::sleep(YOUNG);
            return Ok(());
        }
        match self.pump.wait(POLL_TIMEOUT)? {
            Wait::Over => Ok(()),
            Wait::Gone => Err(io::Error::from_raw_os_error(libc::ENETDOWN)),
        }
    }
}

/// The time at which the program saw the frame, read from the stamp in front of it.
fn stamp(umem: &Umem, frame: &mut xsk::Frame) -> i64 {
    let (start, length) = (frame.headroom(), frame.len());
    let stamped = start >= STAMP && frame.set(start - STAMP, STAMP);
    let time = stamped.then(|| i64::read(umem.bytes(frame))).flatten();
    let _restored = frame.set(start, length);
    time.unwrap_or(0)
}

/// Turns the sockets' frames into rows.
#[derive(Debug)]
struct Frames {
    sockets: Sockets,
    work: RowExtractor,
    /// The account when it was last read.
    account: Account,
    no_room: u64,
    _promiscuous: Option<Promiscuous>,
}

impl Frames {
    fn take_before(&mut self, before_ns: i64) -> usize {
        let work = &mut self.work;
        self.sockets.take(before_ns, |frame| work.frame(frame))
    }

    fn read(&mut self) -> Result<(), String> {
        let account = self.sockets.handing.account();
        self.account = account.map_err(|error| error.to_string())?;
        self.no_room = self.sockets.pump.dropped();
        Ok(())
    }
}

impl Capturing for Frames {
    fn take(&mut self) -> Result<bool, String> {
        let young = i64::try_from(YOUNG.as_nanos()).unwrap_or(0);
        let one_queue = self.sockets.pump.ports.len() == 1;
        let before = if one_queue {
            i64::MAX
        } else {
            now_ns() - young
        };
        let arrived = self.take_before(before);
        if arrived == 0 {
            self.sockets.wait().map_err(|error| error.to_string())?;
        }
        Ok(arrived > 0)
    }

    fn tick(&mut self, now_ns: i64) -> Result<(), String> {
        self.work.tick(now_ns);
        let set = self.sockets.handing.set_clock();
        set.map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> Result<LiveCounters, String> {
        self.read()?;
        let counters = self.work.counters();
        Ok(live_counters(
            &self.account,
            counters,
            self.no_room,
            self.work.rows(),
        ))
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let detached = self.sockets.handing.detach();
        while self.take_before(i64::MAX) > 0 {}
        let read = detached
            .map_err(|error| error.to_string())
            .and_then(|()| self.read());
        let done = self.work.finish();
        let taken = done.counters.seen.packets + self.account.left_out();
        if read.is_ok() {
            // Frames that were redirected but did not arrive, for whatever reason the kernel counts.
            self.no_room = self.account.packets.saturating_sub(taken);
        }
        let rows = (done.rows, done.lost_rows);
        let counters = live_counters(&self.account, done.counters, self.no_room, rows);
        let output = done.output.map_err(|error| error.to_string());
        (counters, output.and(read))
    }
}

/// Combines the frames that the program dropped with those counted here.
fn live_counters(
    account: &Account,
    here: Counters,
    no_room: u64,
    rows: (u64, u64),
) -> LiveCounters {
    let mut seen = kernel::left_out(account).and(here.seen);
    seen.bytes = account.bytes;
    LiveCounters {
        account: Counters { seen, ..here },
        no_room,
        changed_queue: None,
        rows: rows.0,
        lost_rows: rows.1,
    }
}
