//! The thread of a userspace datapath: how it waits for its sockets, and how its work is changed between two
//! batches.

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
use super::fan_out::SendBuffers;
use super::losses::Stack;
use super::receive_buffers::ReceiveBuffers;
use super::stream_forwarder::{Origin, SendContext, StreamForwarder, Work};
use crate::counters::{Counters, StreamCounters, Traffic};
use crate::kernel::{Punt, PuntKind, PuntRing};
use crate::plan::StreamId;

/// Maximum sleep of a receive call before the thread checks for changed work. Only a thread with one socket
/// sleeps in the receive call; with several it polls, and is woken.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the thread may take to apply changed work.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stopping worker continues to send queued datagrams.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes that diverted datagrams of one stream may take until what came before them is sent: 100 ms of 2 Gbit/s.
const MAX_BACKLOG_BYTES: usize = 32 << 20;

/// A handle of a worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<WorkerState>,
    /// Number of threads that wait for the state. The worker lets them go first, which a mutex does not
    /// ensure.
    waiting: AtomicU32,
    /// Changes with the set of sockets.
    generation: AtomicU64,
    applied: Condvar,
    wake: EventFd,
    stack: Stack,
}

#[derive(Debug, Default)]
struct WorkerState {
    open: Vec<StreamForwarder>,
    /// Diverted datagrams of streams whose hand-over has not begun, by stream slot.
    waiting: BTreeMap<u32, Backlog>,
    /// Final counts of streams that have left.
    finished: BTreeMap<u32, StreamCounters>,
    stopping: bool,
    /// The generation that the thread has applied.
    applied: u64,
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
        if self.bytes + bytes > MAX_BACKLOG_BYTES {
            self.lost.add(traffic(punt));
        } else {
            self.bytes += bytes;
            self.punts.push_back(punt.clone());
        }
    }

    /// All of its datagrams, including those that it lost.
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
            state: Mutex::default(),
            waiting: AtomicU32::new(0),
            generation: AtomicU64::new(1),
            applied: Condvar::new(),
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
        let mut state = shared.lock();
        state.count_losses(&shared.stack);
        let mut inputs_change = false;
        for forwarder in &mut state.open {
            forwarder.leaving = !work.iter().any(|work| work.stream.id == forwarder.id());
            inputs_change |= forwarder.leaving;
        }
        for work in work {
            match state
                .open
                .iter_mut()
                .find(|forwarder| forwarder.id() == work.stream.id)
            {
                Some(forwarder) => {
                    let before = input_kinds(forwarder);
                    forwarder.update(work, now_ns);
                    inputs_change |= before != input_kinds(forwarder);
                }
                None => {
                    let finished = state.finished.remove(&work.stream.id.0);
                    let mut forwarder = StreamForwarder::new(work, &shared.stack, now_ns);
                    forwarder.copies_lost = finished.map_or(0, |finished| finished.copies_lost);
                    state.open.push(forwarder);
                    inputs_change = true;
                }
            }
        }
        state.discard_stale();
        if !inputs_change {
            return Ok(());
        }
        shared.announce();
        let deadline = Instant::now() + UPDATE_TIMEOUT;
        let generation = shared.generation.load(Ordering::SeqCst);
        while state.applied < generation {
            if Instant::now() > deadline || self.is_dead() {
                return Err(Error::Failed {
                    what: "the worker does not let go of a stream".into(),
                    source: None,
                });
            }
            state = shared
                .applied
                .wait_timeout(state, POLL_INTERVAL)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        Ok(())
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut state = self.shared.lock();
        state.count_losses(&self.shared.stack);
        let mut streams = state.finished.clone();
        for forwarder in &state.open {
            streams.insert(forwarder.id().0, forwarder.counters());
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
    /// Locks the state before the worker does.
    fn lock(&self) -> MutexGuard<'_, WorkerState> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        state
    }

    /// Locks the state for the worker, once nobody else waits for it.
    fn lock_last(&self) -> MutexGuard<'_, WorkerState> {
        while self.waiting.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut receive_buffers = ReceiveBuffers::new(settings.receive);
        let mut context = SendContext {
            send_buffers: SendBuffers::new(settings.send),
            staging: settings.superframes.then(Vec::new),
        };
        let mut known = 0;
        let mut sockets = Vec::new();
        loop {
            let generation = self.generation.load(Ordering::SeqCst);
            if generation != known {
                known = generation;
                // Datagrams that a fast path handed over before the change belong to the state before it.
                if let Some(punts) = &mut punts {
                    self.empty_ring(punts, &mut context);
                }
                let mut state = self.lock_last();
                if state.stopping {
                    break;
                }
                state.remove_leaving(&self.stack);
                state.applied = known;
                sockets = state.inputs();
                self.applied.notify_all();
                drop(state);
                prepare(&sockets, settings);
                self.begin(&sockets, &mut receive_buffers, &mut context);
            }
            self.receive_once(
                &sockets,
                settings,
                punts.as_mut(),
                &mut receive_buffers,
                &mut context,
            );
        }
        self.drain(&sockets, punts.as_mut(), &mut receive_buffers, &mut context);
    }

    /// Waits for datagrams, and relays them.
    fn receive_once(
        &self,
        sockets: &[Input],
        settings: Settings,
        punts: Option<&mut PuntRing<'_>>,
        receive_buffers: &mut ReceiveBuffers,
        context: &mut SendContext,
    ) {
        match sockets {
            _ if punts.is_some() => self.poll(sockets, punts, receive_buffers, context),
            [] => self.poll(sockets, None, receive_buffers, context),
            _ if settings.spin => {
                for input in sockets {
                    let result = receive_buffers.poll(&input.socket);
                    self.relay(input, count(&result), receive_buffers, context);
                }
            }
            [only] => {
                let result = receive_buffers.wait(&only.socket);
                self.relay(only, count(&result), receive_buffers, context);
            }
            _ => self.poll(sockets, None, receive_buffers, context),
        }
    }

    fn poll(
        &self,
        sockets: &[Input],
        punts: Option<&mut PuntRing<'_>>,
        receive_buffers: &mut ReceiveBuffers,
        context: &mut SendContext,
    ) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled: Vec<_> = sockets
            .iter()
            .map(|input| readable(input.socket.as_fd()))
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
        for (input, _) in sockets
            .iter()
            .zip(from_sockets)
            .filter(|(_, marked)| **marked)
        {
            let result = receive_buffers.poll(&input.socket);
            self.relay(input, count(&result), receive_buffers, context);
        }
        if let Some(punts) = punts
            && beside.get(1) == Some(&true)
            && self.empty_before_punts(sockets, receive_buffers, context)
        {
            self.relay_punts(punts, context);
        }
    }

    /// Begins the hand-overs: each once its ingest socket is empty, even if nothing is diverted.
    fn begin(
        &self,
        sockets: &[Input],
        receive_buffers: &mut ReceiveBuffers,
        context: &mut SendContext,
    ) {
        for input in sockets.iter().filter(|input| input.before_punts) {
            if !self.empty(input, receive_buffers, context) {
                return;
            }
        }
        let generation = self.generation.load(Ordering::SeqCst);
        for input in sockets.iter().filter(|input| input.before_punts) {
            while !self.lock_last().begin(input.stream, context) {
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
        sockets: &[Input],
        receive_buffers: &mut ReceiveBuffers,
        context: &mut SendContext,
    ) -> bool {
        let mut before = sockets.iter().filter(|input| input.before_punts);
        before.all(|input| self.empty(input, receive_buffers, context))
    }

    /// Relays all that a socket holds, unless other work comes up meanwhile.
    fn empty(
        &self,
        input: &Input,
        receive_buffers: &mut ReceiveBuffers,
        context: &mut SendContext,
    ) -> bool {
        let generation = self.generation.load(Ordering::SeqCst);
        while let Ok(count) = receive_buffers.poll(&input.socket) {
            self.relay(input, count, receive_buffers, context);
            if self.generation.load(Ordering::SeqCst) != generation {
                return false;
            }
        }
        true
    }

    fn relay(
        &self,
        input: &Input,
        count: usize,
        receive_buffers: &ReceiveBuffers,
        context: &mut SendContext,
    ) {
        let now_ns = monotonic_ns();
        let mut next = 0;
        while next < count {
            let mut state = self.lock_last();
            let Some(forwarder) = state.of(input.stream) else {
                return;
            };
            let end = count.min(next + forwarder.stride());
            let datagrams = (next..end).filter_map(|index| receive_buffers.get(index));
            forwarder.relay(Origin::Ingest, datagrams, context, now_ns);
            next = end;
        }
    }

    /// Relays a batch of what the ring holds: copies at once, diverted datagrams where their hand-over has begun.
    /// Whether there was any.
    fn relay_punts(&self, ring: &mut PuntRing<'_>, context: &mut SendContext) -> bool {
        let punts = ring.take();
        let now_ns = monotonic_ns();
        for run in punts.chunk_by(|a, b| (a.stream, a.kind) == (b.stream, b.kind)) {
            let mut rest = run;
            while let Some(first) = rest.first() {
                let mut state = self.lock_last();
                let stride = state
                    .of(first.stream)
                    .map_or(rest.len(), |forwarder| forwarder.stride());
                let (now, later) = rest.split_at(stride.min(rest.len()));
                state.relay_punts(now, context, now_ns);
                rest = later;
            }
        }
        !punts.is_empty()
    }

    /// Relays what the ring holds now.
    fn empty_ring(&self, ring: &mut PuntRing<'_>, context: &mut SendContext) {
        for _ in 0..PuntRing::BATCHES {
            if !self.relay_punts(ring, context) {
                return;
            }
        }
    }

    fn drain(
        &self,
        sockets: &[Input],
        punts: Option<&mut PuntRing<'_>>,
        receive_buffers: &mut ReceiveBuffers,
        context: &mut SendContext,
    ) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        if let Some(punts) = punts {
            self.empty_ring(punts, context);
        }
        for input in sockets {
            while Instant::now() < deadline {
                match receive_buffers.poll(&input.socket) {
                    Ok(count) => self.relay(input, count, receive_buffers, context),
                    Err(_) => break,
                }
            }
        }
    }
}

