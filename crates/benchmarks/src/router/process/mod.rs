//! Packets through routes and rules: from memory or a socket for a time, or from a capture once.

mod capture;
mod measurement;
mod memory;
mod pace;
mod report;
mod socket;
mod targets;
mod threads;
mod timeline;
mod updates;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use process::shutdown::Shutdown;
use router::engine::Function;

use super::engine::{self, MeasuredEngine};
use super::{Dataset, traffic};
use crate::Error;

pub use measurement::Measurement;
pub use pace::Pace;
pub use report::{CaptureCounts, Datagrams, Report, TableSizes};
pub use timeline::{Span, Timeline};
pub use updates::RouteUpdates;

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    pub function: Function,
    pub engine: engine::Options,
    pub io: Io,
    /// Each runs on a CPU of its own.
    pub threads: NonZeroUsize,
    /// Packets that are looked up together.
    pub batch: usize,
    /// Of packets from memory or a socket.
    pub duration: Duration,
    pub pace: Pace,
    /// Route changes in a second, beside packets from memory or a socket.
    pub updates: Option<NonZeroU32>,
    /// Afterwards the device times batches of packets from memory or a socket.
    pub timeline: bool,
}

/// Where packets come from, and go.
#[derive(Clone, Debug)]
pub enum Io {
    /// Frames in memory, over and over; nothing is sent.
    Memory(traffic::Source),
    /// A capture, once. Forwarded packets are written to `out`, with the TTL decremented.
    Capture { path: PathBuf, out: Option<PathBuf> },
    /// Datagrams with a frame in each. Forwarded frames are sent to `to`, with the TTL decremented.
    Socket {
        listen: SocketAddr,
        to: Option<SocketAddr>,
    },
}

/// A run's options, and how it is stopped and announced.
struct Context<'a> {
    options: &'a Options,
    shutdown: &'a Shutdown,
    /// Called with the address once datagrams are received.
    ready: &'a dyn Fn(SocketAddr),
}

/// Runs until the packets or the duration are over, or shutdown is requested. `ready` is called with the
/// address of the socket, if there is one, once datagrams are received.
///
/// # Errors
/// Tables that the engine does not hold, input that cannot be read, more threads than CPUs.
pub fn run(
    dataset: Dataset,
    options: &Options,
    shutdown: &Shutdown,
    ready: &dyn Fn(SocketAddr),
) -> Result<Report, Error> {
    // The first call measures the clock for ten milliseconds, which no packet should wait for.
    sys::clock::ticks_per_ns();
    let context = Context {
        options,
        shutdown,
        ready,
    };
    match &options.engine {
        engine::Options::Cpu(cpu) => context.run(dataset, |dataset| {
            engine::on_cpus(dataset.contents, dataset.image.as_ref(), cpu)
        }),
        engine::Options::Device(device) => context.run(dataset, |dataset| {
            engine::on_device(dataset.contents, dataset.image.as_ref(), device)
        }),
        engine::Options::Fallback { cpu, device } => {
            context.run(dataset, |dataset| engine::fallback(dataset, cpu, device))
        }
    }
}

impl Context<'_> {
    fn run<E: MeasuredEngine>(
        &self,
        dataset: Dataset,
        build: impl FnOnce(Dataset) -> Result<E, Error>,
    ) -> Result<Report, Error> {
        let (options, shutdown) = (self.options, self.shutdown);
        match &options.io {
            Io::Memory(source) => memory::run(source, dataset, options, shutdown, build),
            Io::Capture { path, out } => {
                capture::run((path, out.as_deref()), dataset, options, shutdown, build)
            }
            Io::Socket { listen, to } => {
                let addresses = (*listen, *to);
                socket::run(addresses, dataset, (options, shutdown), self.ready, build)
            }
        }
    }
}
