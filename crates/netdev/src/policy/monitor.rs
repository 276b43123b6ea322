//! The policy of a namespace as it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::cgroup::CgroupPrograms;
use super::reverse_path::SourceRoutes;
use super::service_routes::ServiceRoutes;
use super::traffic_control::{self, TrafficControl};
use super::{
    Check, Device, Flow, Policy, ReversePath, Routing, RoutingPolicy, Source, Transit, Verdict,
    ipvs,
};
use crate::attach::Direction;
use crate::{Error, Link, Netlink};

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
    /// The VRF that a device belongs to: sockets outside it receive nothing by the device.
    vrf_ports: BTreeMap<u32, String>,
    routing: Routing,
    routing_policy: RoutingPolicy,
    /// Whether `routing_policy` was ever read.
    is_routing_known: bool,
    sources: SourceRoutes,
    /// None where only forwarded packets are asked about: who forwards knows all routes.
    service_routes: Option<ServiceRoutes>,
    traffic_control_reader: traffic_control::Reader,
    /// The error is why it cannot be read.
    traffic_control: Result<TrafficControl, String>,
    cgroup: CgroupPrograms,
    /// The first service of IPVS, if there is any.
    virtual_service: Option<String>,
}

impl PolicyMonitor {
    /// Reads the policy of the calling thread's namespace.
    pub fn new() -> Result<Self, Error> {
        let service_routes = Some(ServiceRoutes::open()?);
        let monitor = Self::of(Source::open()?)?;
        Ok(Self {
            service_routes,
            ..monitor
        })
    }

