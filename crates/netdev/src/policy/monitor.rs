//! The policy of a namespace as it changes.

use std::collections::BTreeMap;
use std::mem;

use super::reverse_path::SourceRoutes;
use super::{
    Device, Flow, ForwardCheck, Policy, ReversePath, Routing, RoutingPolicy, Source, Stage,
    Transit, Verdict,
};
use crate::{Error, Netlink};

/// Follows the policy of the network namespace in which it was made.
#[derive(Debug)]
pub struct PolicyMonitor {
    /// The error is why the policy cannot be read.
    policy: Result<Policy, String>,
    /// The generation of the rules; none where the kernel has no nftables.
    generation: Option<u32>,
    version: u64,
    source: Source,
    netlink: Netlink,
    names: BTreeMap<u32, String>,
    routing: Routing,
    routing_policy: RoutingPolicy,
    sources: SourceRoutes,
}

impl PolicyMonitor {
    /// Reads the policy of the calling thread's namespace.
    pub fn new() -> Result<Self, Error> {
        Self::of(Source::open()?)
    }

    /// As [`PolicyMonitor::new`], without the table of family `inet` that has this name.
    pub fn without_table(name: &str) -> Result<Self, Error> {
        const INET: u8 = 1;
        let mut source = Source::open()?;
        source.rules.omit((INET, name.to_owned()));
        Self::of(source)
    }

    fn of(source: Source) -> Result<Self, Error> {
        let mut monitor = Self {
            policy: Err(String::new()),
            generation: None,
            version: 0,
            source,
            netlink: Netlink::new()?,
            names: BTreeMap::new(),
            routing: Routing::open()?,
            routing_policy: RoutingPolicy::default(),
            sources: SourceRoutes::open()?,
        };
        monitor.refresh();
        Ok(monitor)
    }

    /// Reads the policy again where it has changed. One that cannot be read leaves every packet to the kernel.
    pub fn refresh(&mut self) {
        // Asked first: a change while the rules are read shows at the next call.
        let generation = self.source.rules.generation();
        let (ruleset, rest) = match mem::replace(&mut self.policy, Err(String::new())) {
            Ok(policy) if generation.is_some() && generation == self.generation => {
                (Some(policy.ruleset), Some((policy.security, policy.legacy)))
            }
            _ => (None, None),
        };
        self.generation = generation;
        self.policy = self.source.read(ruleset).map_err(|error| error.to_string());
        let same = |policy: &Policy| {
            let before = rest.as_ref();
            before.is_some_and(|(security, legacy)| {
                *security == policy.security && *legacy == policy.legacy
            })
        };
        let mut changed = !self.policy.as_ref().is_ok_and(same);
        if let Ok(links) = self.netlink.links() {
            let names = links.into_iter().map(|link| (link.index, link.name));
            let before = mem::replace(&mut self.names, names.collect());
            changed |= before != self.names;
        }
        // What cannot be read stays as it was: the kernel goes on by it as well.
        if let Ok(policy) = self.routing.read() {
            changed |= policy != self.routing_policy;
            self.routing_policy = policy;
        }
        let wanted = self.checks_sources();
        changed |= self.sources.refresh(wanted);
        self.version += u64::from(changed);
    }

    /// Whether the kernel looks where the source of a packet is, at any device.
    fn checks_sources(&self) -> bool {
        let mut devices = self.names.keys();
        devices.any(|ifindex| self.routing_policy.reverse_path(*ifindex) != ReversePath::Off)
    }

    fn reverse_path(&self, flow: &Flow) -> Verdict {
        let Some(ingress) = &flow.ingress else {
            return Verdict::Accept;
        };
        let mode = self.routing_policy.reverse_path(ingress.index);
        if mode == ReversePath::Off || flow.source.0.is_ipv6() {
            return Verdict::Accept;
        }
        if let Some(rule) = self.routing_policy.foreign_rule(&ingress.name, true) {
            return Verdict::Kernel(format!("rp_filter of {} goes by {rule}", ingress.name));
        }
        if self.sources.accept(flow.source, ingress.index, mode) {
            return Verdict::Accept;
        }
        Verdict::Kernel(format!(
            "rp_filter of {} drops some of its sources",
            ingress.name
        ))
    }

    /// A number that grows when an answer may have changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the kernel lets every packet through.
    pub fn is_empty(&self) -> bool {
        self.policy.as_ref().is_ok_and(Policy::is_empty) && !self.checks_sources()
    }

    /// A device by its index. One without a name is not there any more.
    pub fn device(&self, index: u32) -> Device {
        Device {
            index,
            name: self.names.get(&index).cloned().unwrap_or_default(),
        }
    }

    /// What the kernel does at a stage with every packet of a kind.
    pub fn at(&self, stage: Stage, flow: &Flow) -> Verdict {
        match &self.policy {
            Ok(_) if stage == Stage::ReversePath => self.reverse_path(flow),
            Ok(policy) => policy.at(stage, flow),
            Err(error) => Verdict::Kernel(error.clone()),
        }
    }

    /// Whether nothing looks at packets that this machine forwards.
    pub fn is_empty_for_forwarding(&self) -> bool {
        self.policy.as_ref().is_ok_and(Policy::is_empty)
    }

    /// As [`Policy::at_check`].
    pub fn at_check(&self, check: ForwardCheck, packets: &Transit) -> Verdict {
        match &self.policy {
            Ok(policy) => policy.at_check(check, packets),
            Err(error) => Verdict::Kernel(error.clone()),
        }
    }
}
