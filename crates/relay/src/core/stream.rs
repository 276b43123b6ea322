//! One stream as the core keeps it, and the plan made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use control::{Error, Kind};
use netdev::policy::{AddressKind, Check, Flow, PolicyMonitor, Verdict};
use netdev::{Destination, NextHop, UnresolvedReason};
use sys::multicast::Membership;

use super::machine::{self, Machine};
use super::sockets;
use crate::counters::StreamCounters;
use crate::handover::Handover;
use crate::plan::{self, Limits, SourcePolicy, StreamId, SubscriberId};
use crate::spec::{Source, StreamSpec, SubscriberSpec};
use crate::userspace::Work;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) spec: StreamSpec,
    pub(super) subscribers: Vec<Subscriber>,
    /// Counts of the datapaths it has left.
    pub(super) past: StreamCounters,
    pub(super) place: Placement,
    pub(super) socket: Arc<UdpSocket>,
    policy: PolicyDecisions,
    /// The version of the policy that was asked; none where the stream has changed since.
    pub(super) policy_version: Option<u64>,
    /// Why nothing can come in now, when the machine has lost what the stream comes in by.
    pub(super) absent: Option<String>,
    ingest: Vec<SocketAddr>,
    interfaces: Vec<u32>,
    /// The interface its group is joined on.
    joined: Option<u32>,
    /// The interfaces' link-layer addresses, which fast paths read again when one has changed.
    macs: Vec<Option<[u8; 6]>>,
    egress: BTreeMap<SocketAddr, Arc<UdpSocket>>,
    latch: Option<SocketAddr>,
}

/// What the kernel's policy comes to on a fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyDecision {
    /// Why the kernel has to decide on the stream's packets.
    pub(super) kernel: Option<String>,
    /// What would hold for its packets, and is configured to be skipped.
    pub(super) bypassed: Vec<String>,
}

/// The decisions on fast paths whose copies meet traffic control where they leave, and on the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PolicyDecisions {
    through_traffic_control: PolicyDecision,
    past_traffic_control: PolicyDecision,
}

/// Which datapath has a stream, and what the slow path beside a fast one reads of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// None while it changes hands.
    pub(super) datapath: Option<String>,
    /// A fast path that starts it diverted.
    pub(super) incoming: Option<String>,
    pub(super) slow: SlowPath,
}

/// What the slow path beside a fast path reads of a stream.
#[derive(Clone, Debug, Default)]
pub(super) enum SlowPath {
    /// What the fast path leaves to the network stack.
    #[default]
    Ingest,
    /// Nothing: the ingest socket keeps it.
    Pause,
    /// The ingest socket to its end, then what the fast path diverts.
    Handover(Arc<Handover>),
    /// What the fast path has diverted only: its hand-over is called off.
    Revert(Arc<Handover>),
}

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) id: SubscriberId,
    pub(super) spec: SubscriberSpec,
    pub(super) source: SocketAddr,
    pub(super) next_hop: NextHop,
    /// The fast path that has the stream cannot send to it.
    pub(super) userspace_only: bool,
    /// Since when the next hop is as it is.
    pub(super) since: Instant,
    pub(super) expires: Option<Instant>,
    /// What its next hop is looked up by.
    pub(super) route: Destination,
}

impl PolicyDecision {
    fn note(&mut self, check: Check, reason: &str, is_bypassed: bool) {
        if is_bypassed {
            let skipped = format!("{}: {reason}", check.name());
            if !self.bypassed.contains(&skipped) {
                self.bypassed.push(skipped);
            }
        } else {
            self.kernel.get_or_insert_with(|| reason.to_owned());
        }
    }
}

impl PolicyDecisions {
    /// `tc` hands its copies to the network stack, which sends them through traffic control.
    fn on(&self, datapath: &str) -> &PolicyDecision {
        if datapath == "tc" {
            &self.through_traffic_control
        } else {
            &self.past_traffic_control
        }
    }
}

impl Stream {
    /// Opens the sockets; subscribers are added afterwards.
    pub(super) fn open(
        id: StreamId,
        spec: StreamSpec,
        machine: &mut Machine,
    ) -> Result<Self, Error> {
        let socket = if spec.multicast.is_some() {
            sockets::group_ingest(spec.listen)?
        } else {
            machine.ingest(spec.listen)?
        };
        let mut stream = Self {
            id,
            subscribers: Vec::new(),
            past: StreamCounters::default(),
            place: Placement::default(),
            socket,
            policy: PolicyDecisions::default(),
            policy_version: None,
            absent: None,
            ingest: Vec::new(),
            interfaces: Vec::new(),
            joined: None,
            macs: Vec::new(),
            egress: BTreeMap::new(),
            latch: None,
            spec,
        };
        stream.place.datapath = Some(stream.spec.datapath.clone());
        stream.look_around(machine)?;
        Ok(stream)
    }

