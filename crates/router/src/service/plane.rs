//! The data planes that a service can run, as one.

use datapath::{Detachment, Missing};
use lpm::{Fib4, NextHop, Prefix4, Prefix6, Rib};
use netdev::capability::xdp_support;
use netdev::{Netlink, XdpMode};
use serde::Serialize;

use super::Error;
use super::tables::ImageTable;
use crate::config::{Config, Datapath};
use crate::cpu;
use crate::cpu::af_xdp::{AfXdp, Counters, PuntReason, Settings};
use crate::engine::{Contents, Function};
use crate::follow::NamedPort;
use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane, no_cleanup};
use crate::gpu as device;
use crate::gpu::cpu_fallback::{self, FallbackStatus};
use crate::image::ImageFile;
use crate::kernel;
use crate::listing;
use crate::policy::Policy;
use crate::rules::Hits;
use crate::xdp::{self, Port, Xdp};

/// Where the kernel says whether it forwards.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

#[derive(Debug)]
pub(super) enum Dataplane {
    Xdp {
        plane: Box<Xdp>,
        ports: Vec<NamedPort>,
    },
    AfXdp {
        plane: Box<AfXdp>,
        /// Its devices, which stay the same.
        devices: Vec<(String, u32)>,
        ports: Vec<NamedPort>,
    },
    /// The kernel routes by its tables without being told.
    Kernel {
        filter: kernel::Filter,
        interfaces: Vec<String>,
    },
}

/// Rules as one of them looks them up.
#[derive(Debug)]
pub(super) enum RuleTables {
    Xdp(Box<xdp::Lists>),
    AfXdp(Box<cpu_fallback::FallbackLists>),
    Kernel(kernel::Lists),
}

