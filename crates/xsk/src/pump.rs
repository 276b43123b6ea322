//! The sockets of one thread: receives from all of them, sends by any, and owns the frames that nobody uses.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::mmap::Pages;

use crate::socket::{HANGUP_EVENTS, poll};
use crate::{Bind, Error, Frame, Outcome, Port, Umem};

/// Ports that share one memory. A user takes frames from `free` or receives them, and stages them for a port
/// or gives them back to `free`.
#[derive(Debug)]
pub struct Pump<T = ()> {
    pub umem: Umem,
    /// They stay in their places until one is closed.
    pub ports: Vec<Port<T>>,
    /// The last used is used next, while it is in the cache.
    pub free: Vec<Frame>,
    batch: Vec<Frame>,
    closed: ClosedPorts,
}

/// What ports came to that are closed.
#[derive(Clone, Copy, Debug, Default)]
struct ClosedPorts {
    dropped: u64,
    lost_frames: usize,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Packets have arrived, or nothing has for so long.
    Over,
    /// A device of the ports is gone.
    Gone,
}

impl<T> Pump<T> {
    /// Without ports; `frames` frames of 2048 or 4096 bytes.
    ///
    /// # Errors
    /// As [`Umem::new`].
    pub fn new(frames: u32, frame_size: u32) -> Result<Self, Error> {
        let (umem, free) = Umem::new(frames, frame_size, 0, Pages::Ordinary)?;
        Ok(Self {
            umem,
            ports: Vec::new(),
            free,
            batch: Vec::new(),
            closed: ClosedPorts::default(),
        })
    }

    /// Opens a port; returns its place among the ports.
    ///
    /// # Errors
    /// As [`Port::bind`].
    pub fn open(&mut self, bind: Bind) -> Result<usize, Error> {
        self.ports.push(Port::bind(&self.umem, bind)?);
        Ok(self.ports.len() - 1)
    }

    /// Closes a port. Those behind it move up by one place. What the kernel has not taken is reported as lost. Packets
    /// that have arrived and were not received are gone.
    pub fn close(&mut self, port: usize, outcome: impl FnMut(T, Outcome)) {
        let port = self.ports.remove(port);
        self.closed.dropped += port.dropped();
        self.closed.lost_frames += port.close(&mut self.free, outcome);
    }

    /// Frames that were lost with ports, because a device still sent them when its port was closed.
    pub fn lost_frames(&self) -> usize {
        self.closed.lost_frames
    }

    /// Lets a port hold so many frames to receive into, and gives the kernel the first ones.
    pub fn set_quota(&mut self, port: usize, frames: usize) {
        let port = &mut self.ports[port];
        port.set_quota(frames);
        port.refill(&mut self.free);
    }

    /// Appends at most `limit` packets of one port to `frames`, and gives the kernel room for others;
    /// returns how many.
    #[inline]
    pub fn receive(&mut self, port: usize, limit: usize, frames: &mut Vec<Frame>) -> usize {
        let port = &mut self.ports[port];
        if !port.receives() {
            return 0;
        }
        let received = port.receive(frames, limit);
        port.refill(&mut self.free);
        received
    }

    /// Hands on at most `limit` packets of each port; returns how many all were.
    #[inline]
    pub fn receive_each(&mut self, limit: usize, mut take: impl FnMut(&mut Self, Frame)) -> usize {
        let mut all = 0;
        let mut batch = std::mem::take(&mut self.batch);
        for port in 0..self.ports.len() {
            all += self.receive(port, limit, &mut batch);
            for frame in batch.drain(..) {
                take(self, frame);
            }
        }
        self.batch = batch;
        all
    }

    /// Has the kernel send what is staged for any port: [`Port::flush`].
    pub fn flush(&mut self, mut outcome: impl FnMut(T, Outcome)) {
        for port in &mut self.ports {
            port.flush(&mut self.free, &mut outcome);
        }
    }

    /// Takes back the frames whose transmission is over; sending does so, too.
    pub fn reclaim(&mut self) {
        for port in &mut self.ports {
            port.reclaim(&mut self.free);
        }
    }

    /// Has the kernel send what it takes at once of what is staged for one port: [`Port::offer`].
    ///
    /// # Errors
    /// As [`Port::offer`].
    pub fn offer(&mut self, port: usize, outcome: impl FnMut(T, Outcome)) -> io::Result<()> {
        self.ports[port].offer(&mut self.free, outcome)
    }

    /// Whether a device holds up frames, so that it must be asked again.
    pub fn is_waiting(&self) -> bool {
        self.ports.iter().any(Port::is_waiting)
    }

    /// Reports what no device has taken as lost: the sockets are about to close.
    pub fn give_up(&mut self, mut outcome: impl FnMut(T, Outcome)) {
        for port in &mut self.ports {
            port.give_up(&mut outcome);
        }
    }

    /// Packets that were handed to the sockets and did not fit, since they were bound.
    pub fn dropped(&self) -> u64 {
        self.closed.dropped + self.ports.iter().map(Port::dropped).sum::<u64>()
    }

    /// Waits until a port has packets to receive, for at most `timeout`.
    ///
    /// # Errors
    /// The kernel's, of waiting.
    pub fn wait(&self, timeout: Duration) -> io::Result<Wait> {
        let sockets = self.ports.iter().map(AsFd::as_fd);
        let events = poll(sockets, timeout)?;
        Ok(if events & HANGUP_EVENTS == 0 {
            Wait::Over
        } else {
            Wait::Gone
        })
    }
}
