//! The `xdp` data plane: the driver forwards what it can before the network stack has seen the
//! frame, and leaves the rest to the kernel. Which is which is decided by bpf/router.bpf.c.

mod attachments;
mod counters;
mod devices;
mod entries;
mod error;
mod filter;
mod gates;
mod hops;
mod load;
mod slots;
mod tables;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use bpf::{Map, PerCpu};
use datapath::Detachment;
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{Link, Program};
use lpm::{Layout4, NextHop, Prefix4, Prefix6, Rib};
use netdev::requirement::{self, Requirement};
use netdev::{XdpMode, grace};
use sys::caps::Capability;

pub use counters::{Counters, End, MonotonicCounters, Traffic};
pub use error::Error;
pub use filter::Lists;
pub use tables::min_memory;

use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane};
use crate::image::ImageFile;
use crate::policy::{Place, Policy};
use crate::rules::Hits;
use crate::shape::Shape;
use crate::skel::router::types;
use attachments::Attachments;
use devices::Devices;
use filter::Filter;
use gates::Gates;
use hops::Hops;
use tables::Tables;

/// How a plane is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `Native` or `Generic`.
    pub mode: XdpMode,
    /// `Bytes` for at most 254 IPv4 next hops; any other is `Mixed`, which has room for all.
    pub layout4: Layout4,
    /// Room for prefixes: so many times what the first ones need.
    pub growth: usize,
    /// Leaves packets to the kernel whose source is an address of this host, which it drops.
    pub check_source: bool,
    /// Neighbours there is room for.
    pub neighbours: u32,
    /// Groups there is room for.
    pub groups: u32,
    /// Of the hash by which flows are shared out among the members of a group.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: XdpMode::Native,
            layout4: Layout4::Mixed,
            growth: 2,
            check_source: true,
            neighbours: 1 << 16,
            groups: 1 << 10,
            seed: 0,
        }
    }
}

/// Where packets for the router come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// The device that frames come by; of a VLAN device, the lowest one.
    pub ifindex: u32,
    /// The VLAN ids that frames have, outermost first; 0 for none.
    pub tags: [u16; 2],
    /// The link-layer address that they are for.
    pub mac: [u8; 6],
}

/// A running one. Dropping it detaches it. Its methods belong on threads of the network namespace that
/// it was started in.
#[derive(Debug)]
pub struct Xdp {
    /// First, so that it is dropped first: no frame is sent by tables that are going.
    attached: Attachments,
    /// They see what is lost of what was sent.
    _traces: [Link; 2],
    gates: Gates,
    tables: Tables,
    hops: Hops,
    devices: Devices,
    filter: Filter,
    counters: PerCpu<types::ends>,
    /// What became of frames by the planes that this one took over from.
    before: Counters,
    program: OwnedFd,
}

/// What it needs of a machine.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement::Capabilities(&[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon]),
    Requirement::TypeInformation,
];

/// Until no CPU runs the program with what it was given before.
fn wait() -> Result<(), Error> {
    grace::wait().map_err(Error::kernel("waiting for the CPUs to leave the program"))
}

/// Returns when the kernel is done with every frame that the program has sent until now: what it lost of
/// them is counted. Takes milliseconds.
pub fn settle() {
    wait_or_sleep();
}

/// As `wait`. The kernel refuses for want of memory alone; then it waits for longer than a program may run.
fn wait_or_sleep() {
    if let Err(error) = wait() {
        tracing::warn!(%error, "waiting a second instead");
        thread::sleep(Duration::from_secs(1));
    }
}

/// Loads a plane with these routes, attached nowhere yet: [`Xdp::listen`] does that once next hops have
/// their meanings.
///
/// # Errors
/// What this machine lacks; routes that there is no room for.
pub fn start(settings: &Settings, v4: Rib<u32>, v6: Rib<u128>) -> Result<Xdp, Error> {
    with(settings, v4, v6, None)
}

/// As `start`, with the arrays of an image, whose routes these are, instead of arrays made of them.
///
/// # Errors
/// As `start`; content that no table has.
pub fn restore(
    settings: &Settings,
    image: &ImageFile,
    v4: Rib<u32>,
    v6: Rib<u128>,
) -> Result<Xdp, Error> {
    with(settings, v4, v6, Some(image))
}

