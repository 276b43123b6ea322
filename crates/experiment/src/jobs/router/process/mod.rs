//! Trials of `lowroad router process`: the program that people run, with a device or CPUs, a process for
//! each trial. The figures that it prints are recorded.

mod arms;
mod generator;
mod inputs;
mod output;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, bail};
use datapath::Missing;
use lpm::Simd;
use probes::occupancy::OccupancyProbe;
use units::Pps;

pub(super) use self::arms::ARMS;
use self::arms::{Arm, Kind, Processor};
use self::generator::{Generator, Sink};
use self::inputs::{Inputs, Packets};
use super::files::Files;
use super::tables::{Table, Traffic};
use crate::jobs::router::load::{Load, TrialSpec};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// So many rules as firewalls have; none by default.
pub(super) const RULES: &str = "rules";
/// At which packets come; as fast as they are decided about by default.
const RATE: &str = "rate";
/// Options of `lowroad router process` that a load may set: for every arm, and for devices.
const EVERY: [&str; 3] = ["batch", "batch-wait", "function"];
const DEVICES: [&str; 4] = ["streams", "launch", "schedule", "gpu-result"];

/// Why this machine cannot run the arm.
pub(super) fn check(arm: &str) -> Result<(), Missing> {
    arms::find(arm).map_or(Ok(()), Arm::check)
}

/// Whether `lowroad router process` can be offered the load.
pub(super) fn check_load(load: &Load) -> Result<(), String> {
    let Some(Table::Ipv4(_)) = load.table else {
        return Err("process is measured with an ipv4 table".to_owned());
    };
    if !matches!(load.traffic, Some(Traffic::Random | Traffic::Pcap)) {
        return Err("traffic of process is random, pcap".to_owned());
    }
    for (name, value) in &load.options {
        let known = EVERY.contains(&name.as_str()) || DEVICES.contains(&name.as_str());
        let right = match (name.as_str(), value.as_integer()) {
            (RULES, Some(count)) => (1..=100_000).contains(&count),
            ("batch", Some(count)) => (1..=65_536).contains(&count),
            (RULES | "batch", None) => false,
            (RATE, _) => rate_of(value).is_some(),
            _ => known && (value.is_str() || value.is_integer()),
        };
        if !right {
            return Err(format!(
                "options of process are {RULES}, 1 to 100000, batch, 1 to 65536, {RATE}, as in \"100kpps\", and as lowroad router process has them {}, {}",
                EVERY[1..].join(", "),
                DEVICES.join(", ")
            ));
        }
    }
    if load.options.contains_key("batch-wait") && rate(load).is_none() {
        return Err(format!("batches wait for packets that come at a {RATE}"));
    }
    let filters = load.options.get("function").and_then(toml::Value::as_str);
    if matches!(filters, Some("acl" | "both")) && !load.options.contains_key(RULES) {
        return Err(format!("a function that filters needs {RULES}"));
    }
    Ok(())
}

/// How many rules a load has.
fn rules(load: &Load) -> usize {
    let count = load.options.get(RULES).and_then(toml::Value::as_integer);
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
}

/// When packets come.
fn rate(load: &Load) -> Option<Pps> {
    load.options.get(RATE).and_then(rate_of)
}

fn rate_of(value: &toml::Value) -> Option<Pps> {
    value.as_str()?.parse().ok()
}

/// Options as the command line has them.
fn arguments(arm: Arm, load: &Load) -> Vec<String> {
    let device = matches!(arm.processor, Processor::Device { .. });
    let passed = load.options.iter().filter(|(name, _)| {
        let name = name.as_str();
        // By a socket they come as the generator sends them.
        let every = EVERY.contains(&name) || name == RATE && arm.memory;
        every || device && DEVICES.contains(&name)
    });
    let words = passed.flat_map(|(name, value)| {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        [format!("--{name}"), value]
    });
    words.collect()
}

/// The inputs of trials, and the folder that they are in.
#[derive(Debug)]
pub(super) struct Process {
    inputs: Inputs,
    folder: PathBuf,
}

impl Process {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            inputs: Inputs::new(folder),
            folder: folder.to_owned(),
        }
    }

    /// Makes what the load's trials are given, before the machine is looked at.
    pub(super) fn prepare(&mut self, spec: &TrialSpec<'_>, files: &mut Files) -> Result<()> {
        self.inputs.image(spec.load, spec.lowroad, files)?;
        self.inputs.packets(spec.load).map(drop)
    }

    pub(super) fn trial(
        &mut self,
        spec: &TrialSpec<'_>,
        files: &mut Files,
        foreign: &OccupancyProbe,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let arm = arms::find(spec.arm).with_context(|| format!("no arm {}", spec.arm))?;
        let image = self.inputs.image(spec.load, spec.lowroad, files)?;
        let packets = self.inputs.packets(spec.load)?;
        let mut command = command(arm, spec, outcome)?;
        command.arg(&image);
        let errors = self.folder.join("process.stderr");
        let told = if arm.memory {
            packets.name(&mut command);
            command.stderr(File::create(&errors)?);
            let started = command.spawn().context("lowroad router process")?;
            let watch = Watch::start(foreign, &[started.id()])?;
            let own = [started.id()];
            let ended = started.wait_with_output()?;
            watch.end(&own, outcome)?;
            if !ended.status.success() {
                bail!("{}", last_line(&errors));
            }
            ended.stdout
        } else {
            exchange(command, &packets, rate(spec.load), foreign, outcome)?
        };
        let told = serde_json::from_slice(&told).context("the output of lowroad router process")?;
        output::note(&told, outcome)
    }
}

