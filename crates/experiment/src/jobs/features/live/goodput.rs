//! A goodput trial: packets that end up in flows, of a rate or of all that can be sent. The receiving
//! device and the capture share one CPU.

use anyhow::{Result, ensure};
use loadgen::Amount;
use units::Pps;

use super::capture::Rows;
use super::stage::Stage;
use crate::jobs::features::FeaturesBench;
use crate::jobs::features::load::{Load, TrialSpec};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// Frames before the measured ones, and how many a second: so few that they all come.
const WARM_UP: (u64, Pps) = (1000, Pps(20_000));

pub(super) fn trial(bench: &FeaturesBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let mut stage = Stage::set(bench.cpus(), spec, Rows::File)?;
    let (packets, rate) = WARM_UP;
    let slow = Load {
        rate: Some(rate),
        ..spec.load.clone()
    };
    stage.generate(&slow, Amount::Packets(packets))?;
    let pids = stage.pids();
    let mut outcome = Outcome::default();
    let noise = Watch::start(&bench.foreign, &pids)?;
    let sent = stage.generate(spec.load, Amount::Time(spec.load.duration.0))?;
    noise.end(&pids, &mut outcome)?;
    bench
        .monitor
        .note_generator(&sent, spec.load.rate, &mut outcome);
    stage.finish(&mut outcome)?;
    ensure!(sent.sending_ns > 0, "nothing was sent");
    let seconds = sent.sending_ns as f64 / 1e9;
    let exported = outcome.counts["unique"].saturating_sub(packets) as f64;
    let mut value = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    value("goodput_pps", exported / seconds);
    value("offered_pps", sent.sent as f64 / seconds);
    Ok((stage, outcome))
}
