//! The `af-xdp` datapath: whole frames past the stack, in memory that the kernel shares with us.
//!
//! A frame that is here is not with the stack: this is for taps. A socket belongs to one queue of the
//! device, and the directions of a flow may come in by different ones: one worker takes the frames of
//! all queues, in the order of their times.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{io, thread};

use datapath::{Datapath, Error, Missing};
use netdev::Netlink;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use packet::pcap::{ETHERNET, Frame};
use sys::capture::Promiscuous;
use sys::mmap::Pages;
use xsk::{Bind, Mode, Socket, Umem};

use super::kernel::{self, Hook};
use super::worker::{Capturing, PATIENCE, Workers, now_ns};
use super::{Features, LiveCounters, Plan, Running};
use crate::counters::Counters;
use crate::dissect::Tunnels;
use crate::extractor::Options;
use crate::filter::Selection;
use crate::kernel::{Account, HandOver, Settings};
use crate::work::Work;

/// Entries of a socket's rings.
const RING: u32 = 4096;
/// Frames of a queue: for the kernel to write, and for us to hold until others' have come.
const FRAMES: u32 = 2 * RING;
/// Nothing is sent, but a socket has these rings.
const UNUSED_RING: u32 = 64;
/// Bytes of a frame's memory that are not the frame's: the kernel's own, and a stamp.
const BEFORE: u32 = 256;
/// What the program puts in front of a frame.
const STAMP: usize = size_of::<i64>();
/// A frame this young may be overtaken by one that another queue is just given.
const YOUNG: Duration = Duration::from_millis(1);
/// The kernel lets go of a closed socket's queue some time after.
const LETTING_GO: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(super) struct AfXdp;

impl Datapath<Features> for AfXdp {
    fn name(&self) -> &'static str {
        "af-xdp"
    }

    fn check(&self) -> Result<(), Missing> {
        kernel::check()?;
        xsk::check().map_err(|error| missing(&error))
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
        // The kernel opens no tunnel: what is chosen by what is in one is chosen here.
        let (there, here) = if options.tunnels == Tunnels::Inner {
            (Selection::default(), wanted)
        } else {
            (wanted, Selection::default())
        };
        let settings = Settings {
            options: Options {
                by_vlan: options.by_vlan,
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
            work: Work::choosing(here, plan.schema, &options, (plan.sink)())
                .recorded_by(plan.recorder.clone()),
            account: Account::default(),
            no_room: 0,
            _promiscuous: promiscuous,
        };
        Workers::start(self.name(), vec![capturing])
    }
}

/// One socket for each queue of a device.
#[derive(Debug)]
struct Sockets {
    handing: HandOver,
    umem: Umem,
    sockets: Vec<Socket>,
    free: Vec<xsk::Frame>,
    /// Received, by their times.
    waiting: Vec<(i64, xsk::Frame)>,
    batch: Vec<xsk::Frame>,
}

impl Sockets {
    fn open(plan: &Plan, settings: &Settings) -> Result<Self, Error> {
        let link = Netlink::new().and_then(|mut netlink| netlink.link_by_index(plan.ifindex));
        let link = link.map_err(|error| Error::failed(plan.interface.clone(), error))?;
        let queues = link.rx_queues.max(1);
        // With Ethernet and two tags.
        let longest = link.mtu + 22 + BEFORE;
        let size = if longest <= 2048 { 2048 } else { 4096 };
        let (umem, free) = Umem::new(queues * FRAMES, size, 0, Pages::Ordinary).map_err(refused)?;
        let mut all = Self {
            handing: HandOver::load(settings, queues)?,
            umem,
            sockets: Vec::new(),
            free,
            waiting: Vec::new(),
            batch: Vec::new(),
        };
        for queue in 0..queues {
            match all.bind(plan.ifindex, queue) {
                // A device may have fewer queues in use than it has.
                Err(xsk::Error::NoQueue { .. }) if queue > 0 => break,
                bound => all.sockets.push(bound.map_err(refused)?),
            }
            if let Some(socket) = all.sockets.last() {
                all.handing.steer(queue, socket)?;
            }
        }
        Ok(all)
    }

    fn bind(&mut self, ifindex: u32, queue: u32) -> Result<Socket, xsk::Error> {
        let bind = Bind {
            receive: RING,
            fill: RING,
            transmit: UNUSED_RING,
            completion: UNUSED_RING,
            ..Bind::new(ifindex, queue, Mode::Copy)
        };
        let deadline = Instant::now() + LETTING_GO;
        let mut socket = loop {
            match Socket::bind(&self.umem, &bind) {
                Err(xsk::Error::Taken { .. }) if Instant::now() < deadline => thread::sleep(YOUNG),
                bound => break bound?,
            }
        };
        socket.fill(&mut self.free);
        Ok(socket)
    }

