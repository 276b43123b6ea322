//! Forwarding trials: packets a second from sender to sink, of all that can be sent, by routers that
//! route by one and the same table of a kernel.

mod filter;
mod network;
mod process;
mod programs;
bpf::skeleton!(mod skel = "forward");

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use datapath::Missing;
use loadgen::{Amount, Backend};
use probes::occupancy::OccupancyProbe;

pub(super) use self::network::MAX_NEXT_HOPS;
use self::network::{Network, NetworkSpec};
use super::files::{Files, table_key};
use super::tables::{Table, Traffic};
use crate::account::{accountant, idle, spent, watch};
use crate::arms::ProgramArm;
use crate::jobs::router::load::{Load, TrialSpec};
use crate::load::SharedSetUp;
use crate::noise::Watch;
use crate::outcome::Outcome;
use crate::program::program;

/// `lowroad router run --datapath xdp`.
const XDP: &str = "xdp";
/// An XDP program that asks the kernel by `bpf_fib_lookup` for each packet.
const FIB: &str = "xdp-fib";
/// The kernel itself.
const KERNEL: &str = "kernel";
/// Every router there is.
pub(super) const ARMS: [&str; 3] = [XDP, FIB, KERNEL];

/// The options of a load: who makes frames, and how many rules there are.
pub(super) const GENERATOR: &str = "generator";
pub(super) const RULES: &str = "rules";

/// Packets before the measured ones.
const WARM_UP: Duration = Duration::from_millis(50);

/// Why this machine cannot run the router.
pub(super) fn check(arm: &str) -> Result<(), Missing> {
    match arm {
        XDP | FIB => router::service::check(router::config::Datapath::Xdp),
        _ => Ok(()),
    }
}

/// The arguments of a command that a build accepts if it can forward.
pub(super) fn build_check(folder: &Path) -> Vec<OsString> {
    let mut arguments = process::arguments("lo", Some(Path::new("rules")), folder);
    arguments.push("--help".into());
    arguments
}

/// The name in `lowroad doctor` of an arm's datapath, if it has one.
pub(in crate::jobs::router) fn datapath(arm: &str) -> Option<&str> {
    Some(arm).filter(|arm| *arm == XDP)
}

/// Why the router does not route where its host is a guest.
pub(in crate::jobs::router) fn applies_in(
    arm: &str,
    load: &Load,
    guest: bool,
) -> Result<(), Missing> {
    match arm {
        _ if !guest => Ok(()),
        _ if rules(load) > 0 => Err(Missing::new(
            "nft loads the rules, and a guest has no nft",
            "see them in native or oci",
        )),
        FIB => Err(Missing::new(
            "its program is loaded from outside, which cannot reach a guest's kernel",
            "xdp and kernel route there",
        )),
        _ => Ok(()),
    }
}

/// Why this machine cannot offer the load.
pub(super) fn check_load(load: &Load) -> Result<(), Missing> {
    match rules(load) {
        0 => Ok(()),
        _ => program("nft", "apt-get install nftables"),
    }
}

/// Why the router does not route under this load, where it does under others.
pub(super) fn applies(arm: &str, load: &Load) -> Result<(), Missing> {
    match arm {
        KERNEL if backend(load) == Some(Backend::Live) => Err(Missing::new(
            "the network stack behind a veth takes in only a thousand of XDP's frames a second",
            "it is measured with generator=af-xdp",
        )),
        FIB if rules(load) > 0 => Err(Missing::new(
            "bpf_fib_lookup knows no rules",
            "it is measured without rules",
        )),
        _ => Ok(()),
    }
}

/// Why an external program does not route under this load.
pub(super) fn program_applies(program: &ProgramArm, load: &Load) -> Result<(), Missing> {
    if backend(load) == Some(Backend::Live) {
        return applies(KERNEL, load);
    }
    match program.uses("rules") && rules(load) == 0 {
        true => Err(Missing::new(
            "it filters by rules that the load does not have",
            "it is measured under loads with rules",
        )),
        false => Ok(()),
    }
}

/// Checks the options of a load.
pub(super) fn check_options(load: &Load) -> Result<(), String> {
    for (name, value) in &load.options {
        let count = value.as_integer();
        match name.as_str() {
            GENERATOR => {}
            RULES if count.is_some_and(|count| (1..=100_000).contains(&count)) => {}
            _ => {
                return Err("options of forwarding are generator and rules, 1 to 100000".to_owned());
            }
        }
    }
    match backend(load) {
        Some(_) => Ok(()),
        None => Err("forwarding needs options = { generator = \"live\" } or \"af-xdp\"".to_owned()),
    }
}

fn backend(load: &Load) -> Option<Backend> {
    match load.options.get(GENERATOR)?.as_str()? {
        "live" => Some(Backend::Live),
        "af-xdp" => Some(Backend::AfXdp),
        _ => None,
    }
}

