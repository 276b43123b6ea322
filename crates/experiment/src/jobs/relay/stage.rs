//! The stage of a relay trial: sender, relay and receiver in namespaces of their own, fresh each
//! time, with the relay (or an external program, or nothing) in the middle.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use probes::delay::Point;
use testbed::{Bed, Host, Impairment, Interface, LinkKind, LinkSpec, Peer, Topology};

use super::FLOOR;
use super::process::RelayProcess;
use crate::arms::{Place, ProgramArm, ProgramProcess, Values};
use crate::environment::NATIVE;
use crate::jobs::relay::load::{Link, Load};
use crate::outcome::Outcome;
use crate::program::{self, Lowroad};

/// The port streams come in on.
const INGEST_PORT: u16 = 5004;
/// The port the generator sends from.
const SENDER_PORT: u16 = 40_004;
/// Subscriber `i` listens on this port plus `i`.
const FIRST_SUBSCRIBER_PORT: u16 = 7000;

/// Hosts by name, each with its environment and the CPUs it is confined to, in one row.
fn row(hosts: &[(&str, &str, &[usize])], link: Link) -> Topology {
    let kind = match link {
        Link::Direct => LinkKind::Direct,
        Link::Bridge => LinkKind::Bridge,
    };
    let mut topology = Topology::default();
    for (name, environment, cpus) in hosts {
        let mut host = program::host(environment);
        host.cpus = cpus.to_vec();
        topology.host.insert((*name).to_owned(), host);
    }
    for pair in hosts.windows(2) {
        let mut link = LinkSpec::new(kind, &[pair[0].0, pair[1].0]);
        // A veth would carry 64 datagrams as one frame, which is not forwarding 64 packets: the
        // stack segments before the device.
        link.settings.udp_segmentation = false;
        topology.link.push(link);
    }
    topology
}

/// The topology with the load's jitter on the link that the sender is on.
fn with_jitter(mut topology: Topology, load: &Load) -> Result<Topology> {
    let (Some(jitter), Some(first)) = (load.jitter, topology.link.first_mut()) else {
        return Ok(topology);
    };
    let impairment = Impairment {
        jitter_us: u32::try_from(jitter.0.as_micros()).context("a jitter of hours")?,
        ..Impairment::default()
    };
    let ends: Vec<&str> = first.ends.iter().map(String::as_str).collect();
    *first = LinkSpec::impaired(&ends, impairment);
    Ok(topology)
}

/// The program that forwards packets from the sender to the receiver.
#[derive(Debug)]
pub(super) enum Forwarder {
    Nothing,
    Relay(RelayProcess),
    Program(Box<ProgramProcess>),
}

/// A stage that is up: packets sent to `ingest` reach every subscriber.
#[derive(Debug)]
pub(crate) struct Stage {
    // Dropped in this order: the relay ends before its namespaces do.
    forwarder: Forwarder,
    bare: bool,
    pub(crate) bed: Bed,
    pub ingest: SocketAddr,
    pub sender: SocketAddr,
    pub subscribers: Vec<SocketAddr>,
    pub folder: tempfile::TempDir,
}

/// How the stage is laid out for an arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    pub arm: &'a str,
    /// The build that relays.
    pub lowroad: &'a Lowroad,
    /// The external program that relays instead.
    pub program: Option<&'a ProgramArm>,
    pub load: &'a Load,
    pub sender_cpu: usize,
    pub relay_cpu: usize,
    /// Where the relay is; all else is native.
    pub environment: &'a str,
}

impl Stage {
    pub(crate) fn set(layout: &Layout<'_>) -> Result<Self> {
        let folder = testbed::folder()?;
        let bare = layout.arm == FLOOR;
        let (sender_cpu, relay_cpu) = ([layout.sender_cpu], [layout.relay_cpu]);
        let mut hosts: Vec<(&str, &str, &[usize])> =
            vec![("sender", NATIVE, &sender_cpu), ("receiver", NATIVE, &[])];
        if !bare {
            hosts.insert(1, ("relay", layout.environment, &relay_cpu));
        }
        let topology = row(&hosts, layout.load.link);
        let topology = with_jitter(topology, layout.load)?;
        let bed = Bed::up(&topology, &trial_name())?;
        let (after_sender, before_receiver) = neighbours(bare);
        let near = bed.host("sender")?.interface(after_sender)?.v4;
        let far = bed.host("receiver")?.interface(before_receiver)?.v4;
        let subscribers: Vec<_> = (FIRST_SUBSCRIBER_PORT..)
            .take(layout.load.subscribers)
            .map(|port| SocketAddr::new(far, port))
            .collect();
        let mut stage = Self {
            forwarder: Forwarder::Nothing,
            bare,
            ingest: subscribers[0],
            bed,
            sender: SocketAddr::new(near, SENDER_PORT),
            subscribers,
            folder,
        };
        if !bare {
            stage.forwarder = stage.place(layout)?;
        }
        Ok(stage)
    }