/// What a plane says of a call.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    #[error(transparent)]
    Xdp(#[from] xdp::Error),
    #[error(transparent)]
    AfXdp(#[from] datapath::Error),
    #[error(transparent)]
    Kernel(#[from] listing::Error),
}

/// Packets that came to one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    pub end: &'static str,
    pub packets: u64,
    /// None where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

pub(super) fn forwarding() -> Result<(), Missing> {
    let on = std::fs::read_to_string(FORWARDING).is_ok_and(|value| value.trim() == "1");
    if on {
        return Ok(());
    }
    Err(Missing::new(
        "the kernel does not forward packets",
        "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
    ))
}

pub(super) fn all_there(interfaces: &[String]) -> Result<(), Error> {
    let mut netlink = Netlink::new()?;
    for name in interfaces {
        match netlink.link_by_name(name) {
            Err(netdev::Error::NoInterface(name)) => return Err(Error::NoInterface(name)),
            found => drop(found?),
        }
    }
    Ok(())
}

/// Checks what devices must have for the datapath, before anything is loaded.
pub(super) fn all_fit(config: &Config) -> Result<(), Error> {
    if config.datapath == Datapath::Kernel {
        return Ok(());
    }
    let mut netlink = Netlink::new()?;
    for name in &config.interfaces {
        let link = netlink.link_by_name(name)?;
        // Of a VLAN device the one below takes the program.
        let link = match (link.vlan, link.link) {
            (Some(_), Some(below)) => netlink.link_by_index(below)?,
            _ => link,
        };
        if config.datapath == Datapath::Xdp && config.xdp_mode == XdpMode::Generic {
            continue;
        }
        let generic = match config.datapath {
            Datapath::Xdp => "--xdp-mode generic works on any device",
            _ => "the datapath xdp with --xdp-mode generic works on any device",
        };
        let native = xdp_support(link.index)?.is_none_or(|support| support.native);
        if link.loopback || !native {
            let what = format!("{name} has no native XDP");
            return Err(Missing::new(what, generic).into());
        }
    }
    Ok(())
}

impl Dataplane {
    /// A plane with these routes that handles nothing yet: [`Dataplane::open`], or
    /// [`Dataplane::take_over`], gives it devices. With a table image the routes are besides the image's.
    pub(super) fn detached(
        config: &Config,
        table: Option<ImageTable>,
        v4: Rib<u32>,
        v6: Rib<u128>,
    ) -> Result<Self, PlaneError> {
        let Some(table) = table else {
            return Self::make(config, None, v4, v6);
        };
        let (image, routes) = (&table.image, table.routes);
        let mut plane = Self::make(config, Some(image), routes.v4, routes.v6)?;
        for (prefix, hop) in &v4 {
            plane.route4(prefix, Some(hop))?;
        }
        for (prefix, hop) in &v6 {
            plane.route6(prefix, Some(hop))?;
        }
        Ok(plane)
    }

    fn make(
        config: &Config,
        image: Option<&ImageFile>,
        v4: Rib<u32>,
        v6: Rib<u128>,
    ) -> Result<Self, PlaneError> {
        Ok(match config.datapath {
            Datapath::Kernel => Self::Kernel {
                filter: kernel::Filter::default(),
                interfaces: config.interfaces.clone(),
            },
            Datapath::AfXdp => Self::af_xdp(config, image, v4, v6)?,
            Datapath::Xdp => {
                let settings = xdp::Settings {
                    mode: config.xdp_mode,
                    seed: config.ecmp_seed.unwrap_or_default(),
                    ..xdp::Settings::default()
                };
                let plane = match image {
                    Some(image) => xdp::restore(&settings, image, v4, v6)?,
                    None => xdp::start(&settings, v4, v6)?,
                };
                Self::Xdp {
                    plane: Box::new(plane),
                    ports: Vec::new(),
                }
            }
        })
    }

    fn af_xdp(
        config: &Config,
        image: Option<&ImageFile>,
        v4: Rib<u32>,
        v6: Rib<u128>,
    ) -> Result<Self, PlaneError> {
        let settings = Settings {
            engine: cpu_fallback::Options {
                cpu: cpu::Options {
                    simd: Fib4::usual_simd(),
                    ..cpu::Options::default()
                },
                device: on_device(config)?,
                fallback: config.batches.fallback,
            },
            function: Function::Both,
            threads: config.threads,
            batch: config.batches.batch,
            wait: config.batches.wait,
            seed: config.ecmp_seed.unwrap_or_default(),
        };
        let contents = Contents {
            v4,
            v6,
            ..Contents::default()
        };
        Ok(Self::AfXdp {
            plane: Box::new(AfXdp::detached(&settings, contents, image)?),
            devices: Vec::new(),
            ports: Vec::new(),
        })
    }

    /// Opens the devices of the configuration, where that is needed before their ports are known.
    pub(super) fn open(&mut self, config: &Config) -> Result<(), PlaneError> {
        if let Self::AfXdp { plane, devices, .. } = self {
            *devices = untagged(&config.interfaces)?;
            let indices: Vec<u32> = devices.iter().map(|(_, index)| *index).collect();
            plane.open(&indices)?;
        }
        Ok(())
    }

    /// Handles what `before`, which is of the same configuration, has handled until now. No packet is
    /// lost, and each meets one of both.
    pub(super) fn take_over(&mut self, before: &mut Self) -> Result<(), PlaneError> {
        match (self, before) {
            (
                Self::Xdp { plane, ports },
                Self::Xdp {
                    plane: old,
                    ports: had,
                },
            ) => {
                plane.take_over(old)?;
                *ports = std::mem::take(had);
            }
            (
                Self::AfXdp {
                    plane,
                    devices,
                    ports,
                },
                Self::AfXdp {
                    plane: old,
                    devices: known,
                    ports: had,
                },
            ) => {
                plane.take_over(old)?;
                (*devices, *ports) = (std::mem::take(known), std::mem::take(had));
            }
            _ => {}
        }
        Ok(())
    }

    /// Leaves to the kernel what this policy says, from the next packet on.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.set_policy(policy)?),
            Self::AfXdp { plane, .. } => Ok(plane.set_policy(policy)?),
            Self::Kernel { .. } => Ok(()),
        }
    }

    /// Attaches programs again where others have detached them, and returns what has changed.
    pub(super) fn reattach(&mut self) -> Vec<Detachment> {
        match self {
            Self::Xdp { plane, .. } => plane.reattach(),
            Self::AfXdp { plane, .. } => plane.reattach(),
            Self::Kernel { .. } => Vec::new(),
        }
    }

    /// What other programs have detached.
    pub(super) fn detachments(&self) -> Vec<Detachment> {
        match self {
            Self::Xdp { plane, .. } => plane.detachments(),
            Self::AfXdp { plane, .. } => plane.detachments(),
            Self::Kernel { .. } => Vec::new(),
        }
    }

    /// Says of which IP versions the kernel lacks rules that drop packets.
    pub(super) fn set_sole_filter(&mut self, sole_filter: [bool; 2]) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => plane.set_sole_filter(sole_filter),
            Self::AfXdp { plane, .. } => plane.set_sole_filter(sole_filter)?,
            Self::Kernel { .. } => {}
        }
        Ok(())
    }

    /// Routes what comes by these ports from now on.
    pub(super) fn listen(&mut self, named: Vec<NamedPort>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, ports } if *ports != named => {
                let new: Vec<Port> = named.iter().map(|named| named.port).collect();
                plane.listen(&new)?;
                *ports = named;
            }
            Self::AfXdp { plane, ports, .. } if ports.is_empty() => {
                plane.listen()?;
                *ports = named;
            }
            Self::AfXdp { devices, ports, .. } if *ports != named => {
                tracing::warn!(
                    "a device has gone or changed: start the router again to route by it"
                );
                let same =
                    |port: &NamedPort| devices.contains(&(port.name.clone(), port.port.ifindex));
                *ports = named.into_iter().filter(same).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// Why it forwards no more, if so.
    pub(super) fn failed(&self) -> Option<String> {
        match self {
            Self::AfXdp { plane, .. } => plane.failed(),
            Self::Xdp { .. } | Self::Kernel { .. } => None,
        }
    }

    /// Names of the devices whose packets it routes.
    pub(super) fn attached(&self) -> Vec<String> {
        match self {
            Self::Xdp { ports, .. } | Self::AfXdp { ports, .. } => {
                ports.iter().map(|port| port.name.clone()).collect()
            }
            Self::Kernel { .. } => Vec::new(),
        }
    }

    /// What `packets` is to be given; [`xdp::settle`] comes between both.
    pub(super) fn earlier(&self) -> Option<xdp::Counters> {
        match self {
            Self::Xdp { plane, .. } => plane.counters().ok(),
            Self::AfXdp { .. } | Self::Kernel { .. } => None,
        }
    }

    pub(super) fn packets(
        &self,
        published: &xdp::MonotonicCounters,
        earlier: Option<&xdp::Counters>,
    ) -> Vec<Traffic> {
        let counted = match self {
            Self::Xdp { plane, .. } => plane.counters().map_err(PlaneError::from).map(|now| {
                let traffic = |(end, traffic): (xdp::End, xdp::Traffic)| Traffic {
                    end: end.name(),
                    packets: traffic.packets,
                    bytes: Some(traffic.bytes),
                };
                let earlier = earlier.cloned().unwrap_or_default();
                let ends = published.take(&earlier, &now).into_iter();
                ends.map(traffic).collect()
            }),
            Self::AfXdp { plane, .. } => plane
                .counters()
                .map_err(PlaneError::from)
                .map(|counters| ends(&counters)),
            Self::Kernel { .. } => Ok(Vec::new()),
        };
        counted.unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        })
    }

    /// What CPUs did in a device's place, if it was lost.
    pub(super) fn fallback_status(&self) -> Option<FallbackStatus> {
        match self {
            Self::AfXdp { plane, .. } => plane.fallback_status(),
            Self::Xdp { .. } | Self::Kernel { .. } => None,
        }
    }

    /// How often each rule of IPv4 and of IPv6 matched, where that is counted.
    pub(super) fn hits(&self) -> Option<[Hits; 2]> {
        match self {
            Self::Xdp { plane, .. } => Some(plane.hits()),
            Self::AfXdp { plane, .. } => Some(plane.hits()),
            Self::Kernel { filter, .. } => filter
                .hits()
                .inspect_err(|error| tracing::warn!("{error}"))
                .ok(),
        }
    }
}

