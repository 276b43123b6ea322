//! A running impaired link: its two AF_XDP sockets and its thread.

use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use bpf::Map;
use libbpf_rs::OpenObject;
use netdev::XdpMode;
use netdev::attach::{self, Attachment};
use xsk::{Bind, Mode, Pump};

use super::Impairment;
use super::forwarder::Forwarder;
use super::schedule::Schedule;
use crate::error::Error;

/// Frames that can be under way at once, both directions together.
const FRAMES: u32 = 8192;
const FRAME_SIZE: u32 = 2048;
/// The frames that one port holds to receive into: as many as two of its rings have room for.
const RECEIVING: usize = 4096;

bpf::skeleton!(mod skel = "to_socket");

use skel::{ToSocketSkel, ToSocketSkelBuilder};

/// A running link. Dropping it stops it; frames that wait are lost.
#[derive(Debug)]
pub(crate) struct ImpairedLink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _attached: [Attachment; 2],
}

impl ImpairedLink {
    /// Joins two devices of the calling thread's namespace.
    pub(crate) fn start(
        link: &str,
        ports: [u32; 2],
        impairment: Impairment,
    ) -> Result<Self, Error> {
        let failed = |what: String| Error::Impaired {
            link: link.to_owned(),
            what,
        };
        let mut pump = Pump::new(FRAMES, FRAME_SIZE).map_err(|error| failed(error.to_string()))?;
        let mut attach =
            |port| attach_port(&mut pump, port).map_err(|error| failed(error.to_string()));
        let attached = [attach(ports[0])?, attach(ports[1])?];
        let stop = Arc::new(AtomicBool::new(false));
        let schedules = [0, 1].map(|direction| Schedule::new(impairment, direction));
        let mut forwarder = Forwarder::new(pump, schedules);
        let stopped = Arc::clone(&stop);
        let name = link.to_owned();
        let thread = thread::Builder::new()
            .name("impaired-link".into())
            .spawn(move || {
                if let Err(error) = forwarder.run(&stopped) {
                    tracing::error!("link {name}: {error}");
                }
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            stop,
            thread: Some(thread),
            _attached: attached,
        })
    }
}

impl Drop for ImpairedLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of an impaired link had panicked");
        }
    }
}

type Failure = Box<dyn std::error::Error>;

/// Opens a port that gets everything that arrives at a device.
fn attach_port(pump: &mut Pump, device: u32) -> Result<Attachment, Failure> {
    let port = pump.open(Bind::new(device, 0, Mode::Copy))?;
    pump.set_quota(port, RECEIVING);
    let mut storage = MaybeUninit::uninit();
    let skel = load(&mut storage)?;
    Map::<u32, i32>::new(&skel.maps.sockets)?.set_descriptor(&0, &pump.ports[port])?;
    let program = skel.progs.to_socket.as_fd();
    Ok(attach::xdp(program, device, XdpMode::Native)?)
}

fn load(storage: &mut MaybeUninit<OpenObject>) -> Result<ToSocketSkel<'_>, bpf::Error> {
    let builder = ToSocketSkelBuilder::default();
    bpf::load(builder, storage, "the program of a link's port", |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_loads() {
        if !sys::require::root() {
            return;
        }
        let mut storage = MaybeUninit::uninit();
        load(&mut storage).unwrap();
    }
}
