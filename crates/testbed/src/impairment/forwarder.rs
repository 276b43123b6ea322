//! The thread between the two ports: frames wait in their memory until they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sys::clock::monotonic_ns;
use xsk::{Frame, Pump, Wait};

use super::schedule::Schedule;

/// How soon the thread sees that it should stop.
const CHECK_NS: u64 = 20_000_000;
/// Frames taken from a port in one go.
const BATCH: usize = 64;

/// A frame that port `i` receives leaves by port `1 - i`.
pub(super) struct Forwarder {
    pump: Pump,
    schedules: [Schedule; 2],
    queues: [DelayQueue; 2],
    received: Vec<Frame>,
}

/// Frames by the time they are due, and of equal times by their number.
#[derive(Default)]
struct DelayQueue {
    due: BinaryHeap<Reverse<(u64, u64, usize)>>,
    frames: Vec<Option<Frame>>,
    vacant: Vec<usize>,
    number: u64,
}

impl DelayQueue {
    fn push(&mut self, due_ns: u64, frame: Frame) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[place] = Some(frame);
        self.due.push(Reverse((due_ns, self.number, place)));
        self.number += 1;
    }

    fn next_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ns, ..))| *due_ns)
    }

    fn pop_due(&mut self, now_ns: u64) -> Option<Frame> {
        if self.next_ns()? > now_ns {
            return None;
        }
        let Reverse((.., place)) = self.due.pop()?;
        self.vacant.push(place);
        self.frames[place].take()
    }
}

impl Forwarder {
    /// Between the two ports of the pump.
    pub(super) fn new(pump: Pump, schedules: [Schedule; 2]) -> Self {
        Self {
            pump,
            schedules,
            queues: Default::default(),
            received: Vec::with_capacity(BATCH),
        }
    }

    /// Forwards until it is stopped or a port is gone.
    pub(super) fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        sys::sched::exact_timers()?;
        while !stop.load(Ordering::Relaxed) {
            let now_ns = monotonic_ns();
            for port in 0..2 {
                self.take_in(port, now_ns);
                self.send_due(port, now_ns)?;
            }
            if self.wait()? == Wait::Gone {
                break;
            }
        }
        Ok(())
    }

    /// Schedules the frames that have arrived at `port`.
    fn take_in(&mut self, port: usize, now_ns: u64) {
        self.pump.receive(port, BATCH, &mut self.received);
        for frame in self.received.drain(..) {
            match self.schedules[port].departure_ns(now_ns, frame.len()) {
                Some(due_ns) => self.queues[1 - port].push(due_ns, frame),
                None => self.pump.free.push(frame),
            }
        }
    }

    /// Sends the frames that are due by `port`. Those that its ring has no room for leave later.
    fn send_due(&mut self, port: usize, now_ns: u64) -> io::Result<()> {
        while let Some(frame) = self.queues[port].pop_due(now_ns) {
            self.pump.ports[port].stage(frame, ());
        }
        self.pump.offer(port, |(), _| {})
    }

    /// Until a frame is due or one arrives.
    fn wait(&self) -> io::Result<Wait> {
        let now_ns = monotonic_ns();
        let next_ns = self.queues.iter().filter_map(DelayQueue::next_ns).min();
        let for_ns = match next_ns {
            _ if self.pump.is_waiting() => 0,
            Some(due_ns) => due_ns.saturating_sub(now_ns).min(CHECK_NS),
            None => CHECK_NS,
        };
        self.pump.wait(Duration::from_nanos(for_ns))
    }
}