    /// Takes over which interfaces and addresses it comes in by now; whether that changed. One that
    /// is gone may come back, an interface under another index: until then nothing changes.
    pub(super) fn follow(&mut self, machine: &mut Machine) -> bool {
        let looked = self.look_around(machine);
        let (changed, absent) = match looked {
            Ok(changed) => (changed, self.absent_address(machine)),
            Err(error) => (false, Some(error.message)),
        };
        if absent != self.absent {
            let stream = &self.spec.name;
            match &absent {
                Some(reason) => tracing::warn!(stream, reason, "nothing can come in"),
                None => tracing::info!(stream, "can come in again"),
            }
            self.absent = absent;
        }
        changed
    }

    /// Says so when the address it comes in at is no longer this machine's.
    fn absent_address(&self, machine: &Machine) -> Option<String> {
        let address = self.spec.listen.ip();
        let concrete = !address.is_unspecified() && !address.is_multicast();
        let own = machine.own_addresses(address.is_ipv4()).ok()?;
        (concrete && !address.is_loopback() && !own.contains(&address))
            .then(|| format!("{address} is no longer an address of this machine"))
    }

    /// Asks again whether the kernel would let every packet of the stream in and every copy out; whether the answer
    /// changed.
    pub(super) fn ask_policy(&mut self, policy: &PolicyMonitor) -> bool {
        let flows = if policy.is_empty() {
            Vec::new()
        } else {
            self.flows(policy)
        };
        let mut decisions = PolicyDecisions::default();
        for (checks, flow) in flows {
            for check in checks {
                let reason = match policy.at(*check, &flow) {
                    Verdict::Accept => continue,
                    Verdict::Drop(rule) => format!("{rule} drops its packets"),
                    Verdict::Kernel(reason) => reason,
                };
                let is_bypassed = self.spec.bypass.contains(check);
                if *check != Check::TcEgress {
                    decisions
                        .through_traffic_control
                        .note(*check, &reason, is_bypassed);
                }
                decisions
                    .past_traffic_control
                    .note(*check, &reason, is_bypassed);
            }
        }
        self.policy_version = Some(policy.version());
        let before = mem::replace(&mut self.policy, decisions);
        let datapath = self.place.datapath.as_deref().unwrap_or_default();
        let (was, now) = (before.on(datapath), self.policy.on(datapath));
        if was.kernel != now.kernel {
            let stream = &self.spec.name;
            match &now.kernel {
                Some(reason) => tracing::warn!(stream, reason, "the kernel decides on its packets"),
                None => tracing::info!(stream, "the kernel lets all its packets through"),
            }
        }
        before != self.policy
    }

    /// The devices that its packets come in and its copies leave by.
    pub(super) fn devices(&self) -> BTreeSet<u32> {
        let egress = self
            .subscribers
            .iter()
            .filter_map(|subscriber| match subscriber.next_hop {
                NextHop::Ready { ifindex, .. }
                | NextHop::Unresolved(
                    UnresolvedReason::LinkDown { ifindex }
                    | UnresolvedReason::NoNeighbour { ifindex, .. },
                ) => Some(ifindex),
                NextHop::Unresolved(_) => None,
            });
        self.interfaces.iter().copied().chain(egress).collect()
    }

    /// What the kernel's policy comes to where this datapath has the stream.
    pub(super) fn policy_on(&self, datapath: &str) -> &PolicyDecision {
        self.policy.on(datapath)
    }