    /// Takes what has arrived, and hands on what came before this time, in order; how many came.
    fn take(&mut self, before_ns: i64, mut take: impl FnMut(&Frame<'_>)) -> io::Result<usize> {
        let umem = &self.umem;
        let arrived = self.waiting.len();
        for socket in &mut self.sockets {
            socket.receive(&mut self.batch, RING as usize);
            socket.fill(&mut self.free);
            socket.wake_receive()?;
            let stamped = self.batch.drain(..).map(|mut frame| {
                let time_ns = stamp(umem, &mut frame);
                (time_ns, frame)
            });
            self.waiting.extend(stamped);
        }
        let arrived = self.waiting.len() - arrived;
        if self.sockets.len() > 1 {
            // Those of one queue keep their order.
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
                bytes: umem.bytes(&frame),
            });
            self.free.push(frame);
        }
        Ok(arrived)
    }

    /// Waits for a frame, but not for long.
    fn wait(&self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            thread::sleep(YOUNG);
            return Ok(());
        }
        let asked = self.sockets.iter();
        let mut asked: Vec<PollFd<'_>> = asked
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
        match poll(&mut asked, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
        let is_gone = |asked: &PollFd<'_>| asked.revents().is_some_and(|got| got.intersects(gone));
        if asked.iter().any(is_gone) {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        Ok(())
    }

    /// Frames that their sockets had no room for.
    fn no_room(&self) -> io::Result<u64> {
        let statistics = self.sockets.iter().map(|socket| {
            let statistics = socket.statistics()?;
            Ok(statistics.dropped + statistics.receive_full)
        });
        statistics.sum()
    }
}

/// When the program saw the frame, as it has written in front of it.
fn stamp(umem: &Umem, frame: &mut xsk::Frame) -> i64 {
    let (start, length) = (frame.headroom(), frame.len());
    let mut time = [0; STAMP];
    if start >= STAMP && frame.set(start - STAMP, STAMP) {
        time.copy_from_slice(umem.bytes(frame));
    }
    let _restored = frame.set(start, length);
    i64::from_ne_bytes(time)
}

/// What the sockets' frames become.
#[derive(Debug)]
struct Frames {
    sockets: Sockets,
    work: Work,
    /// As they were last read.
    account: Account,
    no_room: u64,
    _promiscuous: Option<Promiscuous>,
}

impl Frames {
    fn take_before(&mut self, before_ns: i64) -> Result<usize, String> {
        let work = &mut self.work;
        let taken = self.sockets.take(before_ns, |frame| work.frame(frame));
        taken.map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<(), String> {
        let account = self.sockets.handing.account();
        self.account = account.map_err(|error| error.to_string())?;
        let no_room = self.sockets.no_room();
        self.no_room = no_room.map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl Capturing for Frames {
    fn take(&mut self) -> Result<bool, String> {
        let young = i64::try_from(YOUNG.as_nanos()).unwrap_or(0);
        let one_queue = self.sockets.sockets.len() == 1;
        let before = if one_queue {
            i64::MAX
        } else {
            now_ns() - young
        };
        let arrived = self.take_before(before)?;
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
        Ok(told(
            &self.account,
            counters,
            self.no_room,
            self.work.rows(),
        ))
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let detached = self.sockets.handing.detach();
        let mut read = detached.map_err(|error| error.to_string());
        loop {
            match self.take_before(i64::MAX) {
                Ok(0) => break,
                Ok(_) => {}
                Err(why) => {
                    read = read.and(Err(why));
                    break;
                }
            }
        }
        read = read.and_then(|()| self.read());
        let done = self.work.finish();
        let taken = done.counters.seen.packets + self.account.left_out();
        if read.is_ok() {
            // Whatever the kernel calls it: what was handed over and has not come.
            self.no_room = self.account.packets.saturating_sub(taken);
        }
        let rows = (done.rows, done.lost_rows);
        let counters = told(&self.account, done.counters, self.no_room, rows);
        let output = done.output.map_err(|error| error.to_string());
        (counters, output.and(read))
    }
}

/// What the program has left out, and what became of the rest here.
fn told(account: &Account, here: Counters, no_room: u64, rows: (u64, u64)) -> LiveCounters {
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

fn refused(error: xsk::Error) -> Error {
    match error {
        xsk::Error::NotBuilt | xsk::Error::Denied => missing(&error).into(),
        error => Error::failed("opening an AF_XDP socket", error),
    }
}

fn missing(error: &xsk::Error) -> Missing {
    let remedy = match error {
        xsk::Error::NotBuilt => "boot a kernel built with CONFIG_XDP_SOCKETS",
        _ => "run with sudo",
    };
    Missing::new(error.to_string(), remedy)
}
