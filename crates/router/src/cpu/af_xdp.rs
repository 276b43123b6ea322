//! The `af-xdp` data plane: threads receive frames from the driver in shared memory, and forward them by the
//! CPU's tables. bpf/steer.bpf.c selects the frames.
//!
//! Frames that threads cannot forward are reinjected into the network stack as if they had just been
//! received, so that addresses, rules and statistics of the device apply. A reinjection takes about ten
//! milliseconds, so the steering program passes packets for this host to the stack itself.

mod counters;
mod forwarder;
mod gate;
mod locals;
mod reinject;
mod steering;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use datapath::{Detachment, Error};
use lpm::{NextHop, Prefix4, Prefix6};
use netdev::requirement::{self, Requirement};
use netdev::{Attachments, Hook, Link, Netlink, XdpMode};
use sys::caps::Capability;

use crate::engine::{Contents, Engine, Function};
use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane};
use crate::gpu::cpu_fallback::{
    self, FallbackLists, FallbackProcessor, FallbackStatus, FallbackTables, Options,
};
use crate::image::ImageFile;
use crate::policy::{Policy, Restraint};
use crate::rules::Hits;
use forwarder::{Forwarder, Setup};
use gate::Gate;
use locals::Locals;
use reinject::Reinjector;
use steering::Steering;
use thread::Thread;

pub use counters::{Counters, PuntReason};

/// The longest frame that the kernel copies, with its headroom, when `Reinjector` reinjects it.
const MAX_FRAME_LEN: usize = 3072;

/// The largest batch: the number of frames that a queue holds.
pub const MAX_BATCH: usize = forwarder::RX_FRAMES;

/// Settings of a plane.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPUs, or a device with CPU fallback.
    pub engine: Options,
    /// `Lpm`, or `Both` for rules as well.
    pub function: Function,
    /// Number of threads. Each has a queue of every device, and a CPU of its own.
    pub threads: usize,
    /// Maximum number of packets in a batch.
    pub batch: usize,
    /// How long the first packet of a batch waits for others.
    pub wait: Duration,
    /// Seed of the hash that distributes flows among the members of a group.
    pub seed: u64,
}

/// A running one, in copy mode, which every driver with native XDP has. Dropping it detaches it. It
/// belongs on threads of the network namespace that it was started in.
#[derive(Debug)]
pub struct AfXdp {
    /// None until devices are opened, or taken over from another plane.
    path: Option<ForwardingPath>,
    settings: Settings,
    tables: FallbackTables,
    locals: Locals,
    restraint: Restraint,
}

/// The sockets, programs and threads that forward frames, whatever the tables.
#[derive(Debug)]
struct ForwardingPath {
    /// Dropped first, so that no frame is steered to threads that end.
    attached: Attachments,
    devices: Vec<Link>,
    threads: Vec<Thread>,
    reinjector: Reinjector,
    steering: Steering,
    gate: Arc<Gate>,
}

/// What it needs of a machine.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin, Capability::NetRaw]),
    Requirement::AfXdp,
];

impl AfXdp {
    /// `af-xdp`.
    pub const NAME: &'static str = "af-xdp";

    /// A plane that forwards among these devices, attached nowhere yet: [`AfXdp::listen`] does that once
    /// next hops have their meanings.
    ///
    /// # Errors
    /// What this machine or a device lacks; contents that the tables do not hold.
    pub fn start(settings: &Settings, contents: Contents, devices: &[u32]) -> Result<Self, Error> {
        let mut plane = Self::detached(settings, contents, None)?;
        plane.open(devices)?;
        Ok(plane)
    }

    /// A plane without devices: [`AfXdp::open`] opens some, or [`AfXdp::take_over`] takes another's. With
    /// an image, whose routes are those of `contents`, its arrays are restored.
    ///
    /// # Errors
    /// As `start`, of the tables.
    pub fn detached(
        settings: &Settings,
        contents: Contents,
        image: Option<&ImageFile>,
    ) -> Result<Self, Error> {
        requirement::check(REQUIREMENTS)?;
        if !settings.function.routes() {
            let what = "af-xdp forwards by routes: the function is lpm or both";
            return Err(Error::Plan(what.to_owned()));
        }
        let mut locals = Locals::new();
        for (prefix, hop) in &contents.v4 {
            locals.route4(prefix, Some(hop))?;
        }
        for (prefix, hop) in &contents.v6 {
            locals.route6(prefix, Some(hop))?;
        }
        let tables = match image {
            Some(image) => FallbackTables::restore(image, contents, &settings.engine),
            None => FallbackTables::setup(contents, &settings.engine),
        };
        Ok(Self {
            path: None,
            settings: settings.clone(),
            tables: tables.map_err(tables_error)?,
            locals,
            restraint: Restraint::default(),
        })
    }