    /// The kinds of packets that a fast path takes past the kernel, with the checks that each would meet.
    fn flows(&self, devices: &PolicyMonitor) -> Vec<(&'static [Check], Flow)> {
        let sources = match self.source_policy() {
            SourcePolicy::Allow(prefixes) => prefixes,
            SourcePolicy::Any | SourcePolicy::Latch { .. } => Vec::new(),
        };
        let mut flows = Vec::new();
        for at in &self.ingest {
            let of_family = |prefix: &&plan::Prefix| prefix.address.is_ipv4() == at.is_ipv4();
            let mut sources: Vec<_> = sources
                .iter()
                .filter(of_family)
                .map(|prefix| (prefix.address, prefix.length))
                .collect();
            if sources.is_empty() {
                sources.push((unspecified(at.is_ipv4()), 0));
            }
            for (ifindex, source) in self
                .interfaces
                .iter()
                .flat_map(|ifindex| sources.iter().map(move |source| (*ifindex, *source)))
            {
                let flow = Flow {
                    source,
                    source_port: None,
                    destination: at.ip(),
                    destination_kind: if at.ip().is_multicast() {
                        AddressKind::Multicast
                    } else {
                        AddressKind::Local
                    },
                    destination_port: at.port(),
                    user: None,
                    ingress: Some(devices.device(ifindex)),
                    egress: None,
                };
                flows.push((Check::RECEIVE, flow));
            }
        }
        for subscriber in &self.subscribers {
            if let NextHop::Ready {
                ifindex,
                destination_mac,
                ..
            } = subscriber.next_hop
            {
                let (from, to) = (subscriber.source, subscriber.spec.to);
                let flow = Flow {
                    source: (from.ip(), if from.is_ipv4() { 32 } else { 128 }),
                    source_port: Some(from.port()),
                    destination: to.ip(),
                    destination_kind: if to.ip().is_multicast() {
                        AddressKind::Multicast
                    } else if destination_mac == [0xff; 6] {
                        AddressKind::Broadcast
                    } else {
                        AddressKind::Unicast
                    },
                    destination_port: to.port(),
                    user: Some(nix::unistd::geteuid().as_raw()),
                    ingress: None,
                    egress: Some(devices.device(ifindex)),
                };
                flows.push((Check::SEND, flow));
            }
        }
        flows
    }

    /// Joins the group on its interface, again when that has come back as another.
    fn join(&mut self, machine: &mut Machine) -> Result<(), Error> {
        let Some(multicast) = &self.spec.multicast else {
            return Ok(());
        };
        let ifindex = machine.interface(&multicast.interface)?;
        if self.joined != Some(ifindex) {
            let membership = Membership {
                group: self.spec.listen.ip(),
                source: multicast.source,
                ifindex,
            };
            sockets::join(&self.socket, &membership)?;
            self.joined = Some(ifindex);
        }
        Ok(())
    }

    /// Reads again which interfaces and addresses it comes in by; whether that changed.
    fn look_around(&mut self, machine: &mut Machine) -> Result<bool, Error> {
        self.join(machine)?;
        let named = match &self.spec.multicast {
            Some(multicast) if self.spec.interfaces.is_empty() => vec![multicast.interface.clone()],
            _ => self.spec.interfaces.clone(),
        };
        let listen = self.spec.listen;
        let ingest = if listen.ip().is_unspecified() {
            let own = machine.own_addresses(listen.is_ipv4())?;
            own.into_iter()
                .map(|ip| SocketAddr::new(ip, listen.port()))
                .collect()
        } else {
            vec![listen]
        };
        let interfaces = if named.is_empty() {
            machine.interfaces(&ingest)?
        } else {
            let index = |name: &String| machine.interface(name);
            named.iter().map(index).collect::<Result<_, _>>()?
        };
        let macs = interfaces.iter().map(|index| machine.mac(*index)).collect();
        let now = (&interfaces, &macs, &ingest);
        let changed = (&self.interfaces, &self.macs, &self.ingest) != now;
        self.interfaces = interfaces;
        self.macs = macs;
        self.ingest = ingest;
        Ok(changed)
    }

    /// Adds a subscriber that `check_subscriber` has passed.
    pub(super) fn subscribe(
        &mut self,
        id: SubscriberId,
        spec: SubscriberSpec,
        machine: &mut Machine,
    ) -> Result<(), Error> {
        let ifindex = match &spec.interface {
            None => None,
            Some(name) => Some(machine.interface(name)?),
        };
        let ifindex = ifindex.or_else(|| match spec.to {
            SocketAddr::V6(to) if to.scope_id() != 0 => Some(to.scope_id()),
            _ => None,
        });
        if self.ingest.contains(&spec.to) {
            return Err(Error::bad_request(format!(
                "subscriber \"{}\": destination {} is this relay's own ingest (loop)",
                spec.name, spec.to
            )));
        }
        let route = Destination {
            address: spec.to.ip(),
            ifindex,
            source: self.own_source(&spec).map(|source| source.ip()),
        };
        let next_hop = machine.next_hop(route);
        let now = Instant::now();
        let subscriber = Subscriber {
            id,
            source: self.source_of(&spec, route, &next_hop),
            expires: spec.expires.map(|span| now + span.0),
            spec,
            next_hop,
            userspace_only: false,
            since: now,
            route,
        };
        self.open_egress(&subscriber, machine)?;
        self.subscribers.push(subscriber);
        Ok(())
    }

