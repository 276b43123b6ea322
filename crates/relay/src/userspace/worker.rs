//! The thread of a userspace datapath: which sockets it reads, how it waits, and how its work is
//! changed from outside between two batches.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use datapath::Error;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use sys::clock::monotonic_ns;

use super::Settings;
use super::fan_out::Outlet;
use super::intake::Intake;
use super::lane::{Input, Lane, Role, Work, Workshop};
use super::losses::Stack;
use crate::counters::{Counters, StreamCounters};
use crate::plan::StreamId;

/// How long a receive call sleeps at most before it looks for changed work. Only a thread with one
/// socket sleeps in the receive call; with several it polls, and is woken.
const LOOK_UP: Duration = Duration::from_millis(50);
/// How long changed work may take to be taken up.
const TAKE_UP: Duration = Duration::from_secs(5);
/// How long a stopping worker goes on with what is queued.
const DRAIN: Duration = Duration::from_millis(200);

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
    stack: Arc<Stack>,
}

#[derive(Debug, Default)]
struct Lanes {
    open: Vec<Lane>,
    /// Final counts of streams that left.
    left: BTreeMap<u32, StreamCounters>,
    stopping: bool,
    /// The generation whose sockets the thread reads.
    taken_up: u64,
}

impl Worker {
    /// Starts a thread in the caller's network namespace.
    pub(crate) fn start(name: &str, settings: Settings, cpus: &[usize]) -> Result<Self, Error> {
        let failed = |what: &str, error: io::Error| Error::failed(format!("{name}: {what}"), error);
        let shared = Arc::new(Shared {
            lanes: Mutex::default(),
            waiting: AtomicU32::new(0),
            generation: AtomicU64::new(1),
            taken_up: Condvar::new(),
            wake: EventFd::new().map_err(|error| failed("eventfd", error.into()))?,
            stack: Arc::new(Stack::open().map_err(|error| failed("/proc/net/snmp", error))?),
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
                for_thread.run(settings);
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
        let mut sockets_change = false;
        let alone = lanes.open.len() == 1;
        for lane in &mut lanes.open {
            lane.leaving = !work.iter().any(|work| work.stream.id == lane.id());
            sockets_change |= lane.leaving;
        }
        for work in work {
            match lanes
                .open
                .iter_mut()
                .find(|lane| lane.id() == work.stream.id)
            {
                Some(lane) => {
                    let before = lane.inputs();
                    lane.update(work, &shared.stack, now_ns, alone);
                    sockets_change |= !same(&before, &lane.inputs());
                }
                None => {
                    lanes.left.remove(&work.stream.id.0);
                    lanes.open.push(Lane::new(work, &shared.stack, now_ns));
                    sockets_change = true;
                }
            }
        }
        if !sockets_change {
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
        let mut streams = lanes.left.clone();
        let alone = lanes.open.len() == 1;
        for lane in &mut lanes.open {
            streams.insert(lane.id().0, lane.counters(alone));
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

    fn run(&self, settings: Settings) {
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
                let mut lanes = self.lock_last();
                if lanes.stopping {
                    break;
                }
                lanes.let_go();
                lanes.taken_up = known;
                sockets = lanes.readings();
                self.taken_up.notify_all();
                drop(lanes);
                prepare(&sockets, settings);
                self.begin(&sockets, &mut intake, &mut workshop);
            }
            self.turn(&sockets, settings, &mut intake, &mut workshop);
        }
        self.drain(&sockets, &mut intake, &mut workshop);
    }

    /// Waits for datagrams and relays them.
    fn turn(
        &self,
        sockets: &[Reading],
        settings: Settings,
        intake: &mut Intake,
        workshop: &mut Workshop,
    ) {
        match sockets {
            [] => self.poll(sockets, intake, workshop),
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
            _ => self.poll(sockets, intake, workshop),
        }
    }

    fn poll(&self, sockets: &[Reading], intake: &mut Intake, workshop: &mut Workshop) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled: Vec<_> = sockets
            .iter()
            .map(|reading| readable(reading.socket.as_fd()))
            .collect();
        polled.push(readable(self.wake.as_fd()));
        // An interrupted poll leaves nothing marked, and is repeated.
        let _ready = nix::poll::poll(&mut polled, PollTimeout::NONE);
        let marked = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        if polled.last().is_some_and(marked) {
            let _count = self.wake.read();
        }
        for (reading, fd) in sockets.iter().zip(&polled) {
            if marked(fd) && self.empty_first(reading, intake, workshop) {
                let result = intake.poll(&reading.socket);
                self.relay(reading, count(&result), intake, workshop);
            }
        }
    }

    /// Begins the hand-overs: each once its ingest socket is empty, even if nothing is diverted.
    fn begin(&self, sockets: &[Reading], intake: &mut Intake, workshop: &mut Workshop) {
        for reading in sockets.iter().filter(|reading| reading.first.is_some()) {
            if !self.empty_first(reading, intake, workshop) {
                return;
            }
            let lanes = self.lock_last();
            let lane = lanes.open.iter().find(|lane| lane.id() == reading.stream);
            if let Some(lane) = lane {
                lane.begin(&reading.socket);
            }
        }
    }

    /// Relays what comes before a socket's own datagrams, unless other work comes up meanwhile.
    fn empty_first(&self, reading: &Reading, intake: &mut Intake, workshop: &mut Workshop) -> bool {
        let Some(first) = &reading.first else {
            return true;
        };
        let first = Reading {
            stream: reading.stream,
            socket: first.clone(),
            first: None,
        };
        let generation = self.generation.load(Ordering::SeqCst);
        while let Ok(count) = intake.poll(&first.socket) {
            self.relay(&first, count, intake, workshop);
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
            let Some(lane) = lanes
                .open
                .iter_mut()
                .find(|lane| lane.id() == reading.stream)
            else {
                return;
            };
            let end = count.min(next + lane.stride());
            lane.relay(&reading.socket, intake, next..end, workshop, now_ns);
            next = end;
        }
    }

    fn drain(&self, sockets: &[Reading], intake: &mut Intake, workshop: &mut Workshop) {
        let deadline = Instant::now() + DRAIN;
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
    fn let_go(&mut self) {
        let alone = self.open.len() == 1;
        let (leaving, staying) = self.open.drain(..).partition(|lane| lane.leaving);
        self.open = staying;
        let leaving: Vec<Lane> = leaving;
        for mut lane in leaving {
            self.left.insert(lane.id().0, lane.counters(alone));
        }
    }

    fn readings(&self) -> Vec<Reading> {
        let of_lane = |lane: &Lane| {
            let (stream, inputs) = (lane.id(), lane.inputs());
            let ingest = inputs
                .iter()
                .find(|input| matches!(input.role, Role::Ingest));
            let ingest = ingest.map(|input| input.socket.clone());
            inputs.into_iter().map(move |input| Reading {
                stream,
                first: ingest
                    .clone()
                    .filter(|_| matches!(input.role, Role::Shadow(_))),
                socket: input.socket,
            })
        };
        self.open.iter().flat_map(of_lane).collect()
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
    /// A socket that is emptied before this one is read: what it holds came earlier.
    first: Option<Arc<UdpSocket>>,
}

fn same(ours: &[Input], theirs: &[Input]) -> bool {
    let pairs = || ours.iter().zip(theirs);
    ours.len() == theirs.len() && pairs().all(|(a, b)| Arc::ptr_eq(&a.socket, &b.socket))
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
