//! What the kernel would do with packets on the way that a fast path takes past it.
//!
//! A datapath in front of the network stack never skips what the administrator told the stack to do. It asks here, for
//! each kind of packet that it would forward, whether the kernel would have let all of them through unchanged. Where the
//! answer depends on more than the kind, the packets are the kernel's.

mod cgroup;
mod changes;
mod check;
mod dump;
mod ipvs;
mod legacy;
mod monitor;
mod nftables;
mod packet;
mod reverse_path;
mod routing;
mod service_routes;
mod traffic_control;
mod xfrm;

pub use changes::PolicyChanges;
pub use check::{Check, UnknownCheck};
pub use monitor::PolicyMonitor;
pub use nftables::Verdict;
pub(crate) use nftables::has_device_chains;
pub use packet::{AddressKind, Device, Flow, Transit};
pub use routing::{ReversePath, Routing, RoutingPolicy};

use crate::Error;
use legacy::LegacyTables;
use nftables::{Hook, Rules, Ruleset};
use packet::PacketClass;
use xfrm::{Direction, Security, SecurityPolicies};

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

    /// Whether the namespace has neither rules nor IPsec policies.
    pub fn is_empty(&self) -> bool {
        self.has_no_rules() && self.security.is_empty()
    }

    fn has_no_rules(&self) -> bool {
        self.ruleset.is_empty() && self.legacy.is_empty()
    }

    /// What the rules and IPsec do at a check with every packet that a socket of this machine receives or sends.
    /// [`PolicyMonitor`] answers for the other checks.
    pub fn at(&self, check: Check, flow: &Flow) -> Verdict {
        let evaluated = self.evaluate(check, &PacketClass::from(flow));
        let v4 = flow.destination.is_ipv4();
        evaluated.then(|| self.legacy_at(check, v4))
    }

    /// What the rules and IPsec do at a check with all packets that this machine forwards. [`PolicyMonitor`] and
    /// [`Routing`] answer for the other checks.
    pub fn at_check(&self, check: Check, packets: &Transit) -> Verdict {
        let evaluated = self.evaluate(check, &PacketClass::from(packets));
        evaluated.then(|| self.legacy_at(check, packets.v4))
    }

    fn evaluate(&self, check: Check, class: &PacketClass) -> Verdict {
        let direction = match check {
            Check::IpsecIn => Direction::In,
            Check::IpsecForward => Direction::Forward,
            Check::IpsecOut => Direction::Out,
            _ => {
                return hook(check).map_or(Verdict::Accept, |hook| {
                    nftables::evaluate(&self.ruleset, hook, class)
                });
            }
        };
        self.security.evaluate(direction, class)
    }

    fn legacy_at(&self, check: Check, v4: bool) -> Verdict {
        hook(check).map_or(Verdict::Accept, |hook| self.legacy.at(hook, v4))
    }
}

/// The hook of netfilter whose chains make a check.
fn hook(check: Check) -> Option<Hook> {
    match check {
        Check::NftIngress => Some(Hook::Ingress),
        Check::NftPrerouting => Some(Hook::Prerouting),
        Check::NftInput => Some(Hook::Input),
        Check::NftForward => Some(Hook::Forward),
        Check::NftOutput => Some(Hook::Output),
        Check::NftPostrouting => Some(Hook::Postrouting),
        Check::NftEgress => Some(Hook::Egress),
        _ => None,
    }
}
