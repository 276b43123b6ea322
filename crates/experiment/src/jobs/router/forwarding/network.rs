//! A sender for each arm, one router and one sink, in namespaces and all on one CPU. The router's kernel has the whole
//! table, and every arm routes by it: the kernel itself, an XDP program that asks it for each packet,
//! and `lowroad router run`, which follows it. It takes seconds to load, so a network stays for the
//! experiment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use loadgen::{Amount, Backend, Load as Offered, SendReport};
use netdev::{NeighbourState, Route};
use tempfile::TempDir;
use testbed::{Bed, Host, HostSpec, Interface, LinkKind, LinkSpec, Topology};

use super::filter::Filter;
use super::process::RouterProcess;
use super::programs::{ArrivalCounts, FlowRoute, Programs, ProgramsSpec};
use super::{ARMS, FIB, KERNEL, XDP};
use crate::arms::{Place, ProgramArm, ProgramProcess, Values};
use crate::jobs::router::prefixes::Prefixes;
use crate::jobs::router::tables::Traffic;
use crate::outcome::Outcome;
use crate::program::{self, Lowroad};

/// Senders are called as their arms.
const ROUTER: &str = "router";
const SINK: &str = "sink";
/// An external program has the network for itself, and takes the kernel's packets.
const PROGRAM_SENDER: &str = KERNEL;
/// The host part of the first next hop's address on the link to the sink.
const FIRST_HOP: u8 = 10;
/// The most next hops that have an address there.
pub(in crate::jobs::router) const MAX_NEXT_HOPS: u16 = 240;
/// Ports of every flow: routes do not depend on them.
const PORTS: (u16, u16) = (40_004, 9_000);
/// Routes of one request to the kernel. The answers to more of them do not fit the socket's buffer.
const ROUTE_BATCH: usize = 100;
/// The least that carries who sent it: frames of 82 bytes.
const PAYLOAD: usize = 40;
/// Frames in one call.
const BURST: usize = 64;
/// Silence after which no more packets will come.
const QUIET: Duration = Duration::from_millis(20);
const SEED: u64 = 42;

/// A network that is up, with a router for each arm.
#[derive(Debug)]
pub(super) struct Network {
    // Dropped in this order: what uses a namespace ends before it does.
    router: Router,
    programs: Programs,
    pub(super) bed: Bed,
    flow_routes: Vec<FlowRoute>,
    /// The first of them, up to this number, pass every rule.
    open: usize,
    /// One for all senders: what is looked up in is the same.
    source: IpAddr,
    run: u32,
    cpu: usize,
    _folder: TempDir,
}

/// The program that routes beside the kernel.
#[derive(Debug)]
enum Router {
    Lowroad(RouterProcess),
    /// None once it has been ended.
    Program(Option<Box<ProgramProcess>>),
}

/// The parameters of a network.
pub(super) struct NetworkSpec<'a> {
    pub(super) prefixes: &'a Prefixes,
    pub(super) traffic: Traffic,
    pub(super) flows: usize,
    /// How many rules there are, of which the first to match counts.
    pub(super) rules: usize,
    /// Where packets are sent, routed and counted.
    pub(super) cpu: usize,
    /// Where the router is.
    pub(super) environment: &'a str,
    /// The build that routes.
    pub(super) lowroad: &'a Lowroad,
    /// The external program that routes instead.
    pub(super) program: Option<&'a ProgramArm>,
}