    /// As [`PolicyMonitor::new`] for forwarded packets, without the table of family `inet` that has this name.
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
            vrf_ports: BTreeMap::new(),
            routing: Routing::open()?,
            routing_policy: RoutingPolicy::default(),
            is_routing_known: false,
            sources: SourceRoutes::open()?,
            service_routes: None,
            traffic_control_reader: traffic_control::Reader::open()?,
            traffic_control: Ok(TrafficControl::default()),
            cgroup: CgroupPrograms::default(),
            virtual_service: None,
        };
        monitor.refresh();
        Ok(monitor)
    }

    /// Reads the policy again where it has changed. One that cannot be read leaves every packet to the kernel.
    ///
    /// Belongs on a thread of the namespace.
    pub fn refresh(&mut self) {
        self.read(None);
    }

    /// As [`PolicyMonitor::refresh`], but reads the traffic control of these devices alone: the work does not grow with
    /// the number of devices that the machine has.
    pub fn refresh_devices(&mut self, devices: &BTreeSet<u32>) {
        self.read(Some(devices));
    }

    /// How often the traffic control of a device was read.
    pub fn device_reads(&self) -> u64 {
        self.traffic_control_reader.device_reads()
    }

    fn read(&mut self, devices: Option<&BTreeSet<u32>>) {
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
        let links = self.netlink.links();
        let control = match &links {
            Ok(links) => {
                let known = self.traffic_control.as_ref().ok().zip(devices);
                self.traffic_control_reader.read(links, known)
            }
            Err(error) => Err(Error::Socket(std::io::Error::other(error.to_string()))),
        };
        let control = control.map_err(|error| error.to_string());
        changed |= control != self.traffic_control;
        self.traffic_control = control;
        if let Ok(links) = links {
            let ports = vrf_ports(&links);
            changed |= ports != self.vrf_ports;
            self.vrf_ports = ports;
            let names = links.into_iter().map(|link| (link.index, link.name));
            let before = mem::replace(&mut self.names, names.collect());
            changed |= before != self.names;
        }
        // What cannot be read stays as it was: the kernel goes on by it as well.
        if let Ok(policy) = self.routing.read() {
            changed |= policy != self.routing_policy;
            self.routing_policy = policy;
            self.is_routing_known = true;
        }
        if let Some(routes) = &mut self.service_routes {
            changed |= routes.refresh();
        }
        let (cgroup, service) = (CgroupPrograms::read(), ipvs::first_service());
        changed |= cgroup != self.cgroup || service != self.virtual_service;
        (self.cgroup, self.virtual_service) = (cgroup, service);
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
        let routes = self.service_routes.as_ref();
        self.is_empty_for_forwarding()
            && self.cgroup.is_empty()
            && self.vrf_ports.is_empty()
            && self.is_routing_known
            && !self.checks_sources()
            && routes.is_none_or(ServiceRoutes::is_empty)
            && [true, false].map(|v4| self.routing_policy.rule_by_headers(v4)) == [None, None]
    }

    /// A device by its index. One without a name is not there any more.
    pub fn device(&self, index: u32) -> Device {
        Device {
            index,
            name: self.names.get(&index).cloned().unwrap_or_default(),
        }
    }

    /// What the kernel does at a check with every packet of a kind that a socket of this machine receives or sends.
    pub fn at(&self, check: Check, flow: &Flow) -> Verdict {
        let index = |device: &Option<Device>| device.as_ref().map(|device| device.index);
        match (&self.policy, check) {
            (_, Check::ReversePath | Check::IpRules) if !self.is_routing_known => {
                Verdict::Kernel("the routing policy cannot be read".to_owned())
            }
            (_, Check::ReversePath) => self.reverse_path(flow),
            (_, Check::TcIngress) => self.traffic_control(Direction::Ingress, index(&flow.ingress)),
            (_, Check::TcEgress) => self.traffic_control(Direction::Egress, index(&flow.egress)),
            (_, Check::IpRules) => self.routing_by_headers(flow),
            (_, Check::Controller) => self.vrf(flow),
            (_, Check::CgroupIngress) => self.cgroup.on_receive(),
            (_, Check::CgroupEgress) => self.cgroup.on_send(),
            (_, Check::Ipvs) => self.virtual_services(),
            (Ok(policy), _) => policy.at(check, flow),
            (Err(error), _) => Verdict::Kernel(error.clone()),
        }
    }

    /// Whether nothing but routing looks at packets that this machine forwards.
    pub fn is_empty_for_forwarding(&self) -> bool {
        self.policy.as_ref().is_ok_and(Policy::is_empty)
            && self
                .traffic_control
                .as_ref()
                .is_ok_and(TrafficControl::is_empty)
            && self.virtual_service.is_none()
    }

    /// Whether the kernel may put fragments together, as it does where a rule wants connection tracking.
    pub fn may_defragment(&self) -> bool {
        !self.policy.as_ref().is_ok_and(Policy::has_no_rules)
    }

    /// What the kernel does at a check with all packets that this machine forwards. [`Routing`] answers for policy rules,
    /// settings of devices and the reverse path.
    pub fn at_check(&self, check: Check, packets: &Transit) -> Verdict {
        let egress = packets.egress.as_ref().map(|device| device.index);
        match (&self.policy, check) {
            (_, Check::TcIngress) => {
                self.traffic_control(Direction::Ingress, Some(packets.ingress.index))
            }
            (_, Check::TcEgress) => self.traffic_control(Direction::Egress, egress),
            (_, Check::Ipvs) => self.virtual_services(),
            (Ok(policy), _) => policy.at_check(check, packets),
            (Err(error), _) => Verdict::Kernel(error.clone()),
        }
    }

    /// Whether headers that are not known select another route for packets of this machine.
    fn routing_by_headers(&self, flow: &Flow) -> Verdict {
        let rule = self
            .routing_policy
            .rule_by_headers(flow.destination.is_ipv4());
        let routes = self.service_routes.as_ref();
        match rule.or_else(|| routes?.find(flow.destination)) {
            Some(found) => Verdict::Kernel(found),
            None => Verdict::Accept,
        }
    }

    fn traffic_control(&self, direction: Direction, ifindex: Option<u32>) -> Verdict {
        match (&self.traffic_control, ifindex) {
            (Ok(control), Some(ifindex)) => control.at(direction, ifindex),
            (Ok(_), None) => Verdict::Accept,
            (Err(error), _) => Verdict::Kernel(error.clone()),
        }
    }

    fn vrf(&self, flow: &Flow) -> Verdict {
        let ingress = flow.ingress.as_ref();
        let found = ingress.and_then(|device| Some((device, self.vrf_ports.get(&device.index)?)));
        match found {
            Some((device, vrf)) => {
                Verdict::Kernel(format!("{} belongs to the VRF {vrf}", device.name))
            }
            None => Verdict::Accept,
        }
    }

    fn virtual_services(&self) -> Verdict {
        match &self.virtual_service {
            Some(service) => Verdict::Kernel(format!("the IPVS service {service}")),
            None => Verdict::Accept,
        }
    }
}

/// The devices that belong to a VRF, by index, with its name.
fn vrf_ports(links: &[Link]) -> BTreeMap<u32, String> {
    let is_vrf = |link: &&Link| link.kind.as_deref() == Some("vrf");
    let vrfs: BTreeMap<u32, &str> = links
        .iter()
        .filter(is_vrf)
        .map(|link| (link.index, link.name.as_str()))
        .collect();
    let port = |link: &Link| Some((link.index, (*vrfs.get(&link.controller?)?).to_owned()));
    links.iter().filter_map(port).collect()
}