impl WorkerState {
    fn of(&mut self, stream: StreamId) -> Option<&mut StreamForwarder> {
        self.open
            .iter_mut()
            .find(|forwarder| forwarder.id() == stream)
    }

    fn remove_leaving(&mut self, stack: &Stack) {
        self.count_losses(stack);
        let (leaving, staying) = self.open.drain(..).partition(|forwarder| forwarder.leaving);
        self.open = staying;
        let leaving: Vec<StreamForwarder> = leaving;
        for mut forwarder in leaving {
            if let Some(backlog) = self.waiting.remove(&forwarder.id().0) {
                forwarder.lose_diverted(backlog.total());
            }
            self.finished.insert(forwarder.id().0, forwarder.counters());
        }
    }

    /// Counts as lost what waits for a hand-over that is not under way: one that failed before userspace had a part in it.
    fn discard_stale(&mut self) {
        let Self { open, waiting, .. } = self;
        for forwarder in open
            .iter_mut()
            .filter(|forwarder| forwarder.handover().is_none())
        {
            if let Some(backlog) = waiting.remove(&forwarder.id().0) {
                forwarder.lose_diverted(backlog.total());
            }
        }
    }

    /// Counts the stack's drops at each ingest socket since the last call.
    fn count_losses(&mut self, stack: &Stack) {
        let alone = self.open.len() == 1;
        let earlier = stack.read();
        let drops: Vec<_> = self
            .open
            .iter()
            .map(StreamForwarder::socket_drops)
            .collect();
        let later = stack.read();
        for (forwarder, drops) in self.open.iter_mut().zip(drops) {
            forwarder.count_losses(drops, (earlier, later), alone);
        }
    }

