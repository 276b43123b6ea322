//! Packet sockets that share a device's frames. Each flow is assigned to one socket and thus to one worker.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU16, Ordering};

use datapath::Error;
use netdev::Netlink;
use netdev::requirement::Requirement;
use sys::caps::Capability;
use sys::capture::{Capture, Socket};

use super::frame_reader::{FrameReader, Source};
use super::{Direction, Plan};
use crate::kernel::chooser;

/// A source that reads from a packet socket.
pub(super) trait Member: Source {
    fn open(capture: &Capture) -> io::Result<Self>
    where
        Self: Sized;

    fn socket(&self) -> &Socket;
}

/// Opens the sources for all workers of a plan.
pub(super) fn open<S: Member>(plan: &Plan, best: usize) -> Result<Vec<FrameReader<S>>, Error> {
    let workers = plan.workers(best);
    let capture = Capture {
        ifindex: plan.ifindex,
        outgoing: plan.direction == Direction::Both,
        promiscuous: plan.promiscuous,
        fanout: (workers > 1).then(group),
    };
    let refused = |error| Error::failed(plan.interface.clone(), error);
    let sources: io::Result<Vec<S>> = (0..workers).map(|_| S::open(&capture)).collect();
    let sources = sources.map_err(refused)?;
    if workers > 1 {
        share(plan, &sources)?;
    }
    let options = plan.part(workers);
    let framed = |source| FrameReader::new(source, plan, &options);
    Ok(sources.into_iter().map(framed).collect())
}

/// The requirements for several workers that share frames.
const SHARED: Requirement = Requirement::Else(
    &Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin]),
    "use --workers 1",
);

/// A group id that is unique in the network namespace, so that another process does not join the group by accident.
fn group() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() & 0xffff).unwrap_or(0);
    process.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(257))
}

/// Attaches the program that selects a socket for each frame, then starts receiving.
fn share(plan: &Plan, sources: &[impl Member]) -> Result<(), Error> {
    SHARED.check()?;
    let refused = |error| Error::failed(format!("{}: sharing frames", plan.interface), error);
    let options = plan.schema.options(&plan.options);
    let program = chooser(super::is_raw(hardware(plan)?), &options)?;
    if let Some(first) = sources.first() {
        first
            .socket()
            .set_chooser(program.as_fd())
            .map_err(refused)?;
    }
    let opened = sources
        .iter()
        .map(|source| source.socket().open_to_frames());
    opened.collect::<io::Result<()>>().map_err(refused)
}

/// The hardware type of the plan's device.
pub(super) fn hardware(plan: &Plan) -> Result<u16, Error> {
    let link = Netlink::new().and_then(|mut netlink| netlink.link_by_index(plan.ifindex));
    let link = link.map_err(|error| Error::failed(plan.interface.clone(), error))?;
    Ok(link.hardware)
}
