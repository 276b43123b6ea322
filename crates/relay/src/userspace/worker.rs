//! The thread of a userspace datapath: which sockets it reads, how it waits, and how its work is
//! changed from outside between two batches.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use datapath::Error;
use libbpf_rs::MapHandle;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use sys::clock::monotonic_ns;

use super::Settings;
use super::fan_out::Outlet;
use super::intake::Intake;
use super::lane::{Lane, Origin, Work, Workshop};
use super::losses::Stack;
use crate::counters::{Counters, StreamCounters, Traffic};
use crate::kernel::{Punt, PuntKind, PuntRing};
use crate::plan::StreamId;

/// How long a receive call sleeps at most before it looks for changed work. Only a thread with one
/// socket sleeps in the receive call; with several it polls, and is woken.
const LOOK_UP: Duration = Duration::from_millis(50);
/// How long changed work may take to be taken up.
const TAKE_UP: Duration = Duration::from_secs(30);
/// How long a stopping worker goes on with what is queued.
const DRAIN: Duration = Duration::from_millis(200);
/// Bytes that diverted datagrams of one stream may take until what came before them is sent: 100 ms of 2 Gbit/s.
const BACKLOG: usize = 32 << 20;

/// A worker thread and the way to it.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    lanes: Mutex<Lanes>,
    /// How many wait for the lanes: the thread lets them go first, since a mutex does not.
    waiting: AtomicU32,
    /// Changes with the set of sockets.
    generation: AtomicU64,
    taken_up: Condvar,
    wake: EventFd,
    stack: Stack,
}

#[derive(Debug, Default)]
struct Lanes {
    open: Vec<Lane>,
    /// Diverted datagrams of streams whose hand-over has not begun, by stream slot.
    waiting: BTreeMap<u32, Backlog>,
    /// Final counts of streams that left.
    left: BTreeMap<u32, StreamCounters>,
    stopping: bool,
    /// The generation whose sockets the thread reads.
    taken_up: u64,
}

/// Datagrams that wait, oldest first.
#[derive(Debug, Default)]
struct Backlog {
    punts: VecDeque<Punt>,
    /// Memory that they take.
    bytes: usize,
    /// Those that found no room.
    lost: Traffic,
}

impl Backlog {
    fn push(&mut self, punt: &Punt) {
        let bytes = size_of::<Punt>() + punt.payload.len();
        if self.bytes + bytes > BACKLOG {
            self.lost.add(traffic(punt));
        } else {
            self.bytes += bytes;
            self.punts.push_back(punt.clone());
        }
    }

    /// All of them, those that found no room included.
    fn total(&self) -> Traffic {
        let mut total = self.lost;
        for punt in &self.punts {
            total.add(traffic(punt));
        }
        total
    }
}