    /// Opens devices to forward among.
    ///
    /// # Errors
    /// What this machine or a device lacks.
    pub fn open(&mut self, devices: &[u32]) -> Result<(), Error> {
        let count = self.settings.threads;
        let devices = links(devices, count)?;
        let (steering, program) = Steering::load()?;
        self.locals.connect(&steering)?;
        let reinjector = Reinjector::start()?;
        let gate = Arc::new(Gate::new(devices.iter().map(|device| device.index)));
        let cpus = sys::sched::allowed_cpus().unwrap_or_default();
        let mut threads = Vec::new();
        for number in 0..count {
            let setup = Setup {
                batch: self.settings.batch,
                wait: self.settings.wait,
                seed: self.settings.seed,
                queues: (number, count),
                gate: Arc::clone(&gate),
            };
            let forwarder = Forwarder::open(
                self.lookup()?,
                setup,
                &devices,
                &steering,
                reinjector.sender(),
            )?;
            threads.push(Thread::start(forwarder, cpus.get(number).copied())?);
        }
        let path = ForwardingPath {
            attached: Attachments::new(program, Hook::Xdp(XdpMode::Native)),
            devices,
            threads,
            reinjector,
            steering,
            gate,
        };
        path.restrain(&self.restraint)?;
        self.path = Some(path);
        Ok(())
    }

