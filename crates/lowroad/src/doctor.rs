//! `lowroad doctor`: every datapath and probe, available, or what is missing and how to get it.

use std::borrow::Cow;

use anyhow::Context;
use clap::Args;
use datapath::Missing;
use features::live::{Device, OFFLOADS};
use serde::{Deserialize, Serialize};
use sys::caps::{Capability, Effective};
use sys::energy::Meter;
use sys::kernel::{self, Config, Release, Setting};

use crate::compare;
use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What this machine is and can run.
#[derive(Debug, Serialize)]
struct Diagnosis {
    schema: u32,
    kernel: String,
    btf: bool,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    group: &'static str,
    name: Cow<'static, str>,
    available: bool,
    /// What is missing and what to do about it, when it is not available.
    #[serde(flatten)]
    missing: Option<Missing>,
}

impl Check {
    fn new(
        group: &'static str,
        name: impl Into<Cow<'static, str>>,
        result: Result<(), Missing>,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            available: result.is_ok(),
            missing: result.err(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let diagnosis = diagnose()?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&diagnosis).context("JSON")?;
        exit::print(&format!("{text}\n"))
    } else {
        exit::print(&table(&diagnosis))
    }
}

fn diagnose() -> Result<Diagnosis, Failure> {
    let machine = Machine::read()?;
    let mut checks: Vec<Check> = relay::datapaths()
        .iter()
        .map(|datapath| Check::new("relay", datapath.name(), datapath.check()))
        .collect();
    let features = features::live::datapaths();
    let features = features
        .iter()
        .map(|datapath| Check::new("features", datapath.name(), datapath.check()));
    checks.extend(features);
    let router = router::service::machine();
    let router = router.into_iter();
    checks.extend(router.map(|(name, result)| Check::new("router", name, result)));
    let devices = gpu::devices();
    checks.extend(
        devices.map(|(backend, found)| Check::new("router", backend.name(), found.map(drop))),
    );
    checks.extend(offloads()?);
    checks.extend(machine.replicate());
    checks.extend(machine.probes());
    checks.extend(machine.generators());
    checks.extend(environments());
    Ok(Diagnosis {
        schema: 1,
        kernel: machine.release.to_string(),
        btf: kernel::has_btf(),
        checks,
    })
}

/// What the probes and generators ask of the machine.
#[derive(Debug)]
struct Machine {
    release: Release,
    config: Config,
    capabilities: Effective,
}

impl Machine {
    fn read() -> Result<Self, Failure> {
        Ok(Self {
            release: Release::running().context("the kernel's release")?,
            config: Config::running(),
            capabilities: Effective::read().context("this process's capabilities")?,
        })
    }

    fn probes(&self) -> [Check; 5] {
        let tracing = || {
            self.btf()?;
            self.capabilities(&[Capability::Bpf, Capability::Perfmon])
        };
        [
            Check::new(
                "probe",
                "delay",
                self.btf()
                    .and_then(|()| self.capabilities(&[Capability::Bpf, Capability::NetAdmin]))
                    .and_then(|()| self.option("CONFIG_NET_CLS_ACT")),
            ),
            Check::new("probe", "cpu", tracing()),
            Check::new(
                "probe",
                "stacks",
                tracing().and_then(|()| self.option("CONFIG_PERF_EVENTS")),
            ),
            Check::new("probe", "foreign", tracing()),
            Check::new("probe", "energy", energy()),
        ]
    }

    /// By file system, because what the kernel must tell differs.
    fn replicate(&self) -> [Check; 6] {
        let programs = || {
            self.btf()?;
            self.capabilities(&[Capability::Bpf, Capability::Perfmon])
        };
        let functions = || {
            let remedy = "what they would tell is read back";
            let refused = |why| Missing::new(format!("no programs at functions: {why}"), remedy);
            programs().and_then(|()| replicate::capture::functions().map_err(refused))
        };
        let vague = || programs().and_then(|()| self.minimum(6, 13));
        let either = || vague().or_else(|missing| functions().map_err(|_| missing));
        [
            Check::new("replicate", "ext4", programs()),
            Check::new("replicate", "xfs", either()),
            Check::new("replicate", "btrfs", either()),
            Check::new("replicate", "tmpfs", either()),
            Check::new("replicate", "overlay", vague()),
            Check::new("replicate", "functions", functions()),
        ]
    }