    fn inputs(&self) -> Vec<Input> {
        let of_forwarder = |forwarder: &StreamForwarder| {
            forwarder.ingest().map(|socket| Input {
                stream: forwarder.id(),
                socket: socket.clone(),
                before_punts: forwarder.handover().is_some(),
            })
        };
        self.open.iter().filter_map(of_forwarder).collect()
    }

    /// Relays datagrams of one stream and kind that a fast path handed over.
    fn relay_punts(&mut self, punts: &[Punt], context: &mut SendContext, now_ns: u64) {
        let Some(Punt { stream, kind, .. }) = punts.first() else {
            return;
        };
        let datagrams = punts.iter().map(|punt| (&punt.info, &*punt.payload));
        let waits = self.waiting.contains_key(&stream.0);
        let Self {
            open,
            finished,
            waiting,
            ..
        } = self;
        let forwarder = open.iter_mut().find(|forwarder| forwarder.id() == *stream);
        match (kind, forwarder) {
            (PuntKind::Copy, Some(forwarder)) => {
                forwarder.relay(Origin::Copies, datagrams, context, now_ns);
            }
            (PuntKind::Copy, None) => {
                finished.entry(stream.0).or_default().copies_lost += punts.len() as u64;
            }
            (PuntKind::Diverted, Some(forwarder))
                if !waits
                    && forwarder
                        .handover()
                        .is_some_and(|handover| handover.has_begun()) =>
            {
                forwarder.relay(Origin::Diverted, datagrams, context, now_ns);
            }
            (PuntKind::Diverted, _) => {
                let backlog = waiting.entry(stream.0).or_default();
                punts.iter().for_each(|punt| backlog.push(punt));
            }
        }
    }

