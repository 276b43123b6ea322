//! Frames from a UDP socket, one in each datagram. Those that are forwarded go to another address. Times
//! include receiving and sending.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use process::shutdown::Shutdown;
use router::engine::{Processor, Verdict, Worker};
use router::frames::Frames;
use router::rewrite;
use sys::mmsg::{Outgoing, RecvBatch, SendBatch};
use sys::socket;

use super::Options;
use super::measurement::Measurement;
use super::report::{Datagrams, Report, TableSizes, matched};
use super::targets::Verdicts;
use super::threads::{cpus, pin};
use super::timeline::Timeline;
use super::updates::Updates;
use crate::Error;
use crate::router::Dataset;
use crate::router::engine::MeasuredEngine;

/// Bytes of the longest frame: longer ones are truncated, and counted.
const MAX_FRAME: usize = 2048;
/// Bytes of a socket's buffer for the next batch: a small frame takes about 800 of them.
const RECEIVE_BUFFER: usize = 64 << 20;
/// A thread waits so long for a datagram before it checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The duration begins at the latest so long after the first frame, even if the first batch is not full.
const FIRST_BATCH_TIMEOUT: Duration = Duration::from_millis(100);
/// Datagrams of one system call: the kernel's own limit.
const BURST: usize = 1024;

/// A thread's socket, and the batch from it.
struct Port {
    socket: UdpSocket,
    /// The datagrams of the last system call, of which `taken` are in a batch.
    received: RecvBatch,
    taken: usize,
    frames: Frames,
    /// The previous batch, if `keeps_previous`.
    previous: Frames,
    keeps_previous: bool,
    batch: usize,
    /// The first frame of a batch waits so long for others; by default for a full batch.
    wait: Option<Duration>,
    send: Option<(Outgoing, SendBatch)>,
    datagrams: Datagrams,
}

pub(super) fn run<E: MeasuredEngine>(
    (listen, to): (SocketAddr, Option<SocketAddr>),
    dataset: Dataset,
    (options, shutdown): (&Options, &Shutdown),
    ready: &dyn Fn(SocketAddr),
    build: impl FnOnce(Dataset) -> Result<E, Error>,
) -> Result<Report, Error> {
    let cpus = cpus(options.threads)?;
    let ports = ports((listen, to), options)?;
    let address = ports[0].address()?;
    let sizes = TableSizes::new(&dataset.contents);
    let rules = dataset.contents.rules.clone();
    let verdicts = Verdicts::new(&dataset.targets);
    let updates = Updates::new(options.updates, &dataset.contents)?;
    let mut tables = build(dataset)?;
    let sizes = sizes.with_bytes(&tables);
    let mut threads = Vec::new();
    for (port, cpu) in ports.into_iter().zip(cpus) {
        let processor = tables.processor(options.function);
        let processor = verdicts.processor(processor.map_err(Error::failed)?);
        threads.push((port, cpu, Worker::new(processor, options.batch)));
    }
    ready(address);
    let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (done, updates) = thread::scope(|scope| {
        let running: Vec<_> = threads
            .into_iter()
            .map(|(port, cpu, worker)| {
                let (begun, stop) = (&begun, &stop);
                scope.spawn(move || {
                    pin(cpu);
                    port.work(worker, begun, stop)
                })
            })
            .collect();
        // The duration begins with the first datagram, whenever that comes, and once a device has compiled
        // its kernels.
        loop {
            if begun.load(Ordering::Relaxed) || shutdown.wait(POLL_INTERVAL) {
                break;
            }
        }
        let updates = updates.apply(&mut tables, options.duration, shutdown);
        stop.store(true, Ordering::Relaxed);
        let joined = running.into_iter().map(|thread| {
            let joined = thread.join();
            joined.map_err(|_| Error::failed("a thread panicked"))?
        });
        let done = joined.collect::<Result<Vec<_>, Error>>()?;
        Ok::<_, Error>((done, updates?))
    })?;
    let (threads, ports): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    Ok(Report {
        timeline: Timeline::measure(&tables, options, &ports[0].previous, shutdown),
        origin: format!("datagrams to {address}"),
        tables: sizes,
        threads,
        written: None,
        datagrams: Some(Datagrams::sum(ports.iter().map(|port| port.datagrams))),
        rules: matched(&rules, &tables),
        updates,
        fallback_status: tables.fallback_status(),
    })
}

/// A socket for each thread, all with one address: the kernel gives each flow to one of them.
fn ports(
    (mut listen, to): (SocketAddr, Option<SocketAddr>),
    options: &Options,
) -> Result<Vec<Port>, Error> {
    let mut ports = Vec::new();
    for _ in 0..options.threads.get() {
        let port = Port::open(listen, to, options.batch, options.pace.batch_wait);
        let mut port = port.map_err(|error| Error::Input(format!("--listen {listen}: {error}")))?;
        port.keeps_previous = options.timeline;
        // The kernel chooses a port for 0; the other sockets share it.
        listen = port.address()?;
        ports.push(port);
    }
    Ok(ports)
}