    fn generators(&self) -> [Check; 4] {
        [
            Check::new("generator", "socket", Ok(())),
            Check::new(
                "generator",
                "live",
                self.minimum(5, 18)
                    .and_then(|()| self.capabilities(&[Capability::Bpf, Capability::NetAdmin])),
            ),
            Check::new(
                "generator",
                "af-xdp",
                self.option("CONFIG_XDP_SOCKETS")
                    .and_then(|()| self.capabilities(&[Capability::NetRaw, Capability::Bpf])),
            ),
            Check::new(
                "generator",
                "pcap",
                self.capabilities(&[Capability::NetRaw]),
            ),
        ]
    }

    fn btf(&self) -> Result<(), Missing> {
        if kernel::has_btf() {
            return Ok(());
        }
        Err(Missing::new(
            "the kernel publishes no type information",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF",
        ))
    }

    fn minimum(&self, major: u32, minor: u32) -> Result<(), Missing> {
        if self.release.at_least(major, minor) {
            return Ok(());
        }
        Err(Missing::new(
            format!("needs Linux {major}.{minor}, this is {}", self.release),
            "boot a newer kernel",
        ))
    }

    fn option(&self, option: &str) -> Result<(), Missing> {
        if self.config.get(option) != Setting::Off {
            return Ok(());
        }
        Err(Missing::new(
            format!("the kernel lacks {option}"),
            "no remedy on this kernel",
        ))
    }

    fn capabilities(&self, wanted: &[Capability]) -> Result<(), Missing> {
        let missing = self.capabilities.missing(wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        Err(Missing::new(
            format!("needs {}", names.join(" and ")),
            "run with sudo",
        ))
    }
}

/// What any device does in the programs' place.
fn offloads() -> Result<[Check; OFFLOADS.len()], Failure> {
    let devices = Device::all()?;
    Ok(OFFLOADS.map(|name| {
        let asked: Vec<_> = devices.iter().map(|device| device.offload(name)).collect();
        let any = asked.iter().any(Result::is_ok);
        let why = asked.into_iter().find_map(Result::err);
        let why = why.unwrap_or_else(|| Missing::new("no interface", ""));
        let remedy = "lowroad features interfaces says what each has";
        let missing = Missing::new(format!("on no interface: {}", why.what), remedy);
        Check::new("offload", name, if any { Ok(()) } else { Err(missing) })
    }))
}

/// What hosts of a comparison can live in: its own program knows.
fn environments() -> Vec<Check> {
    #[derive(Deserialize)]
    struct Said {
        name: String,
        missing: Option<Missing>,
    }
    let said = match compare::says("environments") {
        Ok(said) => said,
        Err(error) => {
            let what = format!("lowroad-compare does not say: {error}");
            let remedy = "cargo build --release --bin lowroad-compare";
            return vec![Check::new(
                "environment",
                "all",
                Err(Missing::new(what, remedy)),
            )];
        }
    };
    let said = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Said>(line).ok());
    said.map(|Said { name, missing }| Check::new("environment", name, missing.map_or(Ok(()), Err)))
        .collect()
}

fn energy() -> Result<(), Missing> {
    if Meter::start().is_some() {
        return Ok(());
    }
    Err(Missing::new(
        "no energy meter (RAPL) that can be read",
        "as root on the bare machine, where its processor has one",
    ))
}

fn table(diagnosis: &Diagnosis) -> String {
    let mut text = format!("Linux {}\n", diagnosis.kernel);
    let what = |check: &Check| match &check.missing {
        None => "available".to_owned(),
        Some(missing) => missing.what.clone(),
    };
    let width = |of: &dyn Fn(&Check) -> usize| diagnosis.checks.iter().map(of).max().unwrap_or(0);
    let (groups, names, whats) = (
        width(&|check| check.group.len()),
        width(&|check| check.name.len()),
        width(&|check| what(check).len()),
    );
    for check in &diagnosis.checks {
        let remedy = check.missing.as_ref().map_or("", |missing| &missing.remedy);
        let line = format!(
            "{:<groups$}  {:<names$}  {:<whats$}  {remedy}",
            check.group,
            check.name,
            what(check)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
