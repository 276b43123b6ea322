//! The `af-xdp` data plane: threads forward frames that the driver hands them in shared memory, by
//! the tables of the CPU. Which frames may be forwarded at all is decided by bpf/steer.bpf.c.
//!
//! What cannot be forwarded after all is given back to the stack as if it had just come by its
//! device: by a run of a program in the kernel, so that addresses, rules and statistics of the device
//! are as ever. That takes some ten milliseconds, so what is known to be this host's never comes here.

mod back;
mod counters;
mod forwarder;
mod gate;
mod locals;
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
use crate::forward::{Compiler, Family, Forwarding, Plane, Rest};
use crate::gpu::backed::{self, Backed, Both, Decider, Fallen, Options};
use crate::image::Stored;
use crate::policy::{Policy, Restraint};
use crate::rules::Hits;
use back::Back;
use forwarder::{Forwarder, Setup};
use gate::Gate;
use locals::Locals;
use steering::Steering;
use thread::Thread;

pub use counters::{Counters, Given};

/// The longest frame that the kernel copies, with the headroom, into what `Back` gives it.
const LONGEST: usize = 3072;

/// The most packets that can be looked up together: as many as a queue holds.
pub const LARGEST: usize = forwarder::HELD;

/// How a plane is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPUs, or a device with them behind it.
    pub engine: Options,
    /// `Lpm`, or `Both` for rules as well.
    pub function: Function,
    /// Each with a queue of every device, on a CPU of its own.
    pub threads: usize,
    /// The most packets that are looked up together.
    pub batch: usize,
    /// How long the first of them waits for others.
    pub wait: Duration,
    /// Of the hash by which flows are shared out among the members of a group.
    pub seed: u64,
}

/// A running one, in copy mode, which every driver with native XDP has. Dropping it detaches it. It
/// belongs on threads of the network namespace that it was started in.
#[derive(Debug)]
pub struct AfXdp {
    /// None while another plane has the devices, which this one is to take over.
    road: Option<Road>,
    settings: Settings,
    tables: Backed,
    locals: Locals,
    restraint: Restraint,
}

