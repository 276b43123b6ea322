//! A running impaired link: its two AF_XDP sockets and its thread.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use netdev::XdpMode;
use netdev::attach::{self, Attachment};
use sys::mmap::Pages;
use xsk::{Bind, Frame, Mode, Socket, Umem};

use super::Impairment;
use super::forwarder::Forwarder;
use super::schedule::Schedule;
use crate::error::Error;

/// Frames that can be under way at once, both directions together.
const FRAMES: u32 = 8192;
const FRAME_SIZE: u32 = 2048;

bpf::skeleton!(mod skel = "to_socket");

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
        let (umem, mut free) = Umem::new(FRAMES, FRAME_SIZE, 0, Pages::Ordinary)
            .map_err(|error| failed(error.to_string()))?;
        let mut attach =
            |port| attach_port(&umem, &mut free, port).map_err(|error| failed(error.to_string()));
        let ((near, near_program), (far, far_program)) = (attach(ports[0])?, attach(ports[1])?);
        let stop = Arc::new(AtomicBool::new(false));
        let schedules = [0, 1].map(|direction| Schedule::new(impairment, direction));
        let mut forwarder = Forwarder::new([near, far], schedules, free);
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
            _attached: [near_program, far_program],
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

/// A socket that gets everything that arrives at a device.
fn attach_port(
    umem: &Umem,
    free: &mut Vec<Frame>,
    port: u32,
) -> Result<(Socket, Attachment), Failure> {
    let mut socket = Socket::bind(umem, &Bind::new(port, 0, Mode::Copy))?;
    socket.fill(free);
    let mut storage = MaybeUninit::uninit();
    let skel = skel::ToSocketSkelBuilder::default()
        .open(&mut storage)?
        .load()?;
    let fd = socket.as_fd().as_raw_fd();
    skel.maps
        .sockets
        .update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
    let program = skel.progs.to_socket.as_fd();
    Ok((socket, attach::xdp(program, port, XdpMode::Native)?))
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
        let open = skel::ToSocketSkelBuilder::default().open(&mut storage);
        open.unwrap().load().unwrap();
    }
}
