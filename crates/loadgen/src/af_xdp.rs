//! The AF_XDP back end: frames written in shared memory, past queueing disciplines and tc.

use std::time::{Duration, Instant};

use packet::payload::Header;
use xsk::{Bind, Mode, Pump};

use crate::engine::{BurstResult, Remainder, Transmit};
use crate::frame::{self, Template};
use crate::{Error, Load};

const FRAMES: u32 = 4096;
/// A device that takes no frame for this long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Sender {
    pump: Pump,
    templates: Vec<Template>,
}

impl Sender {
    pub(crate) fn new(load: &Load) -> Result<Self, Error> {
        let frame_size = u32::try_from(frame::MAX).unwrap_or(u32::MAX);
        let mut pump = Pump::new(FRAMES, frame_size)?;
        pump.open(Bind::new(load.ifindex, 0, Mode::Copy))?;
        let to_template = |&to| Template::new(load, to);
        let templates: Vec<_> = load.destinations.iter().map(to_template).collect();
        let filler = frame::filler(load.payload_len);
        for frame in &mut pump.free {
            let headers = templates[0].headers.len();
            if frame.set(headers, filler.len()) {
                pump.umem.bytes_mut(frame).copy_from_slice(&filler);
            }
        }
        Ok(Self { pump, templates })
    }

    /// Stages frames for as many headers as there are frames for; returns how many.
    fn write(&mut self, headers: &[Header]) -> usize {
        let Pump {
            umem, ports, free, ..
        } = &mut self.pump;
        let count = headers.len().min(free.len());
        let frames = free.drain(free.len() - count..);
        for (mut frame, header) in frames.zip(headers) {
            let template = &self.templates[header.flow as usize];
            if frame.set(0, template.frame_len()) {
                template.write(header, umem.bytes_mut(&mut frame));
            }
            ports[0].stage(frame, ());
        }
        count
    }

    /// Asks until the kernel has taken everything: a generator waits where a forwarder drops.
    fn push_out(&mut self) -> Remainder {
        let mut since = None;
        loop {
            if let Err(error) = self.pump.offer(0, |(), _| {}) {
                return Remainder::Failed(error);
            }
            if !self.pump.is_waiting() {
                return Remainder::Nothing;
            }
            let since: Instant = *since.get_or_insert_with(Instant::now);
            if since.elapsed() > STALL_TIMEOUT {
                return Remainder::NoRoom;
            }
        }
    }
}

impl Transmit for Sender {
    fn send(&mut self, headers: &[Header]) -> BurstResult {
        self.pump.reclaim();
        let packets = self.write(headers);
        let rest = match self.push_out() {
            Remainder::Nothing if packets < headers.len() => Remainder::NoRoom,
            rest => rest,
        };
        BurstResult { packets, rest }
    }

    fn finish(&mut self) -> u64 {
        let deadline = Instant::now() + STALL_TIMEOUT;
        while self.pump.free.len() < FRAMES as usize && Instant::now() < deadline {
            self.push_out();
        }
        (FRAMES as usize - self.pump.free.len()) as u64
    }
}
