//! The data planes that a service can run, as one.

use datapath::Missing;
use lpm::{NextHop, Prefix4, Prefix6, Rib};
use netdev::Netlink;
use serde::Serialize;

use super::Error;
use crate::config::{Config, Datapath};
use crate::follow::NamedPort;
use crate::forward::{Family, Forwarding, Plane};
use crate::rules::RuleSet;
use crate::xdp::{self, Port, Xdp};

/// Where the kernel says whether it forwards.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

#[derive(Debug)]
pub(super) enum Dataplane {
    Xdp {
        plane: Box<Xdp>,
        ports: Vec<NamedPort>,
    },
    /// The kernel routes by its tables without being told.
    Kernel,
}

/// What a plane says of a call.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PlaneError(#[from] xdp::Error);

/// Packets that came to one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    pub end: &'static str,
    pub packets: u64,
    pub bytes: u64,
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

    /// Routes what comes by these ports from now on.
    pub(super) fn listen(&mut self, named: Vec<NamedPort>) -> Result<(), PlaneError> {
        if let Self::Xdp { plane, ports } = self
            && *ports != named
        {
            let new: Vec<Port> = named.iter().map(|named| named.port).collect();
            plane.listen(&new)?;
            *ports = named;
        }
        Ok(())
    }

    /// Names of the devices whose packets it routes.
    pub(super) fn attached(&self) -> Vec<String> {
        match self {
            Self::Xdp { ports, .. } => ports.iter().map(|port| port.name.clone()).collect(),
            Self::Kernel => Vec::new(),
        }
    }

    pub(super) fn packets(&self) -> Vec<Traffic> {
        let Self::Xdp { plane, .. } = self else {
            return Vec::new();
        };
        match plane.counters() {
            Ok(counters) => counters
                .iter()
                .map(|(end, traffic)| Traffic {
                    end: end.name(),
                    packets: traffic.packets,
                    bytes: traffic.bytes,
                })
                .collect(),
            Err(error) => {
                tracing::warn!("{error}");
                Vec::new()
            }
        }
    }

    /// How often each rule of IPv4 and of IPv6 matched.
    pub(super) fn hits(&self) -> [Vec<u64>; 2] {
        match self {
            Self::Xdp { plane, .. } => plane.hits().map(|hits| hits.rules),
            Self::Kernel => [Vec::new(), Vec::new()],
        }
    }
}

impl Plane for Dataplane {
    type Error = PlaneError;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.route4(prefix, hop)?),
            Self::Kernel => Ok(()),
        }
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.route6(prefix, hop)?),
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
            Self::Kernel => Ok(()),
        }
    }

    fn rules(&mut self, rules: &RuleSet) -> Result<(), PlaneError> {
        match self {
            Self::Xdp { plane, .. } => Ok(plane.rules(rules)?),
            Self::Kernel => Ok(()),
        }
    }
}