fn rules(load: &Load) -> usize {
    let count = load.options.get(RULES).and_then(toml::Value::as_integer);
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
}

/// How long a kernel and a router take together to add a route: 901 899 routes took 11 s on two cores (three runs).
const SECONDS_PER_ROUTE: f64 = 12.5e-6;

/// What is set up once for all trials under the load, for one build.
pub(super) fn shared_set_up(load: &Load) -> Option<SharedSetUp> {
    let (Some(Table::Ipv4(routes)) | Some(Table::Ipv6(routes))) = load.table else {
        return None;
    };
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = routes as f64 * SECONDS_PER_ROUTE;
    Some(SharedSetUp {
        key: network_key(load),
        seconds,
    })
}

/// Loads that one network serves have the same key.
fn network_key(load: &Load) -> String {
    let (table, rules) = (table_key(load), rules(load));
    format!("{table} {:?} {:?} {rules}", load.traffic, load.flows)
}

/// The networks that are up, which stay: a kernel takes seconds to take a full table in.
#[derive(Debug, Default)]
pub(super) struct Networks {
    up: HashMap<String, Network>,
    /// How long bringing them up has taken.
    pub(super) set_up_time: Duration,
}

impl Networks {
    /// The load's network: one for all arms of the job, one for each other build, and one for each program.
    fn of(&mut self, spec: &TrialSpec<'_>, files: &mut Files, cpu: usize) -> Result<&mut Network> {
        let load = spec.load;
        let flows = load.flows.context("the load has no flows")?;
        let traffic = load.traffic.unwrap_or(Traffic::PerPrefix);
        let rules = rules(load);
        let build = spec.lowroad.path().display();
        let program = spec.program.map_or("", |program| &program.name);
        let key = format!("{} {build} {program}", network_key(load));
        if !self.up.contains_key(&key) {
            let started = Instant::now();
            let network = Network::up(&NetworkSpec {
                prefixes: files.prefixes(load)?,
                traffic,
                flows,
                rules,
                cpu,
                environment: spec.environment,
                lowroad: spec.lowroad,
                program: spec.program,
            })?;
            self.up.insert(key.clone(), network);
            self.set_up_time += started.elapsed();
        }
        self.up.get_mut(&key).context("it was just brought up")
    }

    /// Brings the load's network up, before the machine is looked at.
    pub(super) fn prepare(
        &mut self,
        spec: &TrialSpec<'_>,
        files: &mut Files,
        cpu: usize,
    ) -> Result<()> {
        self.of(spec, files, cpu).map(drop)
    }

    pub(super) fn trial(
        &mut self,
        spec: &TrialSpec<'_>,
        files: &mut Files,
        cpu: usize,
        foreign: &OccupancyProbe,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let load = spec.load;
        let network = self.of(spec, files, cpu)?;
        let backend = backend(load).context("a load with a generator")?;
        network.send(spec.arm, &backend, Amount::Time(WARM_UP))?;
        let before = network.arrived()?;
        let own = network.pids();
        let noise = Watch::start(foreign, &own)?;
        let sent = network.send(spec.arm, &backend, Amount::Time(load.duration.0))?;
        noise.end(&own, outcome)?;
        let arrived = network.arrived()?.since(before);
        arrived.check()?;
        let sending_ns = match sent.sending_ns {
            0 => sent.elapsed_ns,
            ns => ns,
        };
        let seconds = sending_ns as f64 / 1e9;
        let packets = arrived.packets as f64;
        for (name, value) in [
            ("forward_pps", packets / seconds),
            ("offered_pps", sent.sent as f64 / seconds),
        ] {
            outcome.values.insert(name.to_owned(), value);
        }
        for (name, count) in [
            ("sent", sent.sent),
            ("forwarded", arrived.packets),
            ("looked_at", arrived.looked_at),
            ("forbidden", network.forbidden(&sent)),
        ] {
            outcome.counts.insert(name.to_owned(), count);
        }
        account(network, spec, &backend, outcome)?;
        network.note(spec.arm, outcome)
    }
}

/// The cost of a packet on the machine without sending it, in a separate window, because tracepoints add to
/// the cost that they measure.
fn account(
    network: &Network,
    spec: &TrialSpec<'_>,
    backend: &Backend,
    outcome: &mut Outcome,
) -> Result<()> {
    let accountant = accountant()?;
    let idle = idle(&accountant)?;
    let before = network.arrived()?;
    let amount = Amount::Time(spec.load.duration.0);
    let (usage, _) = watch(&accountant, || network.send(spec.arm, backend, amount))?;
    let arrived = network.arrived()?.since(before);
    arrived.check()?;
    let value = spent(&usage, &idle) / arrived.packets as f64;
    outcome.values.insert("cpu_ns_per_packet".to_owned(), value);
    outcome.cpu = usage.by_name();
    outcome.violations.extend(usage.violations());
    Ok(())
}