impl Network {
    pub(super) fn up(wanted: &NetworkSpec<'_>) -> Result<Self> {
        let folder = testbed::folder()?;
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let bed = Bed::up(&topology(wanted.environment), &format!("forward{number}"))?;
        let router = bed.host(ROUTER)?;
        let to = router.interface(SINK)?;
        let hops = route(router, to, wanted.prefixes)?;
        let source = bed.host(XDP)?.interface(ROUTER)?.v4;
        let mut flow_routes = flow_routes(wanted, &hops)?;
        let filter = Filter::new(wanted.rules, &mut flow_routes, source, PORTS);
        let rules = filter.load(router, folder.path())?;
        let sink = bed.host(SINK)?;
        let run = std::process::id() ^ 0x666f_0000;
        let programs = Programs::attach(&ProgramsSpec {
            router,
            from: router.interface(FIB)?,
            to,
            sink,
            at: sink.interface(ROUTER)?,
            run,
            flow_routes: &flow_routes,
            open: filter.open,
        })?;
        let rules = rules.as_deref();
        let under_test = match wanted.program {
            None => {
                let folder = folder.path();
                let process = RouterProcess::start(wanted.lowroad, router, XDP, rules, folder)?;
                Router::Lowroad(process)
            }
            Some(program) => {
                let values = values(router, rules)?;
                let place = Place::Host(router);
                let process = ProgramProcess::start(program, place, values, folder.path())?;
                Router::Program(Some(Box::new(process)))
            }
        };
        Ok(Self {
            router: under_test,
            programs,
            bed,
            flow_routes,
            open: filter.open,
            source,
            run,
            cpu: wanted.cpu,
            _folder: folder,
        })
    }

    /// The processes that route.
    pub(super) fn pids(&self) -> Vec<u32> {
        match &self.router {
            Router::Lowroad(process) => vec![process.pid()],
            Router::Program(process) => process.iter().flat_map(|process| process.pids()).collect(),
        }
    }

    /// Notes what routes.
    ///
    /// # Errors
    /// A program has ended by itself.
    pub(super) fn note(&mut self, arm: &str, outcome: &mut Outcome) -> Result<()> {
        outcome.environment.extend(self.bed.facts());
        match &mut self.router {
            Router::Lowroad(process) if arm == XDP => {
                let ready = process.ready.clone().into();
                outcome.environment.insert("router".to_owned(), ready);
                Ok(())
            }
            Router::Program(Some(process)) => process.note(outcome),
            Router::Lowroad(_) | Router::Program(None) => Ok(()),
        }
    }

    /// Sends to an arm's router.
    pub(super) fn send(&self, arm: &str, backend: &Backend, amount: Amount) -> Result<SendReport> {
        let sender = match self.router {
            Router::Lowroad(_) => arm,
            Router::Program(_) => PROGRAM_SENDER,
        };
        let host = self.bed.host(sender)?;
        let interface = host.interface(ROUTER)?;
        let to = interface.peers.first().context("a link has two ends")?;
        let offered = Offered {
            backend: backend.clone(),
            ifindex: interface.ifindex,
            source: SocketAddr::new(self.source, PORTS.0),
            destinations: self
                .flow_routes
                .iter()
                .map(|flow_route| SocketAddr::new(flow_route.destination.into(), PORTS.1))
                .collect(),
            source_mac: interface.mac,
            destination_mac: to.mac,
            payload_len: PAYLOAD,
            rate: None,
            amount,
            burst: BURST,
            run: self.run,
            cpu: Some(self.cpu),
            fifo: false,
        };
        Ok(host.run(|| loadgen::generate(&offered, &AtomicBool::new(false)))??)
    }

    /// The packets at the sink, once no more arrive.
    pub(super) fn arrived(&self) -> Result<ArrivalCounts> {
        let mut before = self.programs.arrived()?;
        loop {
            std::thread::sleep(QUIET);
            let now = self.programs.arrived()?;
            if now == before {
                return Ok(now);
            }
            before = now;
        }
    }

    /// How many of the packets sent a rule drops.
    pub(super) fn forbidden(&self, sent: &SendReport) -> u64 {
        sent.flows.iter().skip(self.open).sum()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let Router::Program(process) = &mut self.router else {
            return;
        };
        if let Some(Err(error)) = process.take().map(|process| process.stop()) {
            tracing::warn!("{error:#}");
        }
    }
}