    /// Takes over every next hop as it is now; whether one changed.
    pub(super) fn resolve(&mut self, machine: &mut Machine) -> bool {
        let mut changed = false;
        for at in 0..self.subscribers.len() {
            self.subscribers[at].find_interface(machine);
            let subscriber = &self.subscribers[at];
            let next_hop = machine.next_hop(subscriber.route);
            if next_hop == subscriber.next_hop {
                continue;
            }
            changed = true;
            let source = self.source_of(&subscriber.spec, subscriber.route, &next_hop);
            let subscriber = &mut self.subscribers[at];
            subscriber.next_hop = next_hop;
            subscriber.since = Instant::now();
            if source.ip().is_unspecified() || source == subscriber.source {
                continue;
            }
            self.move_source(at, source, machine);
        }
        changed
    }

    /// A route's preferred source changed: sends from the new one if it can be had.
    fn move_source(&mut self, at: usize, source: SocketAddr, machine: &mut Machine) {
        let known = self.egress.contains_key(&source) || self.sends_by_ingest(source);
        if !known {
            match machine.sender(source) {
                Ok(socket) => {
                    self.egress.insert(source, socket);
                }
                Err(error) => {
                    tracing::warn!(%source, %error, "keeps the old source address");
                    return;
                }
            }
        }
        self.subscribers[at].source = source;
    }

    /// The address packets come from: as configured, else the ingest's own, else the kernel's
    /// choice with the ingest's port.
    fn source_of(
        &self,
        spec: &SubscriberSpec,
        route: Destination,
        next_hop: &NextHop,
    ) -> SocketAddr {
        self.own_source(spec).unwrap_or_else(|| {
            let unknown = unspecified(spec.to.is_ipv4());
            let to = scoped(spec.to, route.ifindex);
            let ip = machine::preferred_source(to, next_hop).unwrap_or(unknown);
            scoped(SocketAddr::new(ip, self.spec.listen.port()), route.ifindex)
        })
    }

    /// The address packets come from, where it does not depend on the route.
    fn own_source(&self, spec: &SubscriberSpec) -> Option<SocketAddr> {
        let listen = self.spec.listen;
        let concrete = !listen.ip().is_unspecified() && !listen.ip().is_multicast();
        let of_family = concrete && listen.is_ipv4() == spec.to.is_ipv4();
        spec.from.or_else(|| of_family.then_some(listen))
    }

    fn open_egress(&mut self, subscriber: &Subscriber, machine: &mut Machine) -> Result<(), Error> {
        let source = subscriber.source;
        let known = self.egress.contains_key(&source) || self.sends_by_ingest(source);
        if !known && !source.ip().is_unspecified() {
            let socket = machine.sender(source).map_err(|error| {
                let name = &subscriber.spec.name;
                Error::new(error.kind, format!("subscriber \"{name}\": from {error}"))
            })?;
            self.egress.insert(source, socket);
        }
        Ok(())
    }

    /// Whether the ingest socket can send from an address: it has the port, and is bound to it or
    /// to any.
    fn sends_by_ingest(&self, source: SocketAddr) -> bool {
        let listen = self.spec.listen;
        let any = listen.ip().is_unspecified() || listen.ip().is_multicast();
        source == listen
            || (any && source.port() == listen.port() && source.is_ipv4() == listen.is_ipv4())
    }

    /// Remembers who holds the latch, for the datapath that comes next.
    pub(super) fn keep_latch(&mut self, holder: Option<SocketAddr>) {
        self.latch = holder;
    }

    /// What `datapath` is asked to do for this stream, which starts `diverted` or not.
    pub(super) fn plan(&self, datapath: &str, diverted: bool) -> plan::Stream {
        let subscribers: Vec<_> = self
            .subscribers
            .iter()
            .map(|subscriber| subscriber.plan(self.spec.ttl))
            .collect();
        let has_own_ttl = |subscriber: &plan::Subscriber| subscriber.ttl.is_some();
        let all_fixed = self.spec.ttl.is_some()
            || (!subscribers.is_empty() && subscribers.iter().all(has_own_ttl));
        plan::Stream {
            id: self.id,
            name: self.spec.name.clone(),
            ingest: self.ingest.clone(),
            interfaces: self.interfaces.clone(),
            socket: self.socket.clone(),
            egress: self.egress.clone(),
            source: self.source_policy(),
            check_source: false,
            limits: Limits {
                stream_pps: self.spec.rate.stream.map(|rate| rate.0),
                source_pps: self.spec.rate.source.map(|rate| rate.0),
            },
            min_ttl: if all_fixed { 0 } else { 2 },
            policy: self.policy.on(datapath).kernel.clone(),
            work: self.spec.per_packet(),
            diverted,
            subscribers,
        }
    }

