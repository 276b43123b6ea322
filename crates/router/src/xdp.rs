//! The `xdp` data plane: the driver forwards what it can before the network stack has seen the
//! frame, and leaves the rest to the kernel. Which is which is decided by bpf/router.bpf.c.

mod attachments;
mod counters;
mod devices;
mod error;
mod filter;
mod grace;
mod hops;
mod layout;
mod object;
mod slots;
mod tables;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use datapath::Missing;
use libbpf_rs::MapHandle;
use lpm::{Layout4, NextHop, Prefix4, Prefix6, Rib};
use netdev::XdpMode;
use sys::caps::{Capability, Effective};

pub use counters::{Counters, End, Traffic};
pub use error::Error;
pub use filter::Hits;

use crate::forward::{Family, Forwarding, Plane};
use crate::rules::RuleSet;
use attachments::Attachments;
use devices::Devices;
use filter::Filter;
use grace::Grace;
use hops::Hops;
use object::Loaded;
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
    ports: Vec<Port>,
    port_map: MapHandle,
    tables: Tables,
    hops: Hops,
    devices: Devices,
    filter: Filter,
    counters: MapHandle,
    program: OwnedFd,
}

/// Why this machine cannot run it, with the remedy. Loads nothing and changes nothing.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<(), Missing> {
    let unreadable = |error| {
        Missing::new(
            format!("cannot read this process's capabilities: {error}"),
            "mount /proc",
        )
    };
    let held = Effective::read().map_err(unreadable)?;
    let missing = held.missing(&[Capability::Bpf, Capability::NetAdmin]);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    Err(Missing::new(
        format!("needs {}", names.join(" and ")),
        "run with sudo",
    ))
}

/// Loads a plane with these routes, attached nowhere yet: [`Xdp::listen`] does that once next hops have
/// their meanings.
///
/// # Errors
/// What this machine lacks; routes that there is no room for.
pub fn start(settings: &Settings, v4: Rib<u32>, v6: Rib<u128>) -> Result<Xdp, Error> {
    check()?;
    let shape = tables::Shape::of(settings, &v4, &v6)?;
    let loaded = Loaded::load(settings, &shape)?;
    let grace = Grace::new(loaded.map("grace")?)?;
    let program = loaded.program("route_frame")?;
    Ok(Xdp {
        attached: Attachments::new(
            program.try_clone().map_err(Error::Descriptor)?,
            settings.mode,
        ),
        ports: Vec::new(),
        port_map: loaded.map("ports")?,
        tables: Tables::build(&shape, v4, v6, &loaded, &grace)?,
        filter: Filter::new(&loaded, grace.clone())?,
        hops: Hops::new(settings, &loaded, grace)?,
        devices: Devices::new(loaded.map("devices")?, settings.mode),
        counters: loaded.map("counters")?,
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
        for port in ports {
            object::write(&self.port_map, &layout::port_key(port), &layout::port(port))?;
        }
        let gone = |port: &&Port| !ports.iter().any(|now| now.key() == port.key());
        for port in self.ports.iter().filter(gone) {
            object::erase(&self.port_map, &layout::port_key(port))?;
        }
        self.ports = ports.to_vec();
        self.attached
            .follow(&ports.iter().map(|port| port.ifindex).collect())
    }

    /// What became of the frames so far.
    ///
    /// # Errors
    /// The kernel's, of reading them.
    pub fn counters(&self) -> Result<Counters, Error> {
        Counters::read(&self.counters)
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
}

impl Plane for Xdp {
    type Error = Error;

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

    fn rules(&mut self, rules: &RuleSet) -> Result<(), Error> {
        self.filter.set(rules)
    }
}
