//! A delay and a loss of known size, put between the probes: the instruments must find them.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use probes::disturb::{Disturbance, DisturbanceLink};

use super::{Check, go_on};
use crate::environment::NATIVE;
use crate::idle::IdlePolicy;
use crate::jobs::relay::{
    INJECTED_DELAY_NS, Load, Measure, RelayBench, Stage, TrialSpec, delay_on,
};
use crate::lock::MachineLock;
use crate::outcome::Outcome;
use crate::program::Lowroad;

/// One packet of this many is lost.
const LOSS_INTERVAL: u32 = 1000;

/// Blocks of a trial with the delay and one without; the difference is what was recovered.
pub(super) fn delay(blocks: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let bench = RelayBench::prepare()?;
    let load = Load::paced("200B", "2kpps", 1, "400ms")?;
    let mut differences = Vec::new();
    for block in 0..blocks {
        go_on(stop)?;
        let plain = p50(&trial(&bench, &load, None, block)?);
        go_on(stop)?;
        let delayed = p50(&trial(
            &bench,
            &load,
            Some(Disturbance::Delay(INJECTED_DELAY_NS)),
            block,
        )?);
        differences.extend(plain.zip(delayed).map(|(plain, delayed)| delayed - plain));
    }
    let found = stats::median(&differences).unwrap_or(f64::NAN);
    let goal = f64::from(INJECTED_DELAY_NS) / 1e3;
    Ok(vec![Check::new(
        "an injected delay of 50 us",
        "recovered within 5 %",
        format!("{found:.2} us (n={})", differences.len()),
        (found / goal - 1.0).abs() <= 0.05,
    )])
}

/// One trial whose every thousandth packet is dropped: the count must be exact.
pub(super) fn loss() -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let bench = RelayBench::prepare()?;
    let load = Load::paced("200B", "20kpps", 1, "1s")?;
    let outcome = trial(
        &bench,
        &load,
        Some(Disturbance::LoseEvery(LOSS_INTERVAL)),
        0,
    )?;
    let count = |name: &str| outcome.counts.get(name).copied().unwrap_or(0);
    let (sent, missing) = (count("sent"), count("missing"));
    let due = sent.div_ceil(u64::from(LOSS_INTERVAL));
    let whole = count("received") == count("unique") && count("unique") + missing == sent;
    Ok(vec![Check::new(
        "an injected loss of 0.1 %",
        "counted exactly",
        format!("{missing} missing of {sent}, {due} dropped"),
        sent > 0 && missing == due && whole,
    )])
}

fn trial(
    bench: &RelayBench,
    load: &Load,
    disturbance: Option<Disturbance>,
    block: usize,
) -> Result<Outcome> {
    let spec = TrialSpec {
        arm: "floor",
        lowroad: &Lowroad::own(),
        program: None,
        load,
        measure: Measure::Delay,
        idle: IdlePolicy::None,
        environment: NATIVE,
        seed: 0x5e1f_0000 + 2 * block as u64,
        block,
    };
    let stage = Stage::set(&bench.bare(load))?;
    // Attached before the probe, it comes before it in the receiver's chain.
    let _disturb = disturbance
        .map(|what| {
            DisturbanceLink::attach(&stage.receiver_point()?, what).map_err(anyhow::Error::from)
        })
        .transpose()?;
    delay_on(bench, &stage, &spec)
}

fn p50(outcome: &Outcome) -> Option<f64> {
    outcome.values.get("delay_p50").copied()
}
