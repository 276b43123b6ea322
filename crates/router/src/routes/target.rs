//! Where packets of a route go.

use std::fmt::{self, Display};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::engine::Verdict;

/// What becomes of packets to a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// One of these; several are ECMP, never none.
    Hops(Vec<Hop>),
    /// Dropped without a word.
    Blackhole,
    /// Answered with ICMP "unreachable".
    Unreachable,
    /// Answered with ICMP "administratively prohibited".
    Prohibit,
    /// The kernel's: its own addresses, broadcasts, tunnels, prefixes that it looks up in other tables.
    Kernel,
    /// The source names an AS, a set of them or several, instead of a next hop.
    Origin(Box<str>),
    /// The source names nothing but the prefix.
    Unspecified,
    /// A stand-in for a next hop, for measuring: see [`Routes::spread`](super::Routes::spread).
    StandIn(u16),
}

/// A neighbour, a device or both.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Hop {
    /// None: the destination itself is a neighbour.
    pub gateway: Option<IpAddr>,
    /// None: where the gateway is.
    pub interface: Option<Box<str>>,
    /// Its part of ECMP traffic, from 1.
    pub weight: u16,
}

impl Hop {
    /// Memory of one in a list that grows, with its name.
    pub(super) const BYTES: usize = 2 * size_of::<Self>() + 16;

    pub fn via(gateway: IpAddr) -> Self {
        Self {
            gateway: Some(gateway),
            interface: None,
            weight: 1,
        }
    }
}

impl Target {
    /// What becomes of packets whose route has this target, where nothing else decides. A packet is dropped also where
    /// the kernel sends an ICMP message about it.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Blackhole | Self::Unreachable | Self::Prohibit => Verdict::Drop,
            Self::Kernel => Verdict::Punt,
            Self::Hops(_) | Self::Origin(_) | Self::Unspecified | Self::StandIn(_) => {
                Verdict::Forward
            }
        }
    }

    /// Memory that it takes beside its own size.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Hops(hops) => hops.len() * Hop::BYTES,
            Self::Origin(origin) => origin.len(),
            _ => 0,
        }
    }
}

impl Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.gateway, &self.interface) {
            (Some(gateway), Some(interface)) => write!(f, "via {gateway} dev {interface}"),
            (Some(gateway), None) => write!(f, "via {gateway}"),
            (None, Some(interface)) => write!(f, "dev {interface}"),
            (None, None) => write!(f, "nowhere"),
        }?;
        if self.weight == 1 {
            return Ok(());
        }
        write!(f, " weight {}", self.weight)
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hops(hops) => {
                for (at, hop) in hops.iter().enumerate() {
                    let between = if at == 0 { "" } else { ", " };
                    write!(f, "{between}{hop}")?;
                }
                Ok(())
            }
            Self::Blackhole => f.write_str("blackhole"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Prohibit => f.write_str("prohibit"),
            Self::Kernel => f.write_str("kernel"),
            Self::Origin(origin) => write!(f, "AS {origin}"),
            Self::Unspecified => f.write_str("unspecified"),
            Self::StandIn(number) => write!(f, "stand-in {number}"),
        }
    }
}