impl Worker {
    /// Starts a thread in the caller's network namespace. `punts`: what a fast path beside it hands over, besides what
    /// arrives in the ingest sockets.
    pub(crate) fn start(
        name: &str,
        settings: Settings,
        cpus: &[usize],
        punts: Option<MapHandle>,
    ) -> Result<Self, Error> {
        let failed = |what: &str, error: io::Error| Error::failed(format!("{name}: {what}"), error);
        let shared = Arc::new(Shared {
            lanes: Mutex::default(),
            waiting: AtomicU32::new(0),
            generation: AtomicU64::new(1),
            taken_up: Condvar::new(),
            wake: EventFd::new().map_err(|error| failed("eventfd", error.into()))?,
            stack: Stack::open().map_err(|error| failed("/proc/net/snmp", error))?,
        });
        let for_thread = shared.clone();
        let cpu = cpus.first().copied();
        let thread = thread::Builder::new()
            .name(format!("relay-{name}"))
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = sys::sched::pin(cpu)
                {
                    tracing::warn!(cpu, %error, "runs unpinned");
                }
                for_thread.run(settings, punts.as_ref());
            })
            .map_err(|error| failed("thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Moves to new work; when this returns it is in effect. Of streams that are no longer in it,
    /// what was read is sent, and what was not is in their sockets.
    pub(crate) fn set_work(&self, work: &[Work]) -> Result<(), Error> {
        let now_ns = monotonic_ns();
        let shared = &self.shared;
        let mut lanes = shared.lock();
        lanes.count_losses(&shared.stack);
        let mut inputs_change = false;
        for lane in &mut lanes.open {
            lane.leaving = !work.iter().any(|work| work.stream.id == lane.id());
            inputs_change |= lane.leaving;
        }
        for work in work {
            match lanes
                .open
                .iter_mut()
                .find(|lane| lane.id() == work.stream.id)
            {
                Some(lane) => {
                    let before = inputs(lane);
                    lane.update(work, now_ns);
                    inputs_change |= before != inputs(lane);
                }
                None => {
                    let left = lanes.left.remove(&work.stream.id.0);
                    let mut lane = Lane::new(work, &shared.stack, now_ns);
                    lane.copies_lost = left.map_or(0, |left| left.copies_lost);
                    lanes.open.push(lane);
                    inputs_change = true;
                }
            }
        }
        lanes.forget_stale();
        if !inputs_change {
            return Ok(());
        }
        shared.announce();
        let deadline = Instant::now() + TAKE_UP;
        let generation = shared.generation.load(Ordering::SeqCst);
        while lanes.taken_up < generation {
            if Instant::now() > deadline || self.is_dead() {
                return Err(Error::Failed {
                    what: "the worker does not let go of a stream".into(),
                    source: None,
                });
            }
            lanes = shared
                .taken_up
                .wait_timeout(lanes, LOOK_UP)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(lanes, _)| lanes);
        }
        Ok(())
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut lanes = self.shared.lock();
        lanes.count_losses(&self.shared.stack);
        let mut streams = lanes.left.clone();
        for lane in &lanes.open {
            streams.insert(lane.id().0, lane.counters());
        }
        Counters { streams }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends what is queued, ends the thread and returns the final counts.
    pub(crate) fn stop(mut self) -> Counters {
        self.end();
        self.counters()
    }

    fn end(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.announce();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a worker thread had panicked");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// The lanes, ahead of the thread.
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        lanes
    }

    /// The lanes, for the thread, once nobody else waits for them.
    fn lock_last(&self) -> MutexGuard<'_, Lanes> {
        while self.waiting.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        // A full eventfd wakes as well.
        let _woken = self.wake.write(1);
    }

    fn run(&self, settings: Settings, punts: Option<&MapHandle>) {
        let mut punts = punts.and_then(|map| match PuntRing::new(map) {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::error!(%error, "subscribers that only userspace can send to get nothing");
                None
            }
        });
        let mut intake = Intake::new(settings.receive);
        let mut workshop = Workshop {
            outlet: Outlet::new(settings.send),
            staging: settings.superframes.then(Vec::new),
        };
        let mut known = 0;
        let mut sockets = Vec::new();
        loop {
            let generation = self.generation.load(Ordering::SeqCst);
            if generation != known {
                known = generation;
                // What a fast path handed over before the change belongs to the lanes as they were.
                if let Some(punts) = &mut punts {
                    self.empty_ring(punts, &mut workshop);
                }
                let mut lanes = self.lock_last();
                if lanes.stopping {
                    break;
                }
                lanes.let_go(&self.stack);
                lanes.taken_up = known;
                sockets = lanes.readings();
                self.taken_up.notify_all();
                drop(lanes);
                prepare(&sockets, settings);
                self.begin(&sockets, &mut intake, &mut workshop);
            }
            self.turn(
                &sockets,
                settings,
                punts.as_mut(),
                &mut intake,
                &mut workshop,
            );
        }
        self.drain(&sockets, punts.as_mut(), &mut intake, &mut workshop);
    }

    /// Waits for datagrams and relays them.
    fn turn(
        &self,
        sockets: &[Reading],
        settings: Settings,
        punts: Option<&mut PuntRing<'_>>,
        intake: &mut Intake,
        workshop: &mut Workshop,
    ) {
        match sockets {
            _ if punts.is_some() => self.poll(sockets, punts, intake, workshop),
            [] => self.poll(sockets, None, intake, workshop),
            _ if settings.spin => {
                for reading in sockets {
                    let result = intake.poll(&reading.socket);
                    self.relay(reading, count(&result), intake, workshop);
                }
            }
            [only] => {
                let result = intake.wait(&only.socket);
                self.relay(only, count(&result), intake, workshop);
            }
            _ => self.poll(sockets, None, intake, workshop),
        }
    }

    fn poll(
        &self,
        sockets: &[Reading],
        punts: Option<&mut PuntRing<'_>>,
        intake: &mut Intake,
        workshop: &mut Workshop,
    ) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled: Vec<_> = sockets
            .iter()
            .map(|reading| readable(reading.socket.as_fd()))
            .collect();
        polled.push(readable(self.wake.as_fd()));
        polled.extend(punts.as_ref().map(|punts| readable(punts.as_fd())));
        // An interrupted poll leaves nothing marked, and is repeated.
        let _ready = nix::poll::poll(&mut polled, PollTimeout::NONE);
        let marked: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        let (from_sockets, beside) = marked.split_at(sockets.len());
        if beside.first() == Some(&true) {
            let _count = self.wake.read();
        }
        for (reading, _) in sockets
            .iter()
            .zip(from_sockets)
            .filter(|(_, marked)| **marked)
        {
            let result = intake.poll(&reading.socket);
            self.relay(reading, count(&result), intake, workshop);
        }
        if let Some(punts) = punts
            && beside.get(1) == Some(&true)
            && self.empty_before_punts(sockets, intake, workshop)
        {
            self.relay_punts(punts, workshop);
        }
    }

    /// Begins the hand-overs: each once its ingest socket is empty, even if nothing is diverted.
    fn begin(&self, sockets: &[Reading], intake: &mut Intake, workshop: &mut Workshop) {
        for reading in sockets.iter().filter(|reading| reading.before_punts) {
            if !self.empty(reading, intake, workshop) {
                return;
            }
        }
        let generation = self.generation.load(Ordering::SeqCst);
        for reading in sockets.iter().filter(|reading| reading.before_punts) {
            while !self.lock_last().begin(reading.stream, workshop) {
                if self.generation.load(Ordering::SeqCst) != generation {
                    return;
                }
            }
        }
    }

    /// Relays what the ingest sockets of hand-overs hold, which came before what is diverted; false where other work
    /// comes up meanwhile.
    fn empty_before_punts(
        &self,
        sockets: &[Reading],
        intake: &mut Intake,
        workshop: &mut Workshop,
    ) -> bool {
        let mut before = sockets.iter().filter(|reading| reading.before_punts);
        before.all(|reading| self.empty(reading, intake, workshop))
    }

    /// Relays all that a socket holds, unless other work comes up meanwhile.
    fn empty(&self, reading: &Reading, intake: &mut Intake, workshop: &mut Workshop) -> bool {
        let generation = self.generation.load(Ordering::SeqCst);
        while let Ok(count) = intake.poll(&reading.socket) {
            self.relay(reading, count, intake, workshop);
            if self.generation.load(Ordering::SeqCst) != generation {
                return false;
            }
        }
        true
    }

    fn relay(&self, reading: &Reading, count: usize, intake: &Intake, workshop: &mut Workshop) {
        let now_ns = monotonic_ns();
        let mut next = 0;
        while next < count {
            let mut lanes = self.lock_last();
            let Some(lane) = lanes.of(reading.stream) else {
                return;
            };
            let end = count.min(next + lane.stride());
            let datagrams = (next..end).filter_map(|index| intake.get(index));
            lane.relay(Origin::Ingest, datagrams, workshop, now_ns);
            next = end;
        }
    }

    /// Relays a batch of what the ring holds: copies at once, diverted datagrams where their hand-over has begun.
    /// Whether there was any.
    fn relay_punts(&self, ring: &mut PuntRing<'_>, workshop: &mut Workshop) -> bool {
        let punts = ring.take();
        let now_ns = monotonic_ns();
        for run in punts.chunk_by(|a, b| (a.stream, a.kind) == (b.stream, b.kind)) {
            let mut rest = run;
            while let Some(first) = rest.first() {
                let mut lanes = self.lock_last();
                let stride = lanes
                    .of(first.stream)
                    .map_or(rest.len(), |lane| lane.stride());
                let (now, later) = rest.split_at(stride.min(rest.len()));
                lanes.relay_punts(now, workshop, now_ns);
                rest = later;
            }
        }
        !punts.is_empty()
    }

    /// Relays what the ring holds now.
    fn empty_ring(&self, ring: &mut PuntRing<'_>, workshop: &mut Workshop) {
        for _ in 0..PuntRing::BATCHES {
            if !self.relay_punts(ring, workshop) {
                return;
            }
        }
    }

    fn drain(
        &self,
        sockets: &[Reading],
        punts: Option<&mut PuntRing<'_>>,
        intake: &mut Intake,
        workshop: &mut Workshop,
    ) {
        let deadline = Instant::now() + DRAIN;
        if let Some(punts) = punts {
            self.empty_ring(punts, workshop);
        }
        for reading in sockets {
            while Instant::now() < deadline {
                match intake.poll(&reading.socket) {
                    Ok(count) => self.relay(reading, count, intake, workshop),
                    Err(_) => break,
                }
            }
        }
    }
}

