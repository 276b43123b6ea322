//! One socket on one queue of a device.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use datapath::{Error, Missing};
use xsk::{Bind, Frame, Kick, Mode, Socket, Umem};

/// Kicks without effect after which a device's queue is full.
const STALLED: u32 = 16;
/// Frames that a socket holds to receive into.
pub(super) const HELD: usize = 2048;
/// How long a queue may stay taken after its socket was closed, and how often to look.
const LETTING_GO: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Port {
    pub(super) ifindex: u32,
    pub(super) mtu: u32,
    socket: Socket,
    held: usize,
    spare: Vec<Frame>,
    staged: Vec<Frame>,
}

impl Port {
    pub(super) fn bind(
        umem: &Umem,
        (ifindex, queue): (u32, u32),
        mtu: u32,
    ) -> Result<Self, xsk::Error> {
        let deadline = Instant::now() + LETTING_GO;
        let bind = Bind::new(ifindex, queue, Mode::Copy);
        let socket = loop {
            match Socket::bind(umem, &bind) {
                Err(xsk::Error::Taken { .. }) if Instant::now() < deadline => {
                    thread::sleep(LOOK_AGAIN);
                }
                bound => break bound?,
            }
        };
        Ok(Self {
            ifindex,
            mtu,
            socket,
            held: 0,
            spare: Vec::new(),
            staged: Vec::new(),
        })
    }

    /// Gives the kernel what the port may hold of `free`.
    pub(super) fn refill(&mut self, free: &mut Vec<Frame>) {
        let wanted = HELD.saturating_sub(self.held).min(free.len());
        if wanted > 0 {
            self.spare.extend(free.drain(free.len() - wanted..));
            self.held += self.socket.fill(&mut self.spare);
            free.append(&mut self.spare);
        }
        // Only a device that reads the ring by itself sleeps on it, and that fails when it is gone.
        let _ = self.socket.wake_receive();
    }

    pub(super) fn receive(&mut self, frames: &mut Vec<Frame>, limit: usize) {
        self.held = self.held.saturating_sub(self.socket.receive(frames, limit));
    }

    /// Queues a frame; it leaves at a [`Self::flush`].
    pub(super) fn stage(&mut self, frame: Frame) {
        self.staged.push(frame);
    }

    /// Has the kernel send what is queued; how many frames it took, and how many it did not.
    pub(super) fn flush(&mut self, free: &mut Vec<Frame>) -> (u64, u64) {
        self.socket.complete(free);
        let (mut sent, mut lost, mut stalled) = (0, 0, 0);
        while stalled < STALLED && (!self.staged.is_empty() || self.socket.unsent() > 0) {
            let before = self.socket.unsent();
            let queued = self.socket.send(&mut self.staged);
            let kick = self.socket.kick();
            let taken = (before + queued).saturating_sub(self.socket.unsent());
            sent += taken as u64;
            self.socket.complete(free);
            match kick {
                Ok(Kick::Dropped) => {
                    lost += 1;
                    sent = sent.saturating_sub(1);
                }
                Ok(_) => {}
                Err(_) => break,
            }
            stalled = if queued + taken == 0 { stalled + 1 } else { 0 };
        }
        lost += self.staged.len() as u64;
        free.append(&mut self.staged);
        (sent, lost)
    }

    /// Frames in the ring that the kernel has not taken.
    pub(super) fn unsent(&mut self) -> u64 {
        self.socket.unsent() as u64
    }

    /// Frames that were handed to this socket and did not fit, since it was bound.
    pub(super) fn no_room(&self) -> u64 {
        let statistics = self.socket.statistics().unwrap_or_default();
        statistics.dropped + statistics.receive_full
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Why a socket could not be had, in the words of datapaths.
pub(super) fn refused(error: xsk::Error) -> Error {
    match error {
        xsk::Error::NotBuilt | xsk::Error::Denied => missing(&error).into(),
        error => Error::failed("opening an AF_XDP socket", error),
    }
}

pub(super) fn missing(error: &xsk::Error) -> Missing {
    let remedy = match error {
        xsk::Error::NotBuilt => "boot a kernel built with CONFIG_XDP_SOCKETS",
        _ => "run with sudo",
    };
    Missing::new(error.to_string(), remedy)
}
