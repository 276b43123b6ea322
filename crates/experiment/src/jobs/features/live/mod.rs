//! Trials of live captures: a generator's frames come in on a device, and `lowroad features live`, the
//! program that people run, makes flows of them with each datapath.

mod arm;
mod capture;
mod cpu;
mod freed_cpu;
mod goodput;
mod origin;
mod rows;
mod stage;
mod tree;

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, bail};
use datapath::Missing;
use features::live::datapaths;

use self::capture::Rows;
pub(super) use self::stage::Stage;
use self::tree::Tree;
use super::FeaturesBench;
use crate::jobs::features::load::{Link, Load, Measure, TrialSpec};
use crate::outcome::Outcome;
use crate::presentation::FLOOR;

/// The datapath for devices whose driver knows no XDP.
const GENERIC: &str = "xdp-generic";
/// The one that needs no driver.
const TC: &str = "tc-flow";

/// Every arm there is.
pub(super) fn arms() -> Vec<&'static str> {
    let datapaths = datapaths();
    let datapaths = datapaths.iter().map(|datapath| datapath.name());
    datapaths.chain([FLOOR]).chain(arm::names()).collect()
}

/// The name in `lowroad doctor` of an arm's datapath, if it has one.
pub(super) fn datapath(arm: &str) -> Option<&str> {
    Some(arm::of(arm).0).filter(|name| *name != FLOOR)
}

/// Why the arm does not have this measure under this load if the capture is in a guest.
pub(super) fn applies_in(
    arm: &str,
    load: &Load,
    measure: Measure,
    guest: bool,
) -> Result<(), Missing> {
    if !guest {
        return Ok(());
    }
    let refuse = |what: &str, remedy: &str| Err(Missing::new(what, remedy));
    match measure {
        _ if arm == FLOOR => refuse(
            "the bare link's program is loaded from outside, which cannot reach a guest's kernel",
            "see it in native or oci",
        ),
        _ if load.link == Link::Loopback => refuse(
            "packets would have to be sent inside the guest, which has no generator",
            "see the loads on a link",
        ),
        Measure::RowLatency => refuse(
            "packets are timed by the guest's clock and rows by this machine's: the two clocks cannot be compared",
            "see it in native or oci",
        ),
        Measure::Freed => refuse(
            "the thread beside the capture would not run in the guest",
            "see it in native or oci",
        ),
        _ => Ok(()),
    }
}

/// Why this machine cannot run the arm.
pub(super) fn check_arm(arm: &str) -> Result<(), Missing> {
    let (name, _) = arm::of(arm);
    match datapaths().iter().find(|path| path.name() == name) {
        Some(datapath) => datapath.check(),
        None => Ok(()),
    }
}

/// Why the arm cannot run under this load, where it can under others.
pub(super) fn applies(arm: &str, load: &Load, measure: Measure) -> Result<(), Missing> {
    let refuse = |what: &str| Err(Missing::new(what, "it is measured under other loads"));
    match load.link {
        Link::Loopback if !arm::is_socket(arm) && ![GENERIC, TC].contains(&arm) => {
            refuse("the loopback device has no driver for it")
        }
        Link::Direct if arm == GENERIC => {
            refuse("the driver has XDP: this arm is for devices whose driver has not")
        }
        _ if arm == FLOOR && measure == Measure::RowLatency => refuse("the bare link has no rows"),
        _ if Tree::of(arm).is_some() && !tree::has_rows(load, measure) => Err(Missing::new(
            "its answers are compared with rows that the load does not have",
            "measure = \"cpu\" and options = { schema = \"tree.v1\" }",
        )),
        _ => Ok(()),
    }
}

/// Why an external program does not have this measure under this load.
pub(super) fn program_applies(load: &Load, measure: Measure) -> Result<(), Missing> {
    let refuse = |what: &str, remedy: &str| Err(Missing::new(what, remedy));
    match measure {
        Measure::RowLatency => refuse(
            "rows of other programs have no time of their own",
            "see the loads that are measured otherwise",
        ),
        _ if load.options.contains_key("filter") => refuse(
            "filters are lowroad's own",
            "see the loads without a filter",
        ),
        _ => Ok(()),
    }
}

/// The arguments of a capture on a device of any name.
pub(super) fn arguments(
    arm: &str,
    load: &Load,
    measure: Measure,
    folder: &Path,
) -> Result<Vec<OsString>> {
    let rows = match measure {
        Measure::RowLatency => Rows::Pipe,
        _ => Rows::File,
    };
    capture::arguments((arm, load), "lo", folder, rows)
}

/// One trial, and the stage it was on, which the caller takes down.
pub(super) fn trial(bench: &FeaturesBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    match spec.measure {
        Measure::Cpu => cpu::trial(bench, spec),
        Measure::Goodput => goodput::trial(bench, spec),
        Measure::RowLatency => rows::trial(bench, spec),
        Measure::Freed => freed_cpu::trial(bench, spec),
        _ => bail!("a live capture does not have this measure"),
    }
}