/// The first arguments of the program.
const VERB: [&str; 3] = ["router", "process", "--json"];

/// The arguments of a command that a build accepts if it can run the arm under the load.
pub(super) fn build_check(arm: &str, load: &Load) -> Result<Vec<OsString>> {
    let arm = arms::find(arm).with_context(|| format!("no arm {arm}"))?;
    let words = VERB.map(str::to_owned).into_iter();
    let words = words.chain(arguments(arm, load));
    Ok(words.chain(["--help".to_owned()]).map(Into::into).collect())
}

/// The program with what the arm and the load ask for.
fn command(arm: Arm, spec: &TrialSpec<'_>, outcome: &mut Outcome) -> Result<Command> {
    let mut command = spec.lowroad.command(&VERB);
    command.args(arguments(arm, spec.load));
    let ms = spec.load.duration.0.as_millis().max(1);
    command.args(["--duration", &format!("{ms}ms")]);
    match arm.processor {
        Processor::Threads(threads) => {
            let threads = threads.unwrap_or_else(arms::cpus);
            command.args(["--threads", &threads.to_string()]);
            command.args(["--simd", Simd::widest().name()]);
        }
        Processor::Device { kind, stage } => {
            let found = arms::devices().map_err(|missing| anyhow::anyhow!(missing.what))?;
            let device =
                arms::device(found, kind).map_err(|missing| anyhow::anyhow!(missing.what))?;
            command
                .args(["--device", &device.name])
                .args(stage.arguments());
            let launch = spec.load.options.get("launch");
            // Others are launched by no calls that the device could time.
            if launch.is_none_or(|launch| launch.as_str() == Some("stream")) {
                command.arg("--timeline");
            }
            for (name, value) in [
                ("device", &device.name),
                ("device.model", &device.model),
                ("device.driver", &device.driver),
            ] {
                outcome
                    .environment
                    .insert(name.to_owned(), value.as_str().into());
            }
            // The times are those of this machine's processor, not of a device.
            let emulated = kind == Kind::OpenClCpu;
            outcome
                .environment
                .insert("device.emulated".to_owned(), emulated.into());
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// A run whose packets come by a socket and go by another one.
fn exchange(
    mut command: Command,
    packets: &Packets,
    rate: Option<Pps>,
    foreign: &OccupancyProbe,
    outcome: &mut Outcome,
) -> Result<Vec<u8>> {
    let sink = Sink::open()?;
    let name = command.get_program().to_string_lossy().into_owned();
    command.args(["--io", "socket", "--listen", "127.0.0.1:0"]);
    command.args(["--to", &sink.address.to_string()]);
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .context("lowroad router process")?;
    let own = [child.id()];
    let said = child.stderr.take().context("what it says is piped")?;
    let (to, said) = match ready(said) {
        Ok(ready) => ready,
        Err(error) => return Err(ended(child, error.context(name))),
    };
    let watch = Watch::start(foreign, &own)?;
    let generator = Generator::start(packets, rate, to)?;
    let told = child.wait_with_output()?;
    watch.end(&own, outcome)?;
    let sent = generator.stop()?;
    outcome.counts.insert("sent".to_owned(), sent);
    if told.status.success() {
        return Ok(told.stdout);
    }
    bail!(
        "{}",
        said.lines()
            .map_while(Result::ok)
            .last()
            .unwrap_or_default()
    )
}

/// Where it receives, once it does, and what it says from then on.
fn ready(said: ChildStderr) -> Result<(std::net::SocketAddr, BufReader<ChildStderr>)> {
    let (mut said, mut last) = (BufReader::new(said), String::new());
    loop {
        let mut line = String::new();
        if said.read_line(&mut line)? == 0 {
            bail!("{}", last.trim());
        }
        if let Some(address) = line.strip_prefix("ready: frames as datagrams to ") {
            let address = address
                .trim()
                .parse()
                .context("the address it receives at")?;
            return Ok((address, said));
        }
        last = line;
    }
}

fn ended(mut child: Child, error: anyhow::Error) -> anyhow::Error {
    let _ended = child.kill();
    let _status = child.wait();
    error
}

fn last_line(errors: &Path) -> String {
    let said = std::fs::read_to_string(errors).unwrap_or_default();
    said.trim()
        .lines()
        .last()
        .unwrap_or("lowroad router process failed")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{self, loads_of};
    use crate::load::JobLoad;

    fn labels(name: &str) -> Vec<String> {
        loads_of::<Load>(name).iter().map(Load::label).collect()
    }

    #[test]
    fn the_story_has_batches_functions_and_rules() {
        assert_eq!(
            labels("router-story"),
            [
                "random 901899-prefixes batch=128 function=acl rules=1000",
                "random 901899-prefixes batch=1024 function=acl rules=1000",
                "random 901899-prefixes batch=4096 function=acl rules=1000",
                "random 901899-prefixes batch=16384 function=acl rules=1000",
                "random 901899-prefixes batch=65536 function=acl rules=1000",
                "random 901899-prefixes batch=128 function=lpm",
                "random 901899-prefixes batch=4096 function=lpm",
                "random 901899-prefixes batch=65536 function=lpm",
                "random 901899-prefixes batch=1024 function=both rules=1000",
                "random 901899-prefixes batch=16384 function=both rules=1000",
                "random 901899-prefixes batch=4096 function=acl rules=10",
                "random 901899-prefixes batch=4096 function=acl rules=100",
                "random 901899-prefixes batch=4096 function=acl rules=10000",
                "random 901899-prefixes batch=4096 function=acl rules=100000",
                "pcap 901899-prefixes batch=1024 function=both rules=1000",
                "random 901899-prefixes batch=16384 function=both rules=1000 streams=4",
                "random 901899-prefixes batch=1024 batch-wait=100us function=both rate=100kpps rules=1000",
                "random 901899-prefixes batch=1024 batch-wait=1ms function=both rate=100kpps rules=1000",
                "random 901899-prefixes batch=1024 batch-wait=10ms function=both rate=100kpps rules=1000",
            ]
        );
    }

    #[test]
    fn each_function_crosses_over_along_batches_and_rules() {
        let labels = labels("router-crossover");
        assert_eq!(labels.len(), 20);
        let of = |words: &str| labels.iter().filter(|label| label.contains(words)).count();
        assert_eq!(
            [of("function=lpm"), of("rules=100000"), of("batch=65536")],
            [4, 4, 5]
        );
    }

    #[test]
    fn a_look_takes_a_minute_and_a_half_at_most() {
        for name in ["router-story", "router-crossover"] {
            let seconds = catalog::find(name).unwrap().quick_seconds();
            assert!(seconds <= 90.0, "{name}: {seconds}");
        }
    }

    #[test]
    fn options_are_handed_on_and_those_of_devices_to_devices() {
        let mut load = loads_of::<Load>("router-story").remove(0);
        load.options.insert("streams".to_owned(), 4.into());
        load.options.insert("launch".to_owned(), "graph".into());
        check_load(&load).unwrap();
        let of = |arm: &str| arguments(arms::find(arm).unwrap(), &load).join(" ");
        assert_eq!(of("cpu-all"), "--batch 128 --function acl");
        assert_eq!(
            of("cuda-naive"),
            "--batch 128 --function acl --launch graph --streams 4"
        );
    }

    #[test]
    fn packets_come_at_a_rate_from_memory_and_from_the_generator() {
        let loads = loads_of::<Load>("router-story");
        let slow = loads.iter().find(|load| rate(load).is_some()).unwrap();
        let of = |arm: &str| arguments(arms::find(arm).unwrap(), slow).join(" ");
        assert_eq!(rate(slow), Some(Pps(100_000)));
        assert_eq!(
            of("cpu-memory"),
            "--batch 1024 --batch-wait 100us --function both --rate 100kpps"
        );
        assert_eq!(of("cpu"), "--batch 1024 --batch-wait 100us --function both");
    }

    #[test]
    fn a_load_that_cannot_be_is_refused() {
        let load = || loads_of::<Load>("router-story").remove(0);
        let said = |load: &Load| check_load(load).unwrap_err();
        for (name, value, what) in [
            ("rules", 0.into(), "1 to 100000"),
            ("batch", 65_537.into(), "1 to 65536"),
            ("batch", "many".into(), "1 to 65536"),
            ("colour", "red".into(), "gpu-result"),
            ("launch", true.into(), "gpu-result"),
            ("rate", "fast".into(), "100kpps"),
            ("rate", 100_000.into(), "100kpps"),
            ("batch-wait", "1ms".into(), "come at a rate"),
        ] {
            let mut load = load();
            load.options.insert(name.to_owned(), value);
            assert!(said(&load).contains(what), "{name}");
        }
        let mut bare = load();
        bare.options.remove(RULES);
        assert!(said(&bare).contains("needs rules"));
        let mut other = load();
        other.traffic = Some(Traffic::Zipf);
        assert!(said(&other).contains("random, pcap"));
    }
}
