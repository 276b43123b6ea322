//! What the kernel would do with packets on the way that a fast path takes past it.
//!
//! A datapath in front of the network stack never skips what the administrator told the stack to do. It asks here, for
//! each kind of packet that it would forward, whether the kernel would have let all of them through unchanged. Where the
//! answer depends on more than the kind, the packets are the kernel's.

mod changes;
mod dump;
mod forwarding;
mod legacy;
mod monitor;
mod nftables;
mod packet;
mod reverse_path;
mod routing;
mod xfrm;

pub use changes::PolicyChanges;
pub use forwarding::{ForwardCheck, UnknownCheck};
pub use monitor::PolicyMonitor;
pub use nftables::Verdict;
pub(crate) use nftables::has_device_chains;
pub use packet::{AddressKind, Device, Flow, Transit};
pub use routing::{ReversePath, Routing, RoutingPolicy};

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
use legacy::LegacyTables;
use nftables::{Hook, Rules, Ruleset};
use packet::PacketClass;
use xfrm::{Direction, Security, SecurityPolicies};

/// A part of the kernel's policy on the way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    NftIngress,
    NftPrerouting,
    /// `rp_filter` of the device.
    ReversePath,
    NftInput,
    IpsecIn,
    NftOutput,
    IpsecOut,
    NftPostrouting,
    NftEgress,
}

impl Stage {
    /// What packets to a socket of this machine pass, in this order.
    pub const RECEIVE: &[Self] = &[
        Self::NftIngress,
        Self::NftPrerouting,
        Self::ReversePath,
        Self::NftInput,
        Self::IpsecIn,
    ];
    /// What packets from a socket of this machine pass, in this order.
    pub const SEND: &[Self] = &[
        Self::NftOutput,
        Self::IpsecOut,
        Self::NftPostrouting,
        Self::NftEgress,
    ];

    /// The name of the stage in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::NftIngress => "nft-ingress",
            Self::NftPrerouting => "nft-prerouting",
            Self::ReversePath => "rp-filter",
            Self::NftInput => "nft-input",
            Self::IpsecIn => "ipsec-in",
            Self::NftOutput => "nft-output",
            Self::IpsecOut => "ipsec-out",
            Self::NftPostrouting => "nft-postrouting",
            Self::NftEgress => "nft-egress",
        }
    }
}

/// Accepts what [`Stage::name`] returns.
impl FromStr for Stage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut stages = Self::RECEIVE.iter().chain(Self::SEND);
        let known = stages.clone().map(|stage| stage.name());
        let names = known.collect::<Vec<_>>().join(", ");
        let named = stages.find(|stage| stage.name() == text).copied();
        named.ok_or_else(|| format!("`{text}` is unknown; the stages are {names}"))
    }
}

/// The policy of a network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    ruleset: Ruleset,
    legacy: LegacyTables,
    security: SecurityPolicies,
}

/// Where the policy of a network namespace is read.
#[derive(Debug)]
struct Source {
    rules: Rules,
    security: Security,
}

impl Source {
    /// Opens sockets in the calling thread's namespace.
    fn open() -> Result<Self, Error> {
        Ok(Self {
            rules: Rules::open()?,
            security: Security::open()?,
        })
    }

    /// Reads the policy, but for a ruleset that is known.
    fn read(&mut self, known: Option<Ruleset>) -> Result<Policy, Error> {
        let ruleset = match known {
            Some(ruleset) => ruleset,
            None => self.rules.read()?,
        };
        Ok(Policy {
            ruleset,
            legacy: LegacyTables::read(),
            security: self.security.read()?,
        })
    }
}

impl Policy {
    /// Reads the policy of the calling thread's namespace.
    pub fn read() -> Result<Self, Error> {
        Source::open()?.read(None)
    }

    /// Whether the namespace has no rules at all.
    pub fn is_empty(&self) -> bool {
        self.ruleset.is_empty() && self.legacy.is_empty() && self.security.is_empty()
    }

    /// What the kernel does at a stage with every packet of a kind.
    pub fn at(&self, stage: Stage, flow: &Flow) -> Verdict {
        let class = PacketClass::from(flow);
        let hook = match stage {
            Stage::IpsecIn => return self.security.evaluate(Direction::In, &class),
            Stage::IpsecOut => return self.security.evaluate(Direction::Out, &class),
            // Of the routes: the monitor's to say.
            Stage::ReversePath => return Verdict::Accept,
            Stage::NftIngress => Hook::Ingress,
            Stage::NftPrerouting => Hook::Prerouting,
            Stage::NftInput => Hook::Input,
            Stage::NftOutput => Hook::Output,
            Stage::NftPostrouting => Hook::Postrouting,
            Stage::NftEgress => Hook::Egress,
        };
        let evaluated = nftables::evaluate(&self.ruleset, hook, &class);
        evaluated.then(|| self.legacy.at(hook, flow.destination.is_ipv4()))
    }

    /// What the kernel does at a check of rules or of IPsec with all packets that it forwards. [`Routing`] answers for
    /// the other checks.
    pub fn at_check(&self, check: ForwardCheck, packets: &Transit) -> Verdict {
        let class = PacketClass::from(packets);
        let hook = match check {
            ForwardCheck::IpsecForward => {
                return self.security.evaluate(Direction::Forward, &class);
            }
            ForwardCheck::IpsecOut => return self.security.evaluate(Direction::Out, &class),
            ForwardCheck::NftIngress => Hook::Ingress,
            ForwardCheck::NftPrerouting => Hook::Prerouting,
            ForwardCheck::NftForward => Hook::Forward,
            ForwardCheck::NftPostrouting => Hook::Postrouting,
            ForwardCheck::NftEgress => Hook::Egress,
            ForwardCheck::Forwarding
            | ForwardCheck::IpRules
            | ForwardCheck::Controller
            | ForwardCheck::ReversePath => return Verdict::Accept,
        };
        let evaluated = nftables::evaluate(&self.ruleset, hook, &class);
        evaluated.then(|| self.legacy.at(hook, packets.v4))
    }
}
