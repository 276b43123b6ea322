//! Trials of external programs: a server in one namespace, and a client in another that prints what it measured.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use datapath::Missing;
use netbench::Test;
use probes::occupancy::OccupancyProbe;
use testbed::{Bed, HostSpec, Topology};

use super::load::{Load, Measure, TrialSpec};
use super::tool::PORT;
use super::{metric_names, path};
use crate::arms::{
    FOLDER, HERE, Place, Placeholder, ProgramArm, ProgramProcess, ProgramTerms, Values,
};
use crate::cpus;
use crate::load::JobMeasure as _;
use crate::noise::Watch;
use crate::outcome::Outcome;

const CLIENT: &str = "client";
const SERVER: &str = "server";

/// Options of loads that a client may ask for.
const RATE: &str = "rate";
const SIZE: &str = "size";
const FLOWS: &str = "flows";

/// How pairs of a server and a client are arms.
pub(super) const TERMS: ProgramTerms = ProgramTerms {
    placeholders: &[
        Placeholder::new("address", "the server's address"),
        Placeholder::new("port", "a port of the server"),
        Placeholder::new("client_address", "the client's address"),
        Placeholder::new("test", "the load's test, such as `tcp_rr`"),
        Placeholder::new(
            "seconds",
            "the load's duration in whole seconds, rounded up",
        ),
        Placeholder::new(SIZE, "the load's size in bytes"),
        Placeholder::new(RATE, "the load's rate a second"),
        Placeholder::new(FLOWS, "the load's number of sockets"),
        FOLDER,
        HERE,
    ],
    metrics: Some(metric_names),
    ..ProgramTerms::NONE
};

fn metric_names() -> Vec<String> {
    let metrics = metric_names::metrics().into_iter();
    let names = metrics.map(|metric| metric.name);
    let cpu = [metric_names::CPU_OF_TRANSACTION, metric_names::CPU_OF_GBIT];
    // The machine's CPU is measured here.
    names.filter(|name| !cpu.contains(&name.as_str())).collect()
}

/// The metrics of a test.
fn metrics_of(test: Test) -> Vec<String> {
    match test.streams() {
        true => vec![metric_names::goodput(test), metric_names::loss(test)],
        false => vec![
            metric_names::p50(test),
            metric_names::p99(test),
            metric_names::TRANSACTIONS.to_owned(),
        ],
    }
}

/// Why a pair is not measured under this load.
pub(super) fn applies(program: &ProgramArm, load: &Load, measure: Measure) -> Result<(), Missing> {
    let refuse = |what: String| Err(Missing::new(what, "leave out the arm or the load"));
    let Some(test) = load.test() else {
        return refuse("the load has no test".to_owned());
    };
    let metrics = metrics_of(test);
    if !program
        .values
        .iter()
        .any(|value| metrics.contains(&value.metric))
    {
        return refuse(format!("it has no metric of {test}"));
    }
    if measure.sees_all_cpus() {
        return refuse(
            "the CPU of external programs is not measured: it is not known when they send"
                .to_owned(),
        );
    }
    let asked = [
        (RATE, load.rate().is_some()),
        (SIZE, load.size().is_some()),
        (FLOWS, load.flows() > 1),
    ];
    let mut options = asked[..2].iter();
    if let Some((name, _)) = options.find(|(name, asked)| !*asked && program.uses(name)) {
        return refuse(format!("the load has no {name}, which it uses"));
    }
    // Nothing that was asked for is left out in silence.
    match asked
        .iter()
        .find(|(name, asked)| *asked && !program.uses(name))
    {
        Some((name, _)) => refuse(format!(
            "it does not take the load's {name}: use {{{name}}}"
        )),
        None => Ok(()),
    }
}