    /// Starts the forwarder, and learns where packets must be sent to.
    fn place(&mut self, layout: &Layout<'_>) -> Result<Forwarder> {
        let relay = self.bed.host("relay")?;
        let inside = relay.interface("sender")?.v4;
        self.ingest = SocketAddr::new(inside, INGEST_PORT);
        if let Some(program) = layout.program {
            let (place, folder) = (Place::Host(relay), self.folder.path());
            let started = ProgramProcess::start(program, place, self.values()?, folder)?;
            if let Some(address) = started.address()? {
                self.ingest = address;
            }
            return Ok(Forwarder::Program(Box::new(started)));
        }
        let config = config(&RelayConfig {
            folder: self.folder.path(),
            cpus: &relay.cpus(),
            ingest: self.ingest,
            datapath: layout.arm,
            load: layout.load,
            subscribers: &self.subscribers,
        });
        let process = RelayProcess::start(layout.lowroad, relay, self.folder.path(), &config)?;
        Ok(Forwarder::Relay(process))
    }

    /// The values of a program's placeholders.
    fn values(&self) -> Result<Values> {
        let relay = self.bed.host("relay")?;
        let (before, after) = (relay.interface("sender")?, relay.interface("receiver")?);
        let subscribers = self.subscribers.iter().map(SocketAddr::to_string);
        let first = self.subscribers[0];
        let one = |value: String| vec![value];
        Ok(Values::from([
            ("listen", one(self.ingest.to_string())),
            ("address", one(self.ingest.ip().to_string())),
            ("port", one(self.ingest.port().to_string())),
            ("subscribers", subscribers.collect()),
            ("subscriber", one(first.to_string())),
            ("subscriber_address", one(first.ip().to_string())),
            ("subscriber_port", one(first.port().to_string())),
            ("sender", one(self.sender.to_string())),
            ("egress_address", one(after.v4.to_string())),
            ("interface", one(before.name.clone())),
            ("egress_interface", one(after.name.clone())),
        ]))
    }

    /// The relay process, in arms that have one.
    pub(super) fn relay(&self) -> Option<&RelayProcess> {
        match &self.forwarder {
            Forwarder::Relay(relay) => Some(relay),
            Forwarder::Nothing | Forwarder::Program(_) => None,
        }
    }

    /// Whether an external program relays.
    pub(super) fn has_program(&self) -> bool {
        matches!(self.forwarder, Forwarder::Program(_))
    }

    /// The process that relays, in arms that have one.
    pub(super) fn relay_pids(&self) -> Vec<u32> {
        match &self.forwarder {
            Forwarder::Nothing => Vec::new(),
            Forwarder::Relay(relay) => vec![relay.pid()],
            Forwarder::Program(program) => program.pids(),
        }
    }

    /// The sender's device and the one it sends to.
    pub(super) fn first_hop(&self) -> Result<(&Interface, &Peer)> {
        let interface = self
            .bed
            .host("sender")?
            .interface(neighbours(self.bare).0)?;
        let peer = interface.peers.first().context("a link has two ends")?;
        Ok((interface, peer))
    }

    pub(super) fn sender_point(&self) -> Result<Point> {
        point(self.bed.host("sender")?, neighbours(self.bare).0)
    }

    pub(crate) fn receiver_point(&self) -> Result<Point> {
        point(self.bed.host("receiver")?, neighbours(self.bare).1)
    }

    /// Ends the forwarder.
    pub(super) fn stop(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.forwarder, Forwarder::Nothing) {
            Forwarder::Program(program) => program.stop(),
            Forwarder::Nothing | Forwarder::Relay(_) => Ok(()),
        }
    }

    /// Notes what was set, and the relay's own counters.
    ///
    /// # Errors
    /// The forwarder has ended by itself.
    pub(super) fn note(&mut self, outcome: &mut Outcome) -> Result<()> {
        outcome.environment.extend(self.bed.facts());
        match &mut self.forwarder {
            Forwarder::Program(program) => program.note(outcome)?,
            Forwarder::Nothing => {}
            Forwarder::Relay(relay) => {
                let counters = relay.counters(self.bed.host("relay")?)?;
                outcome.environment.insert("relay".to_owned(), counters);
            }
        }
        Ok(())
    }
}

/// A name for a bed that no other bed of this process has.
fn trial_name() -> String {
    static TRIALS: AtomicU32 = AtomicU32::new(0);
    format!("t{}", TRIALS.fetch_add(1, Ordering::Relaxed))
}

/// Whom the sender sends to, and whom the receiver receives from.
fn neighbours(bare: bool) -> (&'static str, &'static str) {
    if bare {
        ("receiver", "sender")
    } else {
        ("relay", "relay")
    }
}

fn point(host: &Host, toward: &str) -> Result<Point> {
    Ok(Point {
        namespace: host.namespace().try_clone()?,
        ifindex: host.interface(toward)?.ifindex,
    })
}

/// The contents of a relay's configuration file.
pub(super) struct RelayConfig<'a> {
    pub(super) folder: &'a Path,
    pub(super) cpus: &'a [usize],
    pub(super) ingest: SocketAddr,
    pub(super) datapath: &'a str,
    pub(super) load: &'a Load,
    pub(super) subscribers: &'a [SocketAddr],
}

/// The relay's configuration file.
pub(super) fn config(relay: &RelayConfig<'_>) -> String {
    let mut text = format!(
        "[relay]\ncontrol = \"{}\"\ncpus = {:?}\n\n[[stream]]\nname = \"stream\"\nlisten = \"{}\"\ndatapath = \"{}\"\nsource = \"any\"\n",
        relay.folder.join("relay.sock").display(),
        relay.cpus,
        relay.ingest,
        relay.datapath,
    );
    for (key, value) in &relay.load.options {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    for (index, subscriber) in relay.subscribers.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n[[stream.subscriber]]\nname = \"r{index}\"\nto = \"{subscriber}\"\n"
        );
    }
    text
}