impl Lanes {
    fn of(&mut self, stream: StreamId) -> Option<&mut Lane> {
        self.open.iter_mut().find(|lane| lane.id() == stream)
    }

    fn let_go(&mut self, stack: &Stack) {
        self.count_losses(stack);
        let (leaving, staying) = self.open.drain(..).partition(|lane| lane.leaving);
        self.open = staying;
        let leaving: Vec<Lane> = leaving;
        for mut lane in leaving {
            if let Some(backlog) = self.waiting.remove(&lane.id().0) {
                lane.lose_diverted(backlog.total());
            }
            self.left.insert(lane.id().0, lane.counters());
        }
    }

    /// Counts as lost what waits for a hand-over that is not under way: one that failed before userspace had a part in it.
    fn forget_stale(&mut self) {
        let Self { open, waiting, .. } = self;
        for lane in open.iter_mut().filter(|lane| lane.handover().is_none()) {
            if let Some(backlog) = waiting.remove(&lane.id().0) {
                lane.lose_diverted(backlog.total());
            }
        }
    }

    /// Counts what the stack dropped at each lane's ingest socket since the last call.
    fn count_losses(&mut self, stack: &Stack) {
        let alone = self.open.len() == 1;
        let earlier = stack.read();
        let drops: Vec<_> = self.open.iter().map(Lane::socket_drops).collect();
        let later = stack.read();
        for (lane, drops) in self.open.iter_mut().zip(drops) {
            lane.count_losses(drops, (earlier, later), alone);
        }
    }

