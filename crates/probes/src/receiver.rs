//! A receiving application: the delay from the intended time of sending to the application's
//! hands, waking up included.
//!
//! It decides what one socket got and when; the namespace and the address are the caller's.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use packet::payload::Header;
use stats::Histogram;

use crate::Error;

/// A thread that receives one flow. Dropping it stops it.
#[derive(Debug)]
pub struct Receiver {
    progress: Arc<Progress>,
    thread: Option<JoinHandle<io::Result<ReceiverReport>>>,
}

#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    received: AtomicU64,
}

/// The packets that an application received: received = unique + duplicates + foreign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiverReport {
    pub received: u64,
    pub unique: u64,
    pub duplicates: u64,
    /// Not of this run and flow, or past the planned number of packets.
    pub foreign: u64,
    /// RFC 4737.
    pub reordered: u64,
    /// Arrived before it was to be sent.
    pub negative: u64,
    /// Nanoseconds from the intended time of sending to the return of `recv`.
    pub since_intended: Histogram,
    /// Nanoseconds from the actual time of sending to the return of `recv`.
    pub since_sent: Histogram,
}

impl Receiver {
    /// The interval at which the thread checks whether it should stop.
    const CHECK: Duration = Duration::from_millis(20);

    /// Receives on `socket` packets of `run` and `flow` with sequence numbers below `capacity`.
    pub fn start(socket: UdpSocket, run: u32, flow: u32, capacity: u32) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::bpf("starting a receiver")(source);
        socket.set_read_timeout(Some(Self::CHECK)).map_err(failed)?;
        let progress = Arc::new(Progress::default());
        let seen = Arc::clone(&progress);
        let thread = thread::Builder::new()
            .name("receiver".into())
            .spawn(move || receive(&socket, &seen, &mut Counter::new(run, flow, capacity)))
            .map_err(failed)?;
        Ok(Self {
            progress,
            thread: Some(thread),
        })
    }

    /// Waits until `expected` packets have arrived, or none has for `quiet`. Returns how many have.
    pub fn settle(&self, expected: u64, quiet: Duration) -> u64 {
        let mut received = self.progress.received.load(Ordering::Relaxed);
        let mut since = Instant::now();
        while received < expected && since.elapsed() < quiet {
            thread::sleep(Self::CHECK / 2);
            let now = self.progress.received.load(Ordering::Relaxed);
            if now != received {
                received = now;
                since = Instant::now();
            }
        }
        received
    }

    /// Stops and returns everything counted.
    ///
    /// # Errors
    /// When the socket failed.
    pub fn stop(mut self) -> Result<ReceiverReport, Error> {
        self.join()
            .unwrap_or_else(|| Ok(ReceiverReport::default()))
            .map_err(Error::bpf("receiving"))
    }

    fn join(&mut self) -> Option<io::Result<ReceiverReport>> {
        self.progress.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        Some(
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the receiver's thread died"))),
        )
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

impl ReceiverReport {
    /// Packets that did not arrive: unique + missing = sent.
    pub fn missing(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.unique)
    }

    /// Why the counts cannot be believed. Empty when they can.
    pub fn violations(&self, sent: u64) -> Vec<String> {
        let mut broken = Vec::new();
        if self.received != self.unique + self.duplicates + self.foreign {
            broken.push(format!(
                "received {} is not the sum of its parts",
                self.received
            ));
        }
        if self.unique > sent {
            broken.push(format!("unique {} is more than sent {sent}", self.unique));
        }
        if self.negative > 0 {
            broken.push(format!("{} negative delays", self.negative));
        }
        broken
    }
}

fn receive(
    socket: &UdpSocket,
    progress: &Progress,
    count: &mut Counter,
) -> io::Result<ReceiverReport> {
    let mut payload = vec![0; 65_536];
    while !progress.stop.load(Ordering::Relaxed) {
        match socket.recv(&mut payload) {
            Ok(length) => {
                let now_ns = sys::clock::monotonic_ns();
                count.packet(&payload[..length], now_ns);
                progress.received.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => {}
                _ => return Err(error),
            },
        }
    }
    Ok(std::mem::take(&mut count.received))
}

struct Counter {
    run: u32,
    flow: u32,
    seen: Vec<bool>,
    next: usize,
    received: ReceiverReport,
}

impl Counter {
    fn new(run: u32, flow: u32, capacity: u32) -> Self {
        Self {
            run,
            flow,
            seen: vec![false; capacity as usize],
            next: 0,
            received: ReceiverReport::default(),
        }
    }

    fn packet(&mut self, payload: &[u8], now_ns: u64) {
        let counts = &mut self.received;
        counts.received += 1;
        let ours = Header::read(payload).filter(|h| h.run == self.run && h.flow == self.flow);
        let place = ours.and_then(|header| Some((header, usize::try_from(header.sequence).ok()?)));
        let Some((header, sequence)) = place.filter(|(_, at)| *at < self.seen.len()) else {
            counts.foreign += 1;
            return;
        };
        if std::mem::replace(&mut self.seen[sequence], true) {
            counts.duplicates += 1;
            return;
        }
        counts.unique += 1;
        if sequence < self.next {
            counts.reordered += 1;
        } else {
            self.next = sequence + 1;
        }
        match now_ns.checked_sub(header.intended_ns) {
            Some(delay) => counts.since_intended.record(delay),
            None => counts.negative += 1,
        }
        if let Some(delay) = now_ns.checked_sub(header.sent_ns) {
            counts.since_sent.record(delay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(run: u32, flow: u32, sequence: u64) -> [u8; 60] {
        let mut bytes = [0; 60];
        let header = Header {
            run,
            flow,
            sequence,
            intended_ns: 1_000,
            sent_ns: 1_500,
        };
        header.write(&mut bytes);
        bytes
    }

    #[test]
    fn every_packet_is_classified_once() {
        let mut count = Counter::new(7, 1, 10);
        for sequence in [0, 2, 1, 2, 9] {
            count.packet(&payload(7, 1, sequence), 2_000);
        }
        count.packet(&payload(7, 1, 10), 2_000);
        count.packet(&payload(6, 1, 3), 2_000);
        count.packet(&payload(7, 2, 3), 2_000);
        count.packet(b"hello", 2_000);
        count.packet(&payload(7, 1, 4), 900);
        let got = count.received;
        assert_eq!((got.received, got.unique, got.duplicates), (10, 5, 1));
        assert_eq!((got.foreign, got.reordered, got.negative), (4, 2, 1));
        assert_eq!((got.since_intended.count(), got.since_sent.count()), (4, 4));
        assert_eq!(got.missing(10), 5);
        assert_eq!(got.violations(10), ["1 negative delays"]);
    }

    #[test]
    fn a_real_socket_delivers_and_the_thread_stops() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let receiver = Receiver::start(socket, 7, 0, 100).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for sequence in 0..50 {
            sender.send_to(&payload(7, 0, sequence), to).unwrap();
        }
        assert_eq!(receiver.settle(50, Duration::from_secs(5)), 50);
        let received = receiver.stop().unwrap();
        assert_eq!((received.unique, received.missing(50)), (50, 0));
        assert_eq!(received.violations(50), Vec::<String>::new());
    }
}