/// Where the configuration has packets decided about, if on no CPU.
fn on_device(config: &Config) -> Result<Option<device::Options>, datapath::Error> {
    let Some(name) = &config.batches.device else {
        return Ok(None);
    };
    let listed = gpu::find(name).map_err(|error| match error {
        gpu::Error::Missing(missing) => missing.into(),
        error => datapath::Error::Plan(error.to_string()),
    })?;
    Ok(Some(device::Options {
        memory: gpu::Memory::Pinned,
        // What a next hop's number stands for is of the same moment as the routes.
        latest: true,
        ..device::Options::of(listed)
    }))
}

/// Devices by name and index, none of them a VLAN's: steering sees frames with their tags.
fn untagged(names: &[String]) -> Result<Vec<(String, u32)>, datapath::Error> {
    let failed = |error| datapath::Error::failed("asking for a device", error);
    let mut netlink = Netlink::new().map_err(failed)?;
    let mut devices = Vec::new();
    for name in names {
        let link = netlink.link_by_name(name).map_err(failed)?;
        if link.vlan.is_some() {
            let what = format!("{name} is a VLAN's device: af-xdp takes none, xdp does");
            return Err(datapath::Error::Plan(what));
        }
        devices.push((link.name, link.index));
    }
    Ok(devices)
}

