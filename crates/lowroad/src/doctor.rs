//! `lowroad doctor`: every datapath and probe, available, or what is missing and how to get it.

use std::borrow::Cow;
use std::fmt::Write as _;

use clap::Args;
use datapath::Missing;
use features::live::{Device, OFFLOADS};
use netdev::requirement::{self, Requirement};
use router::service::Finding;
use serde::{Deserialize, Serialize};
use sys::caps::Capability;
use sys::energy::Meter;
use sys::kernel::{self, Release};

use crate::compare;
use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What this machine can run.
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
    let release = Release::running().context("the kernel's release")?;
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
    checks.extend(policy());
    checks.extend(offloads()?);
    checks.extend(replicate());
    checks.extend(lists("probe", probes::REQUIREMENTS));
    checks.push(Check::new("probe", "energy", energy()));
    checks.extend(lists("generator", loadgen::REQUIREMENTS));
    checks.extend(environments());
    Ok(Diagnosis {
        schema: 1,
        kernel: release.to_string(),
        btf: kernel::has_btf(),
        checks,
    })
}

/// The checks of the kernel that keep forwarded packets off a fast path, each with one of its reasons.
fn policy() -> Vec<Check> {
    const GROUP: &str = "policy";
    let findings = match router::service::findings() {
        Ok(findings) => findings,
        Err(error) => {
            let missing = Missing::new(format!("cannot be read: {error}"), "run it as root");
            return vec![Check::new(GROUP, "forwarding", Err(missing))];
        }
    };
    if findings.is_empty() {
        return vec![Check::new(GROUP, "forwarding", Ok(()))];
    }
    // Findings are in the order of their checks.
    let of_a_check = findings.chunk_by(|a, b| a.check == b.check);
    let row = |findings: &[Finding]| {
        let name = findings[0].check.name();
        let mut what = format!("left to the kernel: packets {}", findings[0]);
        if findings.len() > 1 {
            let _ = write!(what, " (and {} more)", findings.len() - 1);
        }
        let remedy = format!(
            "change the kernel's policy, or skip the check by bypass = [\"{name}\"] in the router's configuration"
        );
        Check::new(GROUP, name, Err(Missing::new(what, remedy)))
    };
    of_a_check.map(row).collect()
}

/// The lists of requirements of one group.
fn lists(
    group: &'static str,
    lists: &'static [(&'static str, &'static [Requirement])],
) -> impl Iterator<Item = Check> {
    let check = move |&(name, list)| Check::new(group, name, requirement::check(list));
    lists.iter().map(check)
}

/// The capture of changes, by file system, because each needs the kernel to report something else.
fn replicate() -> [Check; 6] {
    const PROGRAMS: &[Requirement] = &[
        Requirement::TypeInformation,
        Requirement::Capabilities(&[Capability::Bpf, Capability::Perfmon]),
    ];
    const EVENTS: Requirement = Requirement::Kernel {
        major: 6,
        minor: 13,
    };
    let programs = || requirement::check(PROGRAMS);
    let functions = || {
        let remedy = "what they would tell is read back";
        let refused = |why| Missing::new(format!("no programs at functions: {why}"), remedy);
        programs().and_then(|()| replicate::capture::functions().map_err(refused))
    };
    let events = || programs().and_then(|()| EVENTS.check());
    let either = || events().or_else(|missing| functions().map_err(|_| missing));
    [
        Check::new("replicate", "ext4", programs()),
        Check::new("replicate", "xfs", either()),
        Check::new("replicate", "btrfs", either()),
        Check::new("replicate", "tmpfs", either()),
        Check::new("replicate", "overlay", events()),
        Check::new("replicate", "functions", functions()),
    ]
}

/// Offloads that any device has.
fn offloads() -> Result<[Check; OFFLOADS.len()], Failure> {
    let devices = Device::all()?;
    Ok(OFFLOADS.map(|name| {
        let checks: Vec<_> = devices.iter().map(|device| device.offload(name)).collect();
        let any = checks.iter().any(Result::is_ok);
        let why = checks.into_iter().find_map(Result::err);
        let why = why.unwrap_or_else(|| Missing::new("no interface", ""));
        let remedy = "lowroad features interfaces lists the offloads of each";
        let missing = Missing::new(format!("on no interface: {}", why.what), remedy);
        Check::new("offload", name, if any { Ok(()) } else { Err(missing) })
    }))
}

/// The environments of a comparison's hosts, as lowroad-compare reports them.
fn environments() -> Vec<Check> {
    #[derive(Deserialize)]
    struct Environment {
        name: String,
        missing: Option<Missing>,
    }
    let output = match compare::output("environments") {
        Ok(output) => output,
        Err(error) => {
            let what = format!("lowroad-compare cannot be run: {error}");
            let remedy = "cargo build --release --bin lowroad-compare";
            return vec![Check::new(
                "environment",
                "all",
                Err(Missing::new(what, remedy)),
            )];
        }
    };
    let environments = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Environment>(line).ok());
    environments
        .map(|Environment { name, missing }| {
            Check::new("environment", name, missing.map_or(Ok(()), Err))
        })
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