    /// Takes in what comes by its devices.
    ///
    /// # Errors
    /// A device that the program cannot be attached to.
    pub fn listen(&mut self) -> Result<(), Error> {
        if let Some(path) = &mut self.path {
            for device in &path.devices {
                let attached = path.attached.attach(device.index);
                let failed = |error| Error::failed("attaching the af-xdp data plane", error);
                attached.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Decides about what comes by the devices of `before`, from each thread's next batch on; when it
    /// returns, all do. Both have the same settings.
    ///
    /// # Errors
    /// No room: `before` goes on then.
    pub fn take_over(&mut self, before: &mut Self) -> Result<(), Error> {
        let Some(path) = &before.path else {
            return Ok(());
        };
        let lookups = path.threads.iter().map(|_| self.lookup());
        let lookups: Vec<FallbackProcessor> = lookups.collect::<Result<_, _>>()?;
        if let Err(error) = self.locals.take_over(&mut before.locals) {
            // The map may have changed in part: restore the addresses of `before`.
            before.locals.connect(&path.steering)?;
            return Err(error);
        }
        let threads = path.threads.iter().zip(lookups);
        let switched: Vec<_> = threads
            .map(|(thread, lookup)| thread.look_up_by(lookup))
            .collect();
        for when in switched {
            // An error says that the thread has ended, which is seen by `failed`.
            let _done = when.recv();
        }
        self.restraint = std::mem::take(&mut before.restraint);
        self.path = before.path.take();
        Ok(())
    }

    /// Leaves to the kernel what this policy says, from the next packet on.
    ///
    /// # Errors
    /// The kernel's, of telling the program.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        self.restraint.policy = Some(policy);
        self.restrain()
    }

    /// Attaches the program again where another program has detached it, and returns what has changed.
    pub fn reattach(&mut self) -> Vec<Detachment> {
        let path = self.path.as_mut();
        path.map_or_else(Vec::new, |path| path.attached.reattach())
    }

    /// What other programs have detached the program from.
    pub fn detachments(&self) -> Vec<Detachment> {
        let path = self.path.as_ref();
        path.map_or_else(Vec::new, |path| path.attached.detachments())
    }

    /// Says of which IP versions the kernel lacks rules that drop packets: what may fall under one of these and cannot be
    /// asked about here is dropped from now on.
    ///
    /// # Errors
    /// As [`AfXdp::set_policy`].
    pub fn set_sole_filter(&mut self, sole_filter: [bool; 2]) -> Result<(), Error> {
        self.restraint.sole_filter = sole_filter;
        self.restrain()
    }

    fn restrain(&self) -> Result<(), Error> {
        let path = self.path.as_ref();
        path.map_or(Ok(()), |path| path.restrain(&self.restraint))
    }

    /// What became of the frames so far. While they come, those on their way are missing.
    ///
    /// # Errors
    /// The kernel's, of reading them.
    pub fn counters(&self) -> Result<Counters, Error> {
        let path = self.path.as_ref();
        path.map_or_else(|| Ok(Counters::default()), ForwardingPath::counters)
    }

    /// As [`Tables::hits`].
    pub fn hits(&self) -> [Hits; 2] {
        self.tables.hits()
    }

    /// What CPUs did in a device's place, if it was lost.
    pub fn fallback_status(&self) -> Option<FallbackStatus> {
        self.tables.fallback_status()
    }

    /// Why it forwards no more, if a thread has ended.
    pub fn failed(&self) -> Option<String> {
        let mut threads = self.path.iter().flat_map(|path| &path.threads);
        let dead = threads.find(|thread| thread.is_dead())?;
        let ended = || "a thread of the af-xdp data plane has ended".to_owned();
        Some(dead.why().unwrap_or_else(ended))
    }

    /// Detaches, forwards what has come, and returns what became of all frames.
    ///
    /// # Errors
    /// As `counters`.
    pub fn stop(mut self) -> Result<Counters, Error> {
        if let Some(path) = &mut self.path {
            path.attached.clear();
            netdev::grace::wait()
                .map_err(|error| Error::failed("waiting for the steering program to end", error))?;
            path.threads.iter_mut().for_each(Thread::stop);
            path.reinjector.stop();
        }
        self.counters()
    }

    fn lookup(&self) -> Result<FallbackProcessor, Error> {
        let lookup = self.tables.processor(self.settings.function);
        lookup.map_err(tables_error)
    }
}

impl ForwardingPath {
    fn restrain(&self, restraint: &Restraint) -> Result<(), Error> {
        self.gate.set(restraint);
        for device in &self.devices {
            self.steering.device(device, restraint)?;
        }
        Ok(())
    }

    fn counters(&self) -> Result<Counters, Error> {
        let mut counters = Counters::default();
        [counters.seen, counters.steered, counters.unfiltered] = self.steering.counts()?;
        for thread in &self.threads {
            counters.merge(&thread.counters());
        }
        self.reinjector.count(&mut counters);
        Ok(counters)
    }
}

/// Looks up the devices, and checks that they can be used.
fn links(devices: &[u32], threads: usize) -> Result<Vec<Link>, Error> {
    let failed = |error| Error::failed("asking for a device", error);
    let mut netlink = Netlink::new().map_err(failed)?;
    let mut links = Vec::new();
    for index in devices {
        let link = netlink.link_by_index(*index).map_err(failed)?;
        let name = &link.name;
        if !link.ethernet || link.loopback {
            return Err(Error::Plan(format!("{name} is not an Ethernet device")));
        }
        if link.mtu as usize + 18 > MAX_FRAME_LEN {
            let most = MAX_FRAME_LEN - 18;
            let what = format!(
                "{name}: af-xdp holds packets of up to {most} bytes; its MTU is {}",
                link.mtu
            );
            return Err(Error::Plan(what));
        }
        let queues = link.rx_queues.min(link.tx_queues).max(1) as usize;
        if threads > queues {
            let what =
                format!("{name} has {queues} queues, and each of {threads} threads needs one");
            return Err(Error::Plan(what));
        }
        links.push(link);
    }
    Ok(links)
}

impl Plane for AfXdp {
    type Error = Error;
    type RuleTables = FallbackLists;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        let changed = self.tables.route4(prefix, hop);
        changed.map_err(|error| Error::failed("changing a route", error))?;
        self.locals.route4(prefix, hop)
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        let changed = self.tables.route6(prefix, hop);
        changed.map_err(|error| Error::failed("changing a route", error))?;
        self.locals.route6(prefix, hop)
    }

    /// A device that it does not send by is left to the kernel.
    fn next_hop(&mut self, family: Family, hop: NextHop, to: &Forwarding) -> Result<(), Error> {
        let changed = self.tables.next_hop(family, hop, to);
        changed.map_err(|error| Error::failed("changing a next hop", error))?;
        self.locals.next_hop(family, hop, to)
    }

    fn withhold(&mut self, family: Family, on: bool) -> Result<(), Error> {
        self.restraint.withhold(family, on);
        self.restrain()
    }

    fn compiler(&self) -> Compiler<FallbackLists, Error> {
        let compile = self.tables.compiler();
        Box::new(|rules| compile(rules).map_err(rules_error))
    }

    fn enforce(&mut self, lists: FallbackLists) -> Result<Cleanup, Error> {
        self.tables.enforce(lists).map_err(rules_error)
    }
}

fn rules_error(error: cpu_fallback::Error) -> Error {
    Error::failed("changing the rules", error)
}

/// The error for tables that cannot be built, or not for another thread.
fn tables_error(error: cpu_fallback::Error) -> Error {
    use crate::gpu::Error as Device;
    match error {
        cpu_fallback::Error::Device(Device::Device(gpu::Error::Missing(missing))) => missing.into(),
        cpu_fallback::Error::Device(
            error @ (Device::Device(gpu::Error::NoDevice { .. })
            | Device::Options(_)
            | Device::Width { .. }),
        ) => Error::Plan(error.to_string()),
        error => Error::failed("making the tables", error),
    }
}
