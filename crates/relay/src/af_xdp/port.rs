//! One socket on one queue of a device: what it receives into, and what became of what it sends.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use xsk::{Bind, Frame, Kick, Mode, Socket, Umem};

use super::copies::Copies;
use crate::counters::DropReason;

/// Kicks without effect after which a device's queue is full.
const STALLED: u32 = 16;
/// How long a queue may stay taken after its socket was closed, and how often to look.
const LETTING_GO: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Port {
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    socket: Socket,
    /// Frames it may hold to receive into, and holds; none when it only sends.
    quota: usize,
    held: usize,
    spare: Vec<Frame>,
    /// Copies for the transmit ring.
    staged: Vec<Frame>,
    /// Whose copies the kernel has not taken: those in the ring, then those staged.
    waiting: VecDeque<Waiting>,
    /// The device was down at the last kick.
    down: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    subscriber: u32,
    bytes: u16,
}

impl Port {
    pub(super) fn bind(umem: &Umem, ifindex: u32, queue: u32) -> Result<Self, xsk::Error> {
        Ok(Self {
            ifindex,
            queue,
            socket: socket(umem, &Bind::new(ifindex, queue, Mode::Copy))?,
            quota: 0,
            held: 0,
            spare: Vec::new(),
            staged: Vec::new(),
            waiting: VecDeque::new(),
            down: false,
        })
    }

    pub(super) fn receives(&self) -> bool {
        self.quota > 0
    }

    /// How many frames it may hold to receive into.
    pub(super) fn set_quota(&mut self, frames: usize) {
        self.quota = frames;
    }

    /// Gives the kernel what the port may hold of `free`.
    pub(super) fn refill(&mut self, free: &mut Vec<Frame>) {
        let wanted = self.quota.saturating_sub(self.held).min(free.len());
        if wanted == 0 {
            return;
        }
        self.spare.extend(free.drain(free.len() - wanted..));
        self.held += self.socket.fill(&mut self.spare);
        free.append(&mut self.spare);
        // Only a device that reads the ring by itself sleeps on it, and that fails when it is gone.
        let _ = self.socket.wake_receive();
    }

    pub(super) fn receive(&mut self, frames: &mut Vec<Frame>, limit: usize) {
        self.held = self.held.saturating_sub(self.socket.receive(frames, limit));
    }

    /// Queues a subscriber's copy; it leaves at a [`Self::flush`].
    pub(super) fn stage(&mut self, frame: Frame, subscriber: u32, bytes: u16) {
        self.staged.push(frame);
        self.waiting.push_back(Waiting { subscriber, bytes });
    }

    /// Has the kernel send what is queued. What then finds no room in the ring is dropped.
    pub(super) fn flush(&mut self, copies: &mut Copies) {
        let mut stalled = 0;
        self.socket.complete(&mut copies.free);
        if self.down {
            // What is put into the ring now would leave when the device comes back, too late.
            self.push(copies);
        }
        while !self.waiting.is_empty() && !self.down && stalled < STALLED {
            let queued = self.socket.send(&mut self.staged);
            let taken = self.push(copies);
            self.socket.complete(&mut copies.free);
            stalled = if queued + taken == 0 { stalled + 1 } else { 0 };
        }
        for frame in self.staged.drain(..).rev() {
            copies.free.push(frame);
            if let Some(copy) = self.waiting.pop_back() {
                copies.dropped(copy.subscriber, DropReason::Transmit);
            }
        }
    }

    /// Whether the kernel has copies that it has not taken, and may when it is asked again.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() && !self.down
    }

    /// Counts what the kernel has not taken as dropped: the socket is about to close.
    pub(super) fn give_up(&mut self, copies: &mut Copies) {
        for copy in self.waiting.drain(..) {
            copies.dropped(copy.subscriber, DropReason::Transmit);
        }
    }

    /// Datagrams that were handed to this socket and did not fit, since it was bound.
    pub(super) fn lost(&self) -> u64 {
        let statistics = self.socket.statistics().unwrap_or_default();
        statistics.dropped + statistics.receive_full
    }

    /// Has the kernel take what is in the ring, and counts that; returns how many it took.
    fn push(&mut self, copies: &mut Copies) -> usize {
        let kick = self.socket.kick();
        self.down = kick.is_err();
        let dropped = kick.is_ok_and(|kick| kick == Kick::Dropped);
        let left = self.socket.unsent() + self.staged.len();
        let taken = self.waiting.len().saturating_sub(left);
        for (number, copy) in (1..).zip(self.waiting.drain(..taken)) {
            if dropped && number == taken {
                copies.dropped(copy.subscriber, DropReason::Transmit);
            } else {
                copies.delivered(copy.subscriber, copy.bytes);
            }
        }
        taken
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The kernel lets go of a closed socket's queue a little later: waits for one that was just left.
fn socket(umem: &Umem, bind: &Bind) -> Result<Socket, xsk::Error> {
    let deadline = Instant::now() + LETTING_GO;
    loop {
        match Socket::bind(umem, bind) {
            Err(xsk::Error::Taken { .. }) if Instant::now() < deadline => thread::sleep(LOOK_AGAIN),
            result => return result,
        }
    }
}

/// Why a socket could not be had, in the words of datapaths.
pub(super) fn refused(error: xsk::Error) -> datapath::Error {
    match error {
        xsk::Error::NotBuilt | xsk::Error::Denied => missing(&error).into(),
        error => datapath::Error::failed("opening an AF_XDP socket", error),
    }
}

pub(super) fn missing(error: &xsk::Error) -> datapath::Missing {
    let remedy = match error {
        xsk::Error::NotBuilt => "boot a kernel built with CONFIG_XDP_SOCKETS",
        _ => "run with sudo",
    };
    datapath::Missing::new(error.to_string(), remedy)
}
