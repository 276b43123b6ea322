//! Frames as datagrams over the loopback device, as many as can be sent or at a rate, and where forwarded
//! ones end.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use router::frames::Frames;
use sys::mmsg::{Outgoing, SendBatch};
use units::Pps;

use super::inputs::Packets;

/// Frames of one system call.
const BURST: usize = 64;
/// The interval at which the generator checks whether a frame is due.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// Sockets that take turns: the kernel gives each to one of the threads that receive.
const FLOWS: usize = 64;

/// A thread that sends until it is stopped.
#[derive(Debug)]
pub(super) struct Generator {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Generator {
    pub(super) fn start(packets: &Packets, rate: Option<Pps>, to: SocketAddr) -> Result<Self> {
        let sockets: Result<Vec<_>, _> = (0..FLOWS).map(|_| anywhere()).collect();
        let sockets = sockets.context("the generator's sockets")?;
        let (stop, frames) = (
            Arc::new(AtomicBool::new(false)),
            Arc::clone(&packets.frames),
        );
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut pace = Pace::new(rate);
            send(&sockets, &frames, &mut pace, to, &stopped)
        });
        Ok(Self { stop, thread })
    }

    /// How many datagrams the kernel took.
    pub(super) fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the generator panicked")
    }
}

/// How many frames are due, by times that are fixed beforehand.
#[derive(Debug)]
struct Pace {
    rate: Option<Pps>,
    began: Instant,
    taken: u64,
}

impl Pace {
    fn new(rate: Option<Pps>) -> Self {
        Self {
            rate,
            began: Instant::now(),
            taken: 0,
        }
    }

    /// A burst at most; waits a moment for the first one.
    fn take(&mut self) -> usize {
        let Some(Pps(rate)) = self.rate else {
            return BURST;
        };
        let due = self.began.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX) - self.taken;
        if due == 0 {
            thread::sleep(POLL_INTERVAL);
        }
        let taken = due.min(BURST as u64);
        self.taken += taken;
        usize::try_from(taken).unwrap_or(BURST)
    }
}

fn send(
    sockets: &[UdpSocket],
    frames: &Frames,
    pace: &mut Pace,
    to: SocketAddr,
    stop: &AtomicBool,
) -> u64 {
    let (outgoing, mut batch) = (Outgoing::to(to), SendBatch::new(BURST));
    let (mut sent, mut next) = (0, 0);
    for socket in sockets.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let due = pace.take();
        let mut burst = batch.burst();
        while burst.len() < due && burst.push(frames.get(next), &outgoing) {
            next = (next + 1) % frames.len();
        }
        while !burst.is_empty() {
            match burst.send(socket, 0) {
                Ok(count) => sent += count as u64,
                // The receiver is gone, or a frame is longer than a datagram may be.
                Err(_) => burst.skip(),
            }
        }
    }
    sent
}

/// A socket that takes what comes and is never read: the kernel drops what it has no room for.
#[derive(Debug)]
pub(super) struct Sink {
    _socket: UdpSocket,
    pub(super) address: SocketAddr,
}

impl Sink {
    pub(super) fn open() -> Result<Self> {
        let socket = anywhere().context("the sink's socket")?;
        Ok(Self {
            address: socket.local_addr()?,
            _socket: socket,
        })
    }
}

fn anywhere() -> std::io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
}