/// The way that frames take, whatever the tables.
#[derive(Debug)]
struct Road {
    /// First, so that it is dropped first: no frame is steered to threads that are going.
    attached: Attachments,
    devices: Vec<Link>,
    threads: Vec<Thread>,
    back: Back,
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
        let mut plane = Self::aside(settings, contents, None)?;
        plane.open(devices)?;
        Ok(plane)
    }

    /// A plane without devices: [`AfXdp::open`] opens some, or [`AfXdp::take_over`] takes another's. With
    /// an image, whose routes are those of `contents`, its arrays are restored.
    ///
    /// # Errors
    /// As `start`, of the tables.
    pub fn aside(
        settings: &Settings,
        contents: Contents,
        image: Option<&Stored>,
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
            Some(image) => Backed::restore(image, contents, &settings.engine),
            None => Backed::setup(contents, &settings.engine),
        };
        Ok(Self {
            road: None,
            settings: settings.clone(),
            tables: tables.map_err(unavailable)?,
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
        let back = Back::start()?;
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
            let forwarder =
                Forwarder::open(self.lookup()?, setup, &devices, &steering, back.giver())?;
            threads.push(Thread::start(forwarder, cpus.get(number).copied())?);
        }
        let road = Road {
            attached: Attachments::new(program, Hook::Xdp(XdpMode::Native)),
            devices,
            threads,
            back,
            steering,
            gate,
        };
        road.restrain(&self.restraint)?;
        self.road = Some(road);
        Ok(())
    }

    /// Takes in what comes by its devices.
    ///
    /// # Errors
    /// A device that the program cannot be attached to.
    pub fn listen(&mut self) -> Result<(), Error> {
        if let Some(road) = &mut self.road {
            for device in &road.devices {
                let attached = road.attached.attach(device.index);
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
        let Some(road) = &before.road else {
            return Ok(());
        };
        let lookups = road.threads.iter().map(|_| self.lookup());
        let lookups: Vec<Decider> = lookups.collect::<Result<_, _>>()?;
        if let Err(error) = self.locals.take_over(&mut before.locals) {
            // What was told already leaves to the stack what is the stack's.
            before.locals.connect(&road.steering)?;
            return Err(error);
        }
        let threads = road.threads.iter().zip(lookups);
        let told: Vec<_> = threads
            .map(|(thread, lookup)| thread.look_up_by(lookup))
            .collect();
        for when in told {
            // An error says that the thread has ended, which is seen by `failed`.
            let _done = when.recv();
        }
        self.restraint = std::mem::take(&mut before.restraint);
        self.road = before.road.take();
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
        let road = self.road.as_mut();
        road.map_or_else(Vec::new, |road| road.attached.reattach())
    }

    /// What other programs have detached the program from.
    pub fn detachments(&self) -> Vec<Detachment> {
        let road = self.road.as_ref();
        road.map_or_else(Vec::new, |road| road.attached.detachments())
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
        let road = self.road.as_ref();
        road.map_or(Ok(()), |road| road.restrain(&self.restraint))
    }

    /// What became of the frames so far. While they come, those on their way are missing.
    ///
    /// # Errors
    /// The kernel's, of reading them.
    pub fn counters(&self) -> Result<Counters, Error> {
        let road = self.road.as_ref();
        road.map_or_else(|| Ok(Counters::default()), Road::counters)
    }

    /// As [`Tables::hits`].
    pub fn hits(&self) -> [Hits; 2] {
        self.tables.hits()
    }

    /// What CPUs did in a device's place, if it was lost.
    pub fn fallen(&self) -> Option<Fallen> {
        self.tables.fallen()
    }

    /// Why it forwards no more, if a thread has ended.
    pub fn failed(&self) -> Option<String> {
        let mut threads = self.road.iter().flat_map(|road| &road.threads);
        let dead = threads.find(|thread| thread.is_dead())?;
        let ended = || "a thread of the af-xdp data plane has ended".to_owned();
        Some(dead.why().unwrap_or_else(ended))
    }

    /// Detaches, forwards what has come, and returns what became of all frames.
    ///
    /// # Errors
    /// As `counters`.
    pub fn stop(mut self) -> Result<Counters, Error> {
        if let Some(road) = &mut self.road {
            road.attached.clear();
            netdev::grace::wait()
                .map_err(|error| Error::failed("waiting for the steering program to end", error))?;
            road.threads.iter_mut().for_each(Thread::stop);
            road.back.stop();
        }
        self.counters()
    }

    fn lookup(&self) -> Result<Decider, Error> {
        let lookup = self.tables.processor(self.settings.function);
        lookup.map_err(unavailable)
    }
}

impl Road {
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
        self.back.count(&mut counters);
        Ok(counters)
    }
}

/// Devices that frames can come and leave by.
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
        if link.mtu as usize + 18 > LONGEST {
            let most = LONGEST - 18;
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
    type Compiled = Both;

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

    fn compiler(&self) -> Compiler<Both, Error> {
        let compile = self.tables.compiler();
        Box::new(|rules| compile(rules).map_err(refused))
    }

    fn enforce(&mut self, both: Both) -> Result<Rest, Error> {
        self.tables.enforce(both).map_err(refused)
    }
}

fn refused(error: backed::Error) -> Error {
    Error::failed("changing the rules", error)
}

/// Why there are no tables, or none for another thread.
fn unavailable(error: backed::Error) -> Error {
    use crate::gpu::Error as Device;
    match error {
        backed::Error::Device(Device::Device(gpu::Error::Missing(missing))) => missing.into(),
        backed::Error::Device(
            error @ (Device::Device(gpu::Error::NoDevice { .. })
            | Device::Options(_)
            | Device::Width { .. }),
        ) => Error::Plan(error.to_string()),
        error => Error::failed("making the tables", error),
    }
}