fn with(
    settings: &Settings,
    v4: Rib<u32>,
    v6: Rib<u128>,
    image: Option<&ImageFile>,
) -> Result<Xdp, Error> {
    requirement::check(REQUIREMENTS)?;
    let shape = Shape::of(tables::layout4(settings), settings.growth, &v4, &v6)?;
    let mut storage = MaybeUninit::uninit();
    let skel = load::load(&mut storage, settings, &shape)?;
    let (maps, progs) = (&skel.maps, &skel.progs);
    let program = bpf::program(&progs.route_frame)?;
    let id = Program::id_from_fd(program.as_fd())
        .map_err(Error::kernel("asking for the program's id"))?;
    Map::<u32, u32>::new(&maps.own)?.set(&0, &id)?;
    Ok(Xdp {
        attached: Attachments::new(
            program.try_clone().map_err(Error::Descriptor)?,
            settings.mode,
            Map::new(&maps.attached)?,
        ),
        _traces: [
            load::trace(&progs.frames_left)?,
            load::trace(&progs.frame_refused)?,
        ],
        gates: Gates::new(Map::new(&maps.ports)?, Map::new(&maps.pairs)?),
        tables: Tables::build(&shape, (v4, v6), image, skel.object())?,
        filter: Filter::new(&skel)?,
        hops: Hops::new(settings, &skel)?,
        devices: Devices::new(Map::new(&maps.devices)?, settings.mode),
        counters: PerCpu::new(&maps.counters)?,
        before: Counters::default(),
        program,
    })
}

impl Xdp {
    /// `xdp`.
    pub const NAME: &'static str = "xdp";

    /// Takes in what comes by these ports, and nothing else: attaches to their devices, and detaches from
    /// others.
    ///
    /// # Errors
    /// A device that it cannot be attached to; too many ports.
    pub fn listen(&mut self, ports: &[Port]) -> Result<(), Error> {
        self.gates.open(ports)?;
        self.attached
            .follow(&ports.iter().map(|port| port.ifindex).collect())
    }

    /// What became of the frames so far.
    ///
    /// # Errors
    /// The kernel's, of reading them.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut counters = Counters::read(&self.counters)?;
        counters.add(&self.before);
        Ok(counters)
    }

    /// Handles what comes by the ports of `before`, at once: each frame meets one of both from
    /// beginning to end. Both must know the same devices, and this one no ports.
    ///
    /// # Errors
    /// A device whose program cannot be replaced: `before` goes on then.
    pub fn take_over(&mut self, before: &mut Self) -> Result<(), Error> {
        self.gates.copy(&before.gates)?;
        self.filter.set_sole_filter(before.filter.sole_filter());
        self.attached.take_over(&mut before.attached)?;
        // Until then a frame may be counted there.
        wait_or_sleep();
        self.before = before.counters()?;
        Ok(())
    }

    /// Leaves to the kernel what this policy says, from the next packet on.
    ///
    /// # Errors
    /// More pairs than there is room for: nothing is forwarded then that the policy leaves to the kernel.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        self.gates.set_policy(policy)
    }

    /// Attaches the program again where another program has detached it, and returns what has changed.
    pub fn reattach(&mut self) -> Vec<Detachment> {
        self.attached.reattach()
    }

    /// What other programs have detached the program from.
    pub fn detachments(&self) -> Vec<Detachment> {
        self.attached.detachments()
    }

    /// Says of which IP versions the kernel lacks rules that drop packets: what may fall under one of these and cannot be
    /// asked about here is dropped from now on.
    pub fn set_sole_filter(&mut self, sole_filter: [bool; 2]) {
        self.filter.set_sole_filter(sole_filter);
    }

    /// How often each rule matched since the rules were set: of IPv4's list, and of IPv6's. Rules are
    /// asked about what is to be forwarded, not about what is for this host.
    pub fn hits(&self) -> [Hits; 2] {
        self.filter.hits()
    }

    /// The prefixes it routes by.
    pub fn routes(&self) -> (&Rib<u32>, &Rib<u128>) {
        self.tables.ribs()
    }

    /// The loaded program: for runs on frames that it is given.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Detaches, and returns what became of all frames.
    ///
    /// # Errors
    /// As `counters`.
    pub fn stop(mut self) -> Result<Counters, Error> {
        self.attached.clear();
        self.counters()
    }
}

impl Port {
    fn key(&self) -> (u32, [u16; 2]) {
        (self.ifindex, self.tags)
    }

    fn place(&self) -> Place {
        Place {
            ifindex: self.ifindex,
            vlan: Some(self.tags[0]).filter(|vlan| *vlan != 0),
        }
    }
}

impl Plane for Xdp {
    type Error = Error;
    type RuleTables = Lists;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.tables.route4(prefix, hop)
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        self.tables.route6(prefix, hop)
    }

    fn next_hop(&mut self, family: Family, hop: NextHop, to: &Forwarding) -> Result<(), Error> {
        if let Forwarding::Neighbour(adjacency) = to {
            self.devices.send_by(adjacency.ifindex)?;
        }
        self.hops.set(family, hop, to)
    }

    fn withhold(&mut self, family: Family, on: bool) -> Result<(), Error> {
        self.gates.withhold(family, on)
    }

    fn compiler(&self) -> Compiler<Lists, Error> {
        let cpus = self.filter.cpus();
        Box::new(move |rules| Lists::build(rules, cpus))
    }

    fn enforce(&mut self, lists: Lists) -> Result<Cleanup, Error> {
        self.filter.set(lists)
    }
}