/// Runs a trial, and the bed that it ran in.
pub(super) fn trial(
    foreign: &OccupancyProbe,
    program: &ProgramArm,
    spec: &TrialSpec<'_>,
) -> Result<(Bed, Outcome)> {
    let folder = testbed::folder()?;
    let cpus = cpus::ends()?;
    let mut topology = Topology::default();
    for (name, cpu) in [CLIENT, SERVER].into_iter().zip(cpus) {
        let mut host = HostSpec::native();
        host.cpus = vec![cpu];
        topology.host.insert(name.to_owned(), host);
    }
    let ends = [CLIENT, SERVER];
    topology
        .link
        .push(path::link(spec.load.path.as_ref(), &ends));
    static TRIALS: AtomicU32 = AtomicU32::new(0);
    let number = TRIALS.fetch_add(1, Ordering::Relaxed);
    let bed = Bed::up(&topology, &format!("p{number}"))?;
    let test = spec.load.test().context("a load without a test")?;
    let (server, client) = (bed.host(SERVER)?, bed.host(CLIENT)?);
    let one = |value: String| vec![value];
    let mut values = Values::from([
        ("address", one(server.interface(CLIENT)?.v4.to_string())),
        ("port", one(PORT.to_string())),
        (
            "client_address",
            one(client.interface(SERVER)?.v4.to_string()),
        ),
        ("test", one(test.name().to_owned())),
        (
            "seconds",
            one(whole_seconds(spec.load.duration.0).to_string()),
        ),
        (FLOWS, one(spec.load.flows().to_string())),
    ]);
    let options = [(RATE, spec.load.rate()), (SIZE, spec.load.size())];
    for (name, value) in options {
        values.extend(value.map(|value| (name, one(value.to_string()))));
    }
    let mut outcome = Outcome::default();
    let mut process = ProgramProcess::start(program, Place::Host(server), values, folder.path())?;
    let watch = Watch::start_on(cpus.to_vec(), foreign, &process.pids())?;
    let (output, own) = process.run_client(Place::Host(client), spec.load.duration.0)?;
    watch.end(&own, &mut outcome)?;
    let metrics = metrics_of(test);
    for value in &program.values {
        if metrics.contains(&value.metric) {
            let number = value.of(&output);
            let number = number.with_context(|| format!("{}: {}", program.name, value.metric))?;
            ensure!(
                number.is_finite() && number >= 0.0,
                "{}: {} is {number}",
                program.name,
                value.metric
            );
            outcome.values.insert(value.metric.clone(), number);
        }
    }
    process.note(&mut outcome)?;
    process.stop()?;
    outcome.environment.extend(bed.facts());
    Ok((bed, outcome))
}

/// A duration in whole seconds, rounded up: many programs take no other.
fn whole_seconds(duration: Duration) -> u64 {
    let rest = u64::from(duration.subsec_nanos() > 0);
    (duration.as_secs() + rest).max(1)
}

#[cfg(test)]
mod tests {
    use control::config::Document;

    use super::*;
    use crate::catalog::{self, loads_of};

    fn pair(more: &str) -> Result<ProgramArm, String> {
        let text = format!(
            "command = [\"serve\", \"{{port}}\"]\nready = {{ tcp = \"{{port}}\" }}\n{more}"
        );
        let job = catalog::job("netbench").unwrap();
        let arms = (job.arms)();
        let document = Document::new("mine.toml", text);
        let arm = ProgramArm::read(&document, Some("mine"), &job.program_rules(&arms));
        arm.map_err(|error| error.to_string())
    }

    #[test]
    fn seconds_of_a_load_are_whole() {
        let durations = [0, 200, 1000, 1001].map(Duration::from_millis);
        assert_eq!(durations.map(whole_seconds), [1, 1, 1, 2]);
    }

    #[test]
    fn pair_is_measured_under_loads_that_it_takes() {
        let values = "values = [{ metric = \"tcp_rr_us_p50\", json = \"p50\" }]\n";
        let plain = pair(&format!("client = \"ask {{address}}\"\n{values}")).unwrap();
        let sized = pair(&format!("client = \"ask {{address}} {{size}}\"\n{values}")).unwrap();
        let mut load = loads_of::<Load>("netbench-matrix").remove(0);
        let mut why = |program: &ProgramArm, options: &str, measure| {
            load.options = toml::from_str(options).unwrap();
            let missing = applies(program, &load, measure).err();
            missing.map_or_else(String::new, |missing| missing.what)
        };
        let rr = "test = \"tcp_rr\"";
        assert_eq!(why(&plain, rr, Measure::Exchange), "");
        assert!(why(&plain, rr, Measure::Cpu).contains("CPU"));
        assert!(
            why(&plain, "test = \"udp_rr\"", Measure::Exchange).contains("no metric of udp_rr")
        );
        let of_size = "test = \"tcp_rr\"\nsize = 64";
        assert!(why(&plain, of_size, Measure::Exchange).contains("use {size}"));
        assert_eq!(why(&sized, of_size, Measure::Exchange), "");
        assert!(why(&sized, rr, Measure::Exchange).contains("no size"));
        assert!(why(&plain, "test = \"tcp_rr\"\nflows = 2", Measure::Exchange).contains("{flows}"));
    }

    #[test]
    fn pair_without_a_client_or_values_is_refused_with_its_line() {
        const CLIENT: &str = "client = \"ask {address}\"\n";
        for (more, line, what) in [
            ("", 1, "client is missing"),
            (CLIENT, 1, "values is missing"),
            (
                &format!("{CLIENT}values = [{{ metric = \"tcp_rr_us_p05\", json = \"a\" }}]\n"),
                4,
                "did you mean \"tcp_rr_us_p50\"?",
            ),
            (
                &format!("{CLIENT}values = [{{ metric = \"tcp_rr_us_p50\" }}]\n"),
                4,
                "either json or pattern",
            ),
        ] {
            let said = pair(more).unwrap_err();
            let place = format!("mine.toml:{line}: ");
            assert!(said.starts_with(&place) && said.contains(what), "{said}");
        }
    }
}
