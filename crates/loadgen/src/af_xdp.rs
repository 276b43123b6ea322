//! The AF_XDP back end: frames written in shared memory, past queueing disciplines and tc.

use std::thread;
use std::time::{Duration, Instant};

use packet::payload::Header;
use sys::mmap::Pages;
use xsk::{Bind, Frame, Kick, Mode, Socket, Umem};

use crate::engine::{Rest, Taken, Transmit};
use crate::frame::{self, Template};
use crate::{Error, Load};

const FRAMES: u32 = 4096;
/// A device that takes nothing for this long is not coming back.
const STUCK: Duration = Duration::from_secs(2);

pub(crate) struct Sender {
    umem: Umem,
    socket: Socket,
    templates: Vec<Template>,
    free: Vec<Frame>,
    burst: Vec<Frame>,
}

/// How long the kernel may take to release the queue of a socket that was closed.
const RELEASE: Duration = Duration::from_secs(1);

/// Binds to queue 0. A closed socket keeps its queue until an RCU grace period has passed, so a
/// queue that is taken is asked for again.
fn bind(umem: &Umem, ifindex: u32) -> Result<Socket, Error> {
    let deadline = Instant::now() + RELEASE;
    loop {
        match Socket::bind(umem, &Bind::new(ifindex, 0, Mode::Copy)) {
            Err(xsk::Error::Taken { .. }) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(2));
            }
            bound => return Ok(bound?),
        }
    }
}

impl Sender {
    pub(crate) fn new(load: &Load) -> Result<Self, Error> {
        let frame_size = u32::try_from(frame::MAX).unwrap_or(u32::MAX);
        let (umem, mut free) = Umem::new(FRAMES, frame_size, 0, Pages::Ordinary)?;
        let socket = bind(&umem, load.ifindex)?;
        let to_template = |&to| Template::new(load, to);
        let templates: Vec<_> = load.destinations.iter().map(to_template).collect();
        let filler = frame::filler(load.payload_len);
        for frame in &mut free {
            let headers = templates[0].headers.len();
            if frame.set(headers, filler.len()) {
                umem.bytes_mut(frame).copy_from_slice(&filler);
            }
        }
        Ok(Self {
            umem,
            socket,
            templates,
            free,
            burst: Vec::with_capacity(load.burst),
        })
    }

    /// Moves frames for as many headers as there are into the burst, written.
    fn write(&mut self, headers: &[Header]) {
        let at = self.free.len() - headers.len().min(self.free.len());
        self.burst.extend(self.free.drain(at..));
        for (frame, header) in self.burst.iter_mut().zip(headers) {
            let template = &self.templates[header.flow as usize];
            if frame.set(0, template.frame_len()) {
                template.write(header, self.umem.bytes_mut(frame));
            }
        }
    }

    /// Asks until the kernel has taken everything.
    fn push_out(&mut self) -> Rest {
        let mut since = None;
        loop {
            match self.socket.kick() {
                Ok(Kick::Done) => return Rest::Nothing,
                Ok(Kick::Again | Kick::Dropped) => {
                    self.socket.complete(&mut self.free);
                    if self.socket.unsent() == 0 {
                        return Rest::Nothing;
                    }
                    let since: Instant = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() > STUCK {
                        return Rest::NoRoom;
                    }
                }
                Err(error) => return Rest::Failed(error),
            }
        }
    }
}

impl Transmit for Sender {
    fn send(&mut self, headers: &[Header]) -> Taken {
        self.socket.complete(&mut self.free);
        self.write(headers);
        let packets = self.socket.send(&mut self.burst);
        self.free.append(&mut self.burst);
        let rest = match self.push_out() {
            Rest::Nothing if packets < headers.len() => Rest::NoRoom,
            rest => rest,
        };
        Taken { packets, rest }
    }

    fn finish(&mut self) -> u64 {
        let deadline = Instant::now() + STUCK;
        while self.free.len() < FRAMES as usize && Instant::now() < deadline {
            self.push_out();
            self.socket.complete(&mut self.free);
        }
        (FRAMES as usize - self.free.len()) as u64
    }
}
