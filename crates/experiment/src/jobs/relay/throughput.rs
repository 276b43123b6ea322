//! A throughput trial: the highest rate that passes, and what is left beyond it. Copies are
//! counted by an XDP program on the receiver's device, the same for every arm.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loadgen::{Backend, FarEnd, Load as Offered, SendReport, Verdict};

use super::RelayBench;
use super::delay::run_id;
use super::stage::Stage;
use crate::jobs::relay::load::{Load, TrialSpec};
use crate::outcome::Outcome;
use crate::search::{Step, search};

/// Loss a passing step may have. RFC 2544 has none, and longer steps; in these, a lost time slice
/// would then decide, and not the datapath.
const LOSS: f64 = 1e-3;
/// Overload that tells a graceful limit from livelock.
const OVERLOAD: f64 = 1.5;
/// Frames in one call: the datapath sees them back to back, as from a busy NIC queue.
const BURST: usize = 16;
/// Copies that arrive later than this after the last packet was sent waited in a buffer that the
/// datapath could not empty: they count as lost, else a short window would measure the buffer.
const GRACE: Duration = Duration::from_millis(5);
/// Silence after which no more of a window's copies will come.
const QUIET: Duration = Duration::from_millis(60);

pub(super) fn trial(bench: &RelayBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let stage = Stage::set(&bench.layout(spec))?;
    let probe = RateProbe::new(bench, &stage, spec)?;
    probe.step(Some(1e3))?;
    let found = search(LOSS, |rate| probe.step(rate))?;
    let over = probe.step(Some(found.ndr_pps * OVERLOAD))?;
    drop(probe);
    let copies = spec.load.subscribers as f64;
    let mut outcome = Outcome::default();
    let mut value = |name: &str, value: f64| outcome.values.insert(name.to_owned(), value);
    value("ndr_pps", found.ndr_pps);
    value("deliveries_per_s", found.ndr_pps * copies);
    value("goodput_pps", over.achieved_pps * over.delivered * copies);
    outcome
        .counts
        .insert("steps".to_owned(), found.steps.len() as u64);
    outcome.counts.insert(
        "generator_bound".to_owned(),
        u64::from(found.generator_bound),
    );
    Ok((stage, outcome))
}

/// Sends at given rates and counts at the far end.
struct RateProbe<'a> {
    bench: &'a RelayBench,
    stage: &'a Stage,
    load: &'a Load,
    far: FarEnd,
    run: u32,
}

impl<'a> RateProbe<'a> {
    fn new(bench: &'a RelayBench, stage: &'a Stage, spec: &'a TrialSpec<'_>) -> Result<Self> {
        let run = run_id(spec.seed);
        let point = stage.receiver_point()?;
        let receiver = stage.bed.host("receiver")?;
        let far = receiver.run(|| FarEnd::attach(point.ifindex, run, 1, Verdict::Drop))??;
        Ok(Self {
            bench,
            stage,
            load: spec.load,
            far,
            run,
        })
    }

    /// One window at `rate`, flat out for `None`.
    fn step(&self, rate: Option<f64>) -> Result<Step> {
        let before = self.counted()?;
        let sent = self.send(rate)?;
        let due = sent.sent * self.load.subscribers as u64;
        let in_time = self.arrived(before, due, GRACE)?;
        let at_all = self.settle(before, due)?;
        ensure!(
            at_all <= due,
            "{at_all} copies delivered of {due} that were due"
        );
        Ok(Step {
            achieved_pps: sent.achieved_pps,
            delivered: if due == 0 {
                0.0
            } else {
                in_time as f64 / due as f64
            },
        })
    }

    fn send(&self, rate: Option<f64>) -> Result<SendReport> {
        let offered = Offered {
            backend: Backend::AfXdp,
            rate,
            burst: BURST,
            ..self.bench.offered(self.stage, self.load, self.run)?
        };
        let host = self.stage.bed.host("sender")?;
        Ok(host.run(|| loadgen::generate(&offered, &AtomicBool::new(false)))??)
    }

    fn counted(&self) -> Result<u64> {
        Ok(self.far.counts()?.packets())
    }

    /// Copies that have arrived since `before`, once all that is due has or `patience` is over.
    fn arrived(&self, before: u64, due: u64, patience: Duration) -> Result<u64> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = self.counted()? - before;
            if seen >= due || Instant::now() >= deadline {
                return Ok(seen);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until all that is due has arrived, or nothing more does.
    fn settle(&self, before: u64, due: u64) -> Result<u64> {
        let mut seen = self.counted()? - before;
        loop {
            let now = self.arrived(before, due, QUIET)?;
            if now >= due || now == seen {
                return Ok(now);
            }
            seen = now;
        }
    }
}
