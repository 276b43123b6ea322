//! The data planes that a service can run, as one.

use datapath::Missing;
use lpm::{Fib4, NextHop, Prefix4, Prefix6, Rib};
use netdev::Netlink;
use serde::Serialize;

use super::Error;
use crate::config::{Config, Datapath};
use crate::cpu;
use crate::cpu::af_xdp::{AfXdp, Counters, Given, Settings};
use crate::engine::{Contents, Function};
use crate::follow::NamedPort;
use crate::forward::{Family, Forwarding, Plane};
use crate::rules::RuleSet;
use crate::xdp::{self, Port, Xdp};

/// Where the kernel says whether it forwards.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// Packets that threads of af-xdp look up together.
const BATCH: usize = 256;

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
    Kernel,
}

/// What a plane says of a call.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    #[error(transparent)]
    Xdp(#[from] xdp::Error),
    #[error(transparent)]
    AfXdp(#[from] datapath::Error),
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

impl Dataplane {
    pub(super) fn start(config: &Config, v4: Rib<u32>, v6: Rib<u128>) -> Result<Self, PlaneError> {
        Ok(match config.datapath {
            Datapath::Kernel => Self::Kernel,
            Datapath::AfXdp => Self::af_xdp(config, v4, v6)?,
            Datapath::Xdp => {
                let settings = xdp::Settings {
                    mode: config.xdp_mode,
                    ..xdp::Settings::default()
                };
                Self::Xdp {
                    plane: Box::new(xdp::start(&settings, v4, v6)?),
                    ports: Vec::new(),
                }
            }
        })
    }

    fn af_xdp(config: &Config, v4: Rib<u32>, v6: Rib<u128>) -> Result<Self, PlaneError> {
        let devices = untagged(&config.interfaces)?;
        let settings = Settings {
            engine: cpu::Options {
                simd: Fib4::usual_simd(),
                ..cpu::Options::default()
            },
            function: Function::Both,
            threads: config.threads,
            batch: BATCH,
        };
        let contents = Contents {
            v4,
            v6,
            ..Contents::default()
        };
        let indices: Vec<u32> = devices.iter().map(|(_, index)| *index).collect();
        Ok(Self::AfXdp {
            plane: Box::new(AfXdp::start(&settings, contents, &indices)?),
            devices,
            ports: Vec::new(),
        })
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
            Self::Xdp { .. } | Self::Kernel => None,
        }
    }

    /// Names of the devices whose packets it routes.
    pub(super) fn attached(&self) -> Vec<String> {
        match self {
            Self::Xdp { ports, .. } | Self::AfXdp { ports, .. } => {
                ports.iter().map(|port| port.name.clone()).collect()
            }
            Self::Kernel => Vec::new(),
        }
    }

    pub(super) fn packets(&self) -> Vec<Traffic> {
        let counted = match self {
            Self::Xdp { plane, .. } => plane.counters().map_err(PlaneError::from).map(|counters| {
                let traffic = |(end, traffic): (xdp::End, xdp::Traffic)| Traffic {
                    end: end.name(),
                    packets: traffic.packets,
                    bytes: Some(traffic.bytes),
                };
                counters.iter().map(traffic).collect()
            }),
            Self::AfXdp { plane, .. } => plane
                .counters()
                .map_err(PlaneError::from)
                .map(|counters| ends(&counters)),
            Self::Kernel => Ok(Vec::new()),
        };
        counted.unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        })
    }

    /// How often each rule of IPv4 and of IPv6 matched, where that is counted.
    pub(super) fn hits(&self) -> Option<[Vec<u64>; 2]> {
        match self {
            Self::Xdp { plane, .. } => Some(plane.hits().map(|hits| hits.rules)),
            Self::AfXdp { .. } | Self::Kernel => None,
        }
    }
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
    let passed = counters.seen.saturating_sub(counters.steered);
    let ends = [
        ("forwarded", counters.forwarded),
        ("dropped-by-rule", counters.dropped_by_rule),
        ("dropped-by-route", counters.dropped_by_route),
        ("dropped-at-device", counters.drops_transmit),
        ("dropped-queue-full", counters.drops_queue_full),
        ("dropped-at-stack", counters.drops_give_back),
        ("not-steered", passed),
    ];
    let given = Given::ALL.map(|why| (why.name(), counters.given_back[why as usize]));
    let traffic = |(end, packets)| Traffic {
        end,
        packets,
        bytes: None,
    };
    ends.into_iter().chain(given).map(traffic).collect()
}

impl Plane for Dataplane {
    type Error = PlaneError;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.route4(prefix, hop)?),
            Self::AfXdp { plane, .. } => Ok(plane.route4(prefix, hop)?),
            Self::Kernel => Ok(()),
        }
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.route6(prefix, hop)?),
            Self::AfXdp { plane, .. } => Ok(plane.route6(prefix, hop)?),
            Self::Kernel => Ok(()),
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
            Self::Kernel => Ok(()),
        }
    }

    fn rules(&mut self, rules: &RuleSet) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.rules(rules)?),
            Self::AfXdp { plane, .. } => Ok(plane.rules(rules)?),
            Self::Kernel => Ok(()),
        }
    }
}
