//! Frames from a UDP socket, one in each datagram, and those that are forwarded to another address: getting
//! packets and giving them away is in every figure.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use control::shutdown::Shutdown;
use router::engine::{Processor, Verdict, Worker};
use router::frames::Frames;
use router::rewrite;
use sys::mmsg::{Outgoing, RecvBatch, SendBatch};
use sys::socket;

use super::measure::Measured;
use super::memory::pin;
use super::subject::Subject;
use super::told::{About, Told, met};
use super::{Given, Process};
use crate::exit::Failure;

/// Bytes of a frame at most: more are cut off, and counted.
const LONGEST: usize = 2048;
/// Bytes that wait in a socket for the next batch: a small frame takes about 800 of them.
const WAITING: usize = 64 << 20;
/// How long a thread waits for a datagram before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(10);
/// How long the time waits for the first batch to be whole.
const FILLING: Duration = Duration::from_millis(100);
/// Datagrams of one system call, by the kernel's own limit.
const BURST: usize = 1024;

/// What became of datagrams, beside what was decided about their frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanged {
    /// And decided about.
    pub(super) received: u64,
    /// Received, and left when the run ended before their batch was whole.
    pub(super) left: u64,
    /// For want of room in the socket, before a batch had it.
    pub(super) lost: u64,
    /// Longer than a frame may be: what is left of them was decided about.
    pub(super) cut: u64,
    pub(super) sent: u64,
    /// By the kernel.
    pub(super) refused: u64,
    /// Their TTL was used up: a router leaves them to the kernel, which answers.
    pub(super) expired: u64,
}

/// A thread's socket, and the batch that came by it.
struct Side {
    socket: UdpSocket,
    /// What the last system call brought, and how much of it is in a batch.
    received: RecvBatch,
    taken: usize,
    frames: Frames,
    /// Of the batch before, where it is kept.
    before: Frames,
    keeps: bool,
    batch: usize,
    /// How long the first frame of a batch waits for others; else for a whole batch.
    wait: Option<Duration>,
    send: Option<(Outgoing, SendBatch)>,
    exchanged: Exchanged,
}

impl Process {
    pub(super) fn socket<E: Subject>(
        &self,
        given: Given,
        mut about: About,
        shutdown: &Shutdown,
        engine: impl FnOnce(Given) -> Result<E, Failure>,
    ) -> Result<Told, Failure> {
        let cpus = self.cpus()?;
        let sides = self.sides(cpus.len())?;
        let address = sides[0].address()?;
        let rules = given.contents.rules.clone();
        let changing = self.updates.of(&given.contents)?;
        let mut tables = engine(given)?;
        about.bytes = tables.bytes();
        let mut threads = Vec::new();
        for (side, cpu) in sides.into_iter().zip(cpus) {
            let lookup = tables.processor(about.function);
            let lookup = lookup.map_err(|error| anyhow!(error))?;
            threads.push((side, cpu, Worker::new(lookup, about.batch)));
        }
        eprintln!("ready: frames as datagrams to {address}");
        let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let (done, changed) = thread::scope(|scope| {
            let running: Vec<_> = threads
                .into_iter()
                .map(|(side, cpu, worker)| {
                    let (begun, stop) = (&begun, &stop);
                    scope.spawn(move || {
                        pin(cpu);
                        side.work(worker, begun, stop)
                    })
                })
                .collect();
            // Nobody knows when the first datagram comes, nor how long a device builds what it runs.
            loop {
                if begun.load(Ordering::Relaxed) || shutdown.wait(PATIENCE) {
                    break;
                }
            }
            let (duration, updates) = (self.duration, &self.updates);
            let changed = updates.make(&mut tables, &changing, duration, shutdown);
            stop.store(true, Ordering::Relaxed);
            let joined = running.into_iter().map(|thread| {
                let joined = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
                joined.map_err(Failure::Failed)
            });
            let done = joined.collect::<Result<Vec<_>, Failure>>()?;
            Ok::<_, Failure>((done, changed?))
        })?;
        let (threads, sides): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        let exchanged: Vec<_> = sides.iter().map(|side| side.exchanged).collect();
        let rules = met(&rules, &tables);
        Ok(Told {
            timeline: self.timed(&tables, &about, &sides[0].before, shutdown),
            about,
            from: format!("datagrams to {address}"),
            threads,
            written: None,
            exchanged: Some(Exchanged::sum(&exchanged)),
            rules,
            changed,
            fallen: tables.fallen(),
        })
    }

    /// A socket for each thread, all of one address: the kernel gives each flow to one of them.
    fn sides(&self, threads: usize) -> Result<Vec<Side>, Failure> {
        let Some(mut listen) = self.listen else {
            let what = "--io socket receives datagrams: name where by --listen ADDR:PORT";
            return Err(Failure::Input(what.to_owned()));
        };
        let mut sides = Vec::new();
        for _ in 0..threads {
            let side = Side::open(listen, self.to, self.batch as usize, self.pace.batch_wait);
            let mut side =
                side.map_err(|error| Failure::Input(format!("--listen {listen}: {error}")))?;
            side.keeps = self.timeline;
            // Of port 0 the kernel chooses one, for all of them.
            listen = side.address()?;
            sides.push(side);
        }
        Ok(sides)
    }
}