    fn readings(&self) -> Vec<Reading> {
        let of_lane = |lane: &Lane| {
            lane.ingest().map(|socket| Reading {
                stream: lane.id(),
                socket: socket.clone(),
                before_punts: lane.handover().is_some(),
            })
        };
        self.open.iter().filter_map(of_lane).collect()
    }

    /// Relays datagrams of one stream and kind that a fast path handed over.
    fn relay_punts(&mut self, punts: &[Punt], workshop: &mut Workshop, now_ns: u64) {
        let Some(Punt { stream, kind, .. }) = punts.first() else {
            return;
        };
        let datagrams = punts.iter().map(|punt| (&punt.info, &*punt.payload));
        let waits = self.waiting.contains_key(&stream.0);
        let Self {
            open,
            left,
            waiting,
            ..
        } = self;
        let lane = open.iter_mut().find(|lane| lane.id() == *stream);
        match (kind, lane) {
            (PuntKind::Copy, Some(lane)) => lane.relay(Origin::Copies, datagrams, workshop, now_ns),
            (PuntKind::Copy, None) => {
                left.entry(stream.0).or_default().copies_lost += punts.len() as u64;
            }
            (PuntKind::Diverted, Some(lane))
                if !waits && lane.handover().is_some_and(|handover| handover.has_begun()) =>
            {
                lane.relay(Origin::Diverted, datagrams, workshop, now_ns);
            }
            (PuntKind::Diverted, _) => {
                let backlog = waiting.entry(stream.0).or_default();
                punts.iter().for_each(|punt| backlog.push(punt));
            }
        }
    }

    /// Relays some of the diverted datagrams that have waited for a stream's hand-over; whether it has begun with that.
    fn begin(&mut self, stream: StreamId, workshop: &mut Workshop) -> bool {
        let lane = self.open.iter_mut().find(|lane| lane.id() == stream);
        let Some((lane, handover)) = lane.and_then(|lane| {
            let handover = lane.handover().cloned()?;
            Some((lane, handover))
        }) else {
            return true;
        };
        let Some(backlog) = self.waiting.get_mut(&stream.0) else {
            handover.begin();
            return true;
        };
        let some = lane.stride().min(backlog.punts.len());
        let punts: Vec<Punt> = backlog.punts.drain(..some).collect();
        let datagrams = punts.iter().map(|punt| (&punt.info, &*punt.payload));
        lane.relay(Origin::Diverted, datagrams, workshop, monotonic_ns());
        if backlog.punts.is_empty() {
            lane.lose_diverted(backlog.lost);
            self.waiting.remove(&stream.0);
        }
        false
    }
}

fn traffic(punt: &Punt) -> Traffic {
    Traffic {
        packets: 1,
        bytes: punt.payload.len() as u64,
    }
}

/// How many datagrams a receive call brought. Errors are timeouts, interruptions, or what ICMP
/// said of an earlier datagram: none ends the relaying.
fn count(received: &io::Result<usize>) -> usize {
    *received.as_ref().unwrap_or(&0)
}

/// A socket to read, and whose it is.
#[derive(Clone, Debug)]
struct Reading {
    stream: StreamId,
    socket: Arc<UdpSocket>,
    /// It is emptied before diverted datagrams are relayed: what it holds came earlier.
    before_punts: bool,
}

/// What a lane reads, compared between two sets of work.
fn inputs(lane: &Lane) -> (bool, bool) {
    (lane.ingest().is_some(), lane.handover().is_some())
}

/// Sets the sockets' own state for this way of reading; a socket that refuses is read all the same.
fn prepare(sockets: &[Reading], settings: Settings) {
    for reading in sockets {
        if let Err(error) = reading.socket.set_read_timeout(Some(LOOK_UP)) {
            tracing::warn!(%error, "cannot set a receive timeout");
        }
        if settings.superframes
            && let Err(error) = sys::socket::udp_gro(&reading.socket)
        {
            tracing::warn!(%error, "no superframes on input");
        }
    }
}