/// The values of a program's placeholders.
fn values(router: &Host, rules: Option<&Path>) -> Result<Values> {
    let from = router.interface(PROGRAM_SENDER)?;
    let to = router.interface(SINK)?;
    let one = |value: String| vec![value];
    let mut values = Values::from([
        ("interface", one(from.name.clone())),
        ("egress_interface", one(to.name.clone())),
        ("address", one(from.v4.to_string())),
        ("egress_address", one(to.v4.to_string())),
    ]);
    values.extend(rules.map(|rules| ("rules", one(rules.display().to_string()))));
    Ok(values)
}

fn topology(environment: &str) -> Topology {
    let mut topology = Topology::default();
    let mut host = |name: &str, forward: bool| {
        let mut host = match forward {
            true => program::host(environment),
            false => HostSpec::native(),
        };
        host.settings.forward = forward;
        topology.host.insert(name.to_owned(), host);
    };
    host(ROUTER, true);
    host(SINK, false);
    for sender in ARMS {
        host(sender, false);
    }
    let ends = std::iter::once([ROUTER, SINK]);
    for ends in ends.chain(ARMS.map(|sender| [sender, ROUTER])) {
        let mut link = LinkSpec::new(LinkKind::Direct, &ends);
        // A frame is forwarded as it is.
        link.settings.tx_checksum = false;
        link.settings.tso = false;
        link.settings.udp_segmentation = false;
        topology.link.push(link);
    }
    topology
}

/// Gives the table to the kernel; returns how a next hop is called by number.
fn route(router: &Host, to: &Interface, prefixes: &Prefixes) -> Result<Vec<[u8; 6]>> {
    let IpAddr::V4(own) = to.v4 else {
        anyhow::bail!("no IPv4 address on the link to the sink");
    };
    let gateway = |hop: u16| {
        let [a, b, c, _] = own.octets();
        let last = u8::try_from(hop)
            .unwrap_or(u8::MAX)
            .saturating_add(FIRST_HOP - 1);
        IpAddr::from(Ipv4Addr::new(a, b, c, last))
    };
    let mac = |hop: u16| [2, 0x10, 0xad, 0xfe, 0, hop.to_be_bytes()[1]];
    let hops: Vec<_> = (1..=MAX_NEXT_HOPS)
        .map(|hop| (to.ifindex, gateway(hop), mac(hop)))
        .collect();
    let mut netlink = router.netlink();
    netlink.set_neighbours(&hops, NeighbourState::Permanent)?;
    let routes: Vec<Route> = prefixes
        .routes4()
        .map(|(first, prefix_len, hop)| Route {
            destination: first.into(),
            prefix_len,
            gateway: Some(gateway(hop)),
            ifindex: Some(to.ifindex),
            mtu: None,
        })
        .collect();
    for some in routes.chunks(ROUTE_BATCH) {
        netlink.add_routes(some)?;
    }
    Ok((0..=MAX_NEXT_HOPS).map(mac).collect())
}

/// Destinations that a router forwards to, and the neighbour of each.
fn flow_routes(wanted: &NetworkSpec<'_>, hops: &[[u8; 6]]) -> Result<Vec<FlowRoute>> {
    // One destination in thirty may have no route.
    let count = wanted.flows + wanted.flows / 8 + 64;
    let keys = wanted.prefixes.keys(wanted.traffic, count, SEED)?;
    let flow_route = |key: u128| {
        let destination = Ipv4Addr::from_bits(u32::try_from(key).ok()?);
        let unicast = !matches!(destination.octets()[0], 0 | 10 | 127 | 224..);
        let hop = wanted.prefixes.answer(key);
        let neighbour = *hops.get(usize::from(hop))?;
        (unicast && hop != lpm::NO_ROUTE).then_some(FlowRoute {
            destination,
            neighbour,
        })
    };
    let flow_routes: Vec<_> = keys
        .into_iter()
        .filter_map(flow_route)
        .take(wanted.flows)
        .collect();
    anyhow::ensure!(
        flow_routes.len() == wanted.flows,
        "too few destinations have a route"
    );
    Ok(flow_routes)
}