impl Side {
    fn open(
        listen: SocketAddr,
        to: Option<SocketAddr>,
        batch: usize,
        wait: Option<Duration>,
    ) -> io::Result<Self> {
        let socket = socket::unbound(listen.ip().into())?;
        socket::reuse_port(&socket)?;
        socket::receive_buffer(&socket, WAITING)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket::bind(&socket, listen)?;
        Ok(Self {
            socket,
            received: RecvBatch::new(batch.min(BURST), LONGEST),
            taken: 0,
            frames: Frames::default(),
            before: Frames::default(),
            keeps: false,
            batch,
            wait,
            send: to.map(|to| (Outgoing::to(to), SendBatch::new(BURST))),
            exchanged: Exchanged::default(),
        })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let address = self.socket.local_addr();
        address.map_err(|error| Failure::Failed(anyhow!("--listen: {error}")))
    }

    /// Batch after batch until it is stopped. The first one is in no figure: it grows buffers, and a device
    /// builds what it runs.
    fn work<P: Processor>(
        mut self,
        mut worker: Worker<P>,
        begun: &AtomicBool,
        stop: &AtomicBool,
    ) -> Result<(Measured, Self), anyhow::Error> {
        let mut measured = Measured {
            send_ns: self.send.is_some().then_some(0.0),
            ..Measured::default()
        };
        let (mut began, mut before) = (None, *worker.counters());
        while let Some(started) = self.gather(begun, stop)? {
            let frames = (0..self.frames.len()).map(|at| self.frames.get(at));
            let stages = worker.decide_since(started, frames)?;
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
        self.exchanged.lost = socket::drops(&self.socket)?.into();
        Ok((measured, self))
    }

    /// When the first frame of the next batch was there; none once it is to stop, which leaves the last batch.
    /// A run begins with its first batch: once that is through, or is not whole after a while.
    fn gather(&mut self, begun: &AtomicBool, stop: &AtomicBool) -> io::Result<Option<u64>> {
        if self.keeps {
            mem::swap(&mut self.frames, &mut self.before);
        }
        self.frames.clear();
        let mut started = None;
        let (mut over, mut filling) = (None, None);
        loop {
            self.take();
            if !self.frames.is_empty() && started.is_none() {
                started = Some(sys::clock::ticks());
                over = self.wait.map(|wait| Instant::now() + wait);
            }
            if self.frames.len() == self.batch {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                self.exchanged.left += self.frames.len() as u64;
                return Ok(None);
            }
            if started.is_some()
                && !begun.load(Ordering::Relaxed)
                && filling.get_or_insert_with(Instant::now).elapsed() > FILLING
            {
                begun.store(true, Ordering::Relaxed);
            }
            if let Some(over) = over
                && !socket::readable(&self.socket, over.saturating_duration_since(Instant::now()))?
            {
                break;
            }
            self.receive()?;
        }
        self.exchanged.received += self.frames.len() as u64;
        Ok(started)
    }

    /// Takes what was received into the batch, as far as that has room.
    fn take(&mut self) {
        while self.frames.len() < self.batch
            && let Some((received, frame)) = self.received.get_mut(self.taken)
        {
            self.exchanged.cut += u64::from(received.truncated);
            self.frames.push(frame);
            self.taken += 1;
        }
    }

    /// Receives what is there, or what comes within the patience. Everything before was taken.
    fn receive(&mut self) -> io::Result<()> {
        self.taken = 0;
        match self.received.receive(&self.socket, sys::mmsg::WAIT_FOR_ONE) {
            Ok(_) => Ok(()),
            Err(error) if is_none(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends what the last batch's decisions forward, with the TTL one less.
    fn forward<P: Processor>(&mut self, worker: &Worker<P>) {
        let Some((to, batch)) = &mut self.send else {
            return;
        };
        let mut leave = Vec::with_capacity(self.frames.len());
        for (at, decision) in worker.decisions().iter().enumerate() {
            if decision.verdict() != Verdict::Forward {
                continue;
            }
            match rewrite::decrement_ttl(self.frames.get_mut(at)) {
                Ok(()) => leave.push(at),
                Err(rewrite::Expired) => self.exchanged.expired += 1,
            }
        }
        for part in leave.chunks(BURST) {
            let (sent, refused) = send(&self.socket, &self.frames, part, to, batch);
            self.exchanged.sent += sent;
            self.exchanged.refused += refused;
        }
    }
}

/// Sends these frames; how many the kernel took, and how many it did not.
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

/// No datagram within the patience, or an earlier one of ours that nobody wanted.
fn is_none(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}

impl Exchanged {
    fn sum(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            left: sum.left + one.left,
            lost: sum.lost + one.lost,
            cut: sum.cut + one.cut,
            sent: sum.sent + one.sent,
            refused: sum.refused + one.refused,
            expired: sum.expired + one.expired,
        })
    }
}