/// What became of frames, by the names that `xdp` has for the same ends.
fn ends(counters: &Counters) -> Vec<Traffic> {
    let kept = counters.steered + counters.unfiltered;
    let passed = counters.seen.saturating_sub(kept);
    let ends = [
        ("forwarded", counters.forwarded),
        ("dropped-by-rule", counters.dropped_by_rule),
        ("dropped-by-route", counters.dropped_by_route),
        (
            "dropped-unfiltered",
            counters.unfiltered + counters.dropped_unfiltered,
        ),
        ("dropped-at-transmit", counters.drops_transmit),
        ("dropped-queue-full", counters.drops_queue_full),
        ("dropped-at-stack", counters.drops_reinject),
        ("dropped-undecided", counters.drops_undecided),
        ("not-steered", passed),
    ];
    let punted = PuntReason::ALL.map(|why| (why.name(), counters.punted[why as usize]));
    let traffic = |(end, packets)| Traffic {
        end,
        packets,
        bytes: None,
    };
    ends.into_iter().chain(punted).map(traffic).collect()
}

impl Plane for Dataplane {
    type Error = PlaneError;
    type RuleTables = RuleTables;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.route4(prefix, hop)?),
            Self::AfXdp { plane, .. } => Ok(plane.route4(prefix, hop)?),
            Self::Kernel { .. } => Ok(()),
        }
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.route6(prefix, hop)?),
            Self::AfXdp { plane, .. } => Ok(plane.route6(prefix, hop)?),
            Self::Kernel { .. } => Ok(()),
        }
    }

    fn next_hop(
        &mut self,
        family: Family,
        hop: NextHop,
        to: &Forwarding,
    ) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.next_hop(family, hop, to)?),
            Self::AfXdp { plane, .. } => Ok(plane.next_hop(family, hop, to)?),
            Self::Kernel { .. } => Ok(()),
        }
    }

    fn withhold(&mut self, family: Family, on: bool) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.withhold(family, on)?),
            Self::AfXdp { plane, .. } => Ok(plane.withhold(family, on)?),
            Self::Kernel { .. } => Ok(()),
        }
    }

    fn compiler(&self) -> Compiler<RuleTables, PlaneError> {
        match self {
            Self::Xdp { plane, .. } => {
                let compile = plane.compiler();
                Box::new(|rules| Ok(RuleTables::Xdp(Box::new(compile(rules)?))))
            }
            Self::AfXdp { plane, .. } => {
                let compile = plane.compiler();
                Box::new(|rules| Ok(RuleTables::AfXdp(Box::new(compile(rules)?))))
            }
            Self::Kernel { interfaces, .. } => {
                let interfaces = interfaces.clone();
                Box::new(move |rules| Ok(RuleTables::Kernel(kernel::Lists::of(rules, &interfaces))))
            }
        }
    }

    fn enforce(&mut self, compiled: RuleTables) -> Result<Cleanup, PlaneError> {
        match (self, compiled) {
            (Self::Xdp { plane, .. }, RuleTables::Xdp(lists)) => Ok(plane.enforce(*lists)?),
            (Self::AfXdp { plane, .. }, RuleTables::AfXdp(lists)) => Ok(plane.enforce(*lists)?),
            (Self::Kernel { filter, .. }, RuleTables::Kernel(lists)) => {
                filter.enforce(&lists)?;
                Ok(no_cleanup())
            }
            // It compiles its own.
            _ => Ok(no_cleanup()),
        }
    }
}
