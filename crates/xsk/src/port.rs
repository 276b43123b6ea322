//! One socket with the frames that it holds: what it receives into, and what became of each frame that it
//! sends.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Bind, Error, Frame, Kick, Socket, Umem};

/// Kicks without effect after which a device's queue is full.
const MAX_IDLE_KICKS: u32 = 16;
/// A closed socket keeps its queue until an RCU grace period has passed. A queue that is taken is asked for
/// again for this long, and this often.
const RELEASE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(1);

/// What became of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device has it.
    Sent,
    /// The device or its queue did not take it.
    Lost,
}

/// A socket on one queue of a device. Each frame for transmission is staged with a `T`, which comes back
/// with the frame's outcome.
#[derive(Debug)]
pub struct Port<T = ()> {
    bind: Bind,
    socket: Socket,
    quota: usize,
    held: usize,
    /// Frames for the transmit ring.
    staged: Vec<Frame>,
    /// Of the frames that the kernel has not taken: those in the ring, then those staged.
    waiting: VecDeque<T>,
    /// The device was down at the last kick.
    down: bool,
}

impl<T> Port<T> {
    /// Binds a socket that only sends, until [`Self::set_quota`]. Waits for a queue that a closed socket
    /// still has.
    ///
    /// # Errors
    /// As [`Socket::bind`].
    pub fn bind(umem: &Umem, bind: Bind) -> Result<Self, Error> {
        let deadline = Instant::now() + RELEASE;
        let socket = loop {
            match Socket::bind(umem, &bind) {
                Err(Error::Taken { .. }) if Instant::now() < deadline => thread::sleep(RETRY),
                bound => break bound?,
            }
        };
        Ok(Self {
            bind,
            socket,
            quota: 0,
            held: 0,
            staged: Vec::new(),
            waiting: VecDeque::new(),
            down: false,
        })
    }

    pub fn ifindex(&self) -> u32 {
        self.bind.ifindex
    }

    pub fn queue(&self) -> u32 {
        self.bind.queue
    }

    pub fn receives(&self) -> bool {
        self.quota > 0
    }

    /// How many frames the kernel may have to receive into, those received and not yet taken included.
    pub fn set_quota(&mut self, frames: usize) {
        self.quota = frames;
    }

    /// Gives the kernel what the port may hold of `free`.
    #[inline]
    pub fn refill(&mut self, free: &mut Vec<Frame>) {
        let wanted = self.quota.saturating_sub(self.held);
        self.held += self.socket.fill_up_to(free, wanted);
        // Only a device that reads the ring by itself sleeps on it, and that fails when it is gone.
        let _ = self.socket.wake_receive();
    }

    /// Appends at most `limit` received packets to `frames`, in order; returns how many.
    #[inline]
    pub fn receive(&mut self, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let received = self.socket.receive(frames, limit);
        self.held = self.held.saturating_sub(received);
        received
    }

    /// Queues a frame; it leaves at a [`Self::flush`] or a [`Self::offer`].
    #[inline]
    pub fn stage(&mut self, frame: Frame, tag: T) {
        self.staged.push(frame);
        self.waiting.push_back(tag);
    }

    /// Has the kernel send what is queued. What finds no room in the ring after the device has stalled, or
    /// while it is down, is lost.
    pub fn flush(&mut self, free: &mut Vec<Frame>, mut outcome: impl FnMut(T, Outcome)) {
        let mut stalled = 0;
        self.reclaim(free);
        if self.down {
            // What is put into the ring now would leave when the device comes back, too late.
            let _still = self.push(&mut outcome);
        }
        while !self.waiting.is_empty() && !self.down && stalled < MAX_IDLE_KICKS {
            let queued = self.socket.send(&mut self.staged);
            let taken = self.push(&mut outcome).unwrap_or(0);
            self.reclaim(free);
            stalled = if queued + taken == 0 { stalled + 1 } else { 0 };
        }
        for frame in self.staged.drain(..).rev() {
            free.push(frame);
            if let Some(tag) = self.waiting.pop_back() {
                outcome(tag, Outcome::Lost);
            }
        }
    }

    /// Has the kernel send what it takes at once of what is queued. The rest stays queued, until it is asked again.
    ///
    /// # Errors
    /// The device is down or gone.
    pub fn offer(
        &mut self,
        free: &mut Vec<Frame>,
        mut outcome: impl FnMut(T, Outcome),
    ) -> io::Result<()> {
        self.reclaim(free);
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.socket.send(&mut self.staged);
        self.push(&mut outcome).map(drop)
    }

    /// Takes back the frames whose transmission is over.
    pub(crate) fn reclaim(&mut self, free: &mut Vec<Frame>) {
        self.socket.complete(free);
    }

    /// Whether frames are queued that the kernel has not taken, and may when it is asked again.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() && !self.down
    }

    /// Reports what the kernel has not taken as lost: the socket is about to close.
    pub fn give_up(&mut self, mut outcome: impl FnMut(T, Outcome)) {
        for tag in self.waiting.drain(..) {
            outcome(tag, Outcome::Lost);
        }
    }

    /// Closes the socket: its frames are appended to `free`, and what the kernel has not taken is reported as lost. Returns
    /// how many frames are lost, because a device still sends them.
    pub(crate) fn close(mut self, free: &mut Vec<Frame>, outcome: impl FnMut(T, Outcome)) -> usize {
        self.give_up(outcome);
        free.append(&mut self.staged);
        self.socket.close(free)
    }

    /// Packets that were handed to this socket and did not fit, since it was bound.
    pub fn dropped(&self) -> u64 {
        let statistics = self.socket.statistics().unwrap_or_default();
        statistics.dropped + statistics.receive_full
    }

    /// Has the kernel take what is in the ring, and reports that; returns how many it took.
    fn push(&mut self, outcome: &mut impl FnMut(T, Outcome)) -> io::Result<usize> {
        let kick = self.socket.kick();
        self.down = kick.is_err();
        let dropped = matches!(kick, Ok(Kick::Dropped));
        let left = self.socket.unsent() + self.staged.len();
        let taken = self.waiting.len().saturating_sub(left);
        for (number, tag) in (1..).zip(self.waiting.drain(..taken)) {
            if dropped && number == taken {
                outcome(tag, Outcome::Lost);
            } else {
                outcome(tag, Outcome::Sent);
            }
        }
        kick.map(|_| taken)
    }
}

impl<T> AsFd for Port<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