    /// Relays some of the diverted datagrams that have waited for a stream's hand-over; whether it has begun with that.
    fn begin(&mut self, stream: StreamId, context: &mut SendContext) -> bool {
        let forwarder = self
            .open
            .iter_mut()
            .find(|forwarder| forwarder.id() == stream);
        let Some((forwarder, handover)) = forwarder.and_then(|forwarder| {
            let handover = forwarder.handover().cloned()?;
            Some((forwarder, handover))
        }) else {
            return true;
        };
        let Some(backlog) = self.waiting.get_mut(&stream.0) else {
            handover.begin();
            return true;
        };
        let some = forwarder.stride().min(backlog.punts.len());
        let punts: Vec<Punt> = backlog.punts.drain(..some).collect();
        let datagrams = punts.iter().map(|punt| (&punt.info, &*punt.payload));
        forwarder.relay(Origin::Diverted, datagrams, context, monotonic_ns());
        if backlog.punts.is_empty() {
            forwarder.lose_diverted(backlog.lost);
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

/// A socket to read, and its stream.
#[derive(Clone, Debug)]
struct Input {
    stream: StreamId,
    socket: Arc<UdpSocket>,
    /// It is emptied before diverted datagrams are relayed: what it holds came earlier.
    before_punts: bool,
}

/// The inputs of a stream, compared before and after a change.
fn input_kinds(forwarder: &StreamForwarder) -> (bool, bool) {
    (forwarder.ingest().is_some(), forwarder.handover().is_some())
}

/// Sets the sockets' own state for this way of reading; a socket that refuses is read all the same.
fn prepare(sockets: &[Input], settings: Settings) {
    for input in sockets {
        if let Err(error) = input.socket.set_read_timeout(Some(POLL_INTERVAL)) {
            tracing::warn!(%error, "cannot set a receive timeout");
        }
        if settings.superframes
            && let Err(error) = sys::socket::udp_gro(&input.socket)
        {
            tracing::warn!(%error, "no superframes on input");
        }
    }
}