    fn source_policy(&self) -> SourcePolicy {
        // Whoever else sends to the group may come by, and the network stack drops it.
        if let Some(sender) = self.spec.multicast.as_ref().and_then(|by| by.source) {
            return SourcePolicy::Allow(vec![sender.into()]);
        }
        match &self.spec.source {
            Source::Any => SourcePolicy::Any,
            Source::Prefixes(prefixes) => SourcePolicy::Allow(prefixes.clone()),
            Source::Latch => SourcePolicy::Latch {
                timeout: self.spec.latch_timeout.0,
                held_by: self.latch,
            },
        }
    }

    /// What the slow path beside a fast path relays of this stream.
    pub(super) fn slow_work(&self) -> Work {
        let (reads_ingest, handover) = match &self.place.slow {
            SlowPath::Ingest => (true, None),
            SlowPath::Pause => (false, None),
            SlowPath::Handover(handover) => (true, Some(handover)),
            SlowPath::Revert(handover) => (false, Some(handover)),
        };
        Work {
            stream: self.plan(self.place.datapath.as_deref().unwrap_or_default(), false),
            reads_ingest,
            handover: handover.cloned(),
        }
    }

    /// Takes over which subscribers the fast path that has the stream cannot send to; whether that changed.
    pub(super) fn set_userspace_only(&mut self, only: &BTreeSet<SubscriberId>) -> bool {
        let mut changed = false;
        for subscriber in &mut self.subscribers {
            let before = mem::replace(
                &mut subscriber.userspace_only,
                only.contains(&subscriber.id),
            );
            changed |= before != subscriber.userspace_only;
        }
        changed
    }

    pub(super) fn subscriber(&self, name: &str) -> Result<usize, Error> {
        let named = |subscriber: &Subscriber| subscriber.spec.name == name;
        self.subscribers.iter().position(named).ok_or_else(|| {
            let stream = &self.spec.name;
            Error::not_found(format!("stream \"{stream}\" has no subscriber \"{name}\""))
        })
    }

    /// The stream's description as it is now.
    pub(super) fn describe(&self) -> StreamSpec {
        let mut spec = self.spec.clone();
        spec.datapath = self.place.datapath.clone().unwrap_or_default();
        spec.subscribers = self.subscribers.iter().map(|s| s.spec.clone()).collect();
        spec
    }

    /// Why a stream that changes hands cannot be changed.
    pub(super) fn settled(&self) -> Result<(), Error> {
        if self.place.incoming.is_none() && self.place.datapath.is_some() {
            return Ok(());
        }
        let message = format!("stream \"{}\" is being switched", self.spec.name);
        Err(Error::new(Kind::Conflict, message))
    }
}

impl Subscriber {
    /// An interface that has gone may have come back under another index.
    fn find_interface(&mut self, machine: &mut Machine) {
        let (Some(name), NextHop::Unresolved(_)) = (&self.spec.interface, self.next_hop) else {
            return;
        };
        match machine.interface(name) {
            Ok(ifindex) if self.route.ifindex != Some(ifindex) => {
                machine.forget(&self.route);
                self.route.ifindex = Some(ifindex);
            }
            _ => {}
        }
    }

    /// `ttl` is what its stream sets.
    fn plan(&self, ttl: Option<u8>) -> plan::Subscriber {
        plan::Subscriber {
            id: self.id,
            name: self.spec.name.clone(),
            destination: scoped(self.spec.to, self.route.ifindex),
            source: self.source,
            ttl: self.spec.ttl.or(ttl),
            next_hop: self.next_hop,
            userspace_only: self.userspace_only,
        }
    }
}

/// A link-local address with the interface that it belongs to, which sockets ask for.
fn scoped(address: SocketAddr, ifindex: Option<u32>) -> SocketAddr {
    match (address, ifindex) {
        (SocketAddr::V6(mut v6), Some(ifindex))
            if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 =>
        {
            v6.set_scope_id(ifindex);
            v6.into()
        }
        _ => address,
    }
}

fn unspecified(v4: bool) -> IpAddr {
    if v4 { [0; 4].into() } else { [0; 16].into() }
}