impl Port {
    fn open(
        listen: SocketAddr,
        to: Option<SocketAddr>,
        batch: usize,
        wait: Option<Duration>,
    ) -> io::Result<Self> {
        let socket = socket::unbound(listen.ip().into())?;
        socket::reuse_port(&socket)?;
        socket::receive_buffer(&socket, RECEIVE_BUFFER)?;
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        socket::bind(&socket, listen)?;
        Ok(Self {
            socket,
            received: RecvBatch::new(batch.min(BURST), MAX_FRAME),
            taken: 0,
            frames: Frames::default(),
            previous: Frames::default(),
            keeps_previous: false,
            batch,
            wait,
            send: to.map(|to| (Outgoing::to(to), SendBatch::new(BURST))),
            datagrams: Datagrams::default(),
        })
    }

    fn address(&self) -> Result<SocketAddr, Error> {
        let address = self.socket.local_addr();
        address.map_err(|error| Error::failed(format!("--listen: {error}")))
    }

    /// Batch after batch until `stop` is set. The first one is not measured: buffers grow, and a device
    /// compiles its kernels.
    fn work<P: Processor>(
        mut self,
        mut worker: Worker<P>,
        begun: &AtomicBool,
        stop: &AtomicBool,
    ) -> Result<(Measurement, Self), Error> {
        let mut measured = Measurement {
            send_ns: self.send.is_some().then_some(0.0),
            ..Measurement::default()
        };
        let (mut began, mut before) = (None, *worker.counters());
        while let Some(started) = self.gather(begun, stop).map_err(Error::failed)? {
            let frames = (0..self.frames.len()).map(|at| self.frames.get(at));
            let stages = worker.decide_since(started, frames);
            let stages = stages.map_err(Error::failed)?;
            self.forward(&worker);
            let sent = sys::clock::ticks();
            let Some(began) = began else {
                begun.store(true, Ordering::Relaxed);
                (began, before) = (Some(Instant::now()), *worker.counters());
                continue;
            };
            measured.batch(&stages, sent);
            measured.partial += u64::from(self.frames.len() < self.batch);
            measured.elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        measured.counters = worker.counters().since(&before);
        measured.first_batch = before.packets;
        self.datagrams.lost = socket::drops(&self.socket).map_err(Error::failed)?.into();
        Ok((measured, self))
    }

    /// Receives the next batch. Returns the arrival of its first frame, or none if the run stops before the
    /// batch is full. Sets `begun` if the first batch is not full after a while.
    fn gather(&mut self, begun: &AtomicBool, stop: &AtomicBool) -> io::Result<Option<u64>> {
        if self.keeps_previous {
            mem::swap(&mut self.frames, &mut self.previous);
        }
        self.frames.clear();
        let mut started = None;
        let (mut deadline, mut filling) = (None, None);
        loop {
            self.take();
            if !self.frames.is_empty() && started.is_none() {
                started = Some(sys::clock::ticks());
                deadline = self.wait.map(|wait| Instant::now() + wait);
            }
            if self.frames.len() == self.batch {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                self.datagrams.unprocessed += self.frames.len() as u64;
                return Ok(None);
            }
            if started.is_some()
                && !begun.load(Ordering::Relaxed)
                && filling.get_or_insert_with(Instant::now).elapsed() > FIRST_BATCH_TIMEOUT
            {
                begun.store(true, Ordering::Relaxed);
            }
            if let Some(deadline) = deadline
                && !socket::readable(
                    &self.socket,
                    deadline.saturating_duration_since(Instant::now()),
                )?
            {
                break;
            }
            self.receive()?;
        }
        self.datagrams.received += self.frames.len() as u64;
        Ok(started)
    }

    /// Moves received frames to the batch until it is full.
    fn take(&mut self) {
        while self.frames.len() < self.batch
            && let Some((received, frame)) = self.received.get_mut(self.taken)
        {
            self.datagrams.truncated += u64::from(received.truncated);
            self.frames.push(frame);
            self.taken += 1;
        }
    }

    /// Receives datagrams, or waits for some. All earlier ones were taken.
    fn receive(&mut self) -> io::Result<()> {
        self.taken = 0;
        match self.received.receive(&self.socket, sys::mmsg::WAIT_FOR_ONE) {
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends the frames that the last batch's decisions forward, with the TTL decremented.
    fn forward<P: Processor>(&mut self, worker: &Worker<P>) {
        let Some((to, batch)) = &mut self.send else {
            return;
        };
        let mut forwarded = Vec::with_capacity(self.frames.len());
        for (at, decision) in worker.decisions().iter().enumerate() {
            if decision.verdict() != Verdict::Forward {
                continue;
            }
            match rewrite::decrement_ttl(self.frames.get_mut(at)) {
                Ok(()) => forwarded.push(at),
                Err(rewrite::TtlExpired) => self.datagrams.expired += 1,
            }
        }
        for part in forwarded.chunks(BURST) {
            let (sent, refused) = send(&self.socket, &self.frames, part, to, batch);
            self.datagrams.sent += sent;
            self.datagrams.refused += refused;
        }
    }
}

/// Sends these frames. Returns how many the kernel accepted, and how many it refused.
fn send(
    socket: &UdpSocket,
    frames: &Frames,
    these: &[usize],
    to: &Outgoing,
    batch: &mut SendBatch,
) -> (u64, u64) {
    let (mut burst, mut sent, mut refused) = (batch.burst(), 0, 0);
    for &at in these {
        let _has_room = burst.push(frames.get(at), to);
    }
    while !burst.is_empty() {
        match burst.send(socket, 0) {
            Ok(count) => sent += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => {
                burst.skip();
                refused += 1;
            }
        }
    }
    (sent, refused)
}

/// There was no datagram in time, or an earlier one of ours reached a closed port.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}
