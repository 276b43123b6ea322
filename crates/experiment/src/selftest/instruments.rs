//! The cost of the instruments, and the rates of the generators.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use loadgen::{Amount, Backend, FarEnd, Load as Offered, SendReport, Verdict};
use probes::{account, delay};

use super::{Check, go_on};
use crate::jobs::relay::{Load, RelayBench, Stage};
use crate::lock::MachineLock;

const RUN: u32 = 0x5e1f;
const WINDOW: Duration = Duration::from_millis(500);
/// A ceiling is the best of this many windows: other work of the machine only lowers them.
const WINDOWS: usize = 5;

/// The delay probes' cost, by the kernel's own test runs.
pub(super) fn probe() -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let pair = delay::cost(1_000_000)?.pair_ns();
    Ok(vec![Check::new(
        "delay probe pair, warm",
        "at most 70 ns",
        format!("{pair:.0} ns"),
        pair <= 70.0,
    )])
}

/// The CPU accountant against loads of known cost.
pub(super) fn accounting() -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let checks = account::known_answers()?;
    Ok(checks
        .into_iter()
        .map(|check| Check::new(check.name, "as named", check.found, check.passed))
        .collect())
}

/// The generators' ceilings into XDP_DROP, and the accuracy of the paced one.
pub(super) fn generator(stop: &AtomicBool) -> Result<Vec<Check>> {
    let _lock = MachineLock::take()?;
    let bench = RelayBench::prepare()?;
    let rate = |backend, rate, burst| -> Result<(SendReport, f64)> {
        let load = Load::paced("64B", "100kpps", 1, "500ms")?;
        let stage = Stage::set(&bench.bare(&load))?;
        let receiver = stage.receiver_point()?.ifindex;
        let far = stage
            .bed
            .host("receiver")?
            .run(|| FarEnd::attach(receiver, RUN, 1, Verdict::Drop))??;
        let offered = Offered {
            backend,
            rate,
            burst,
            amount: Amount::Time(WINDOW),
            ..bench.offered(&stage, &load, RUN)?
        };
        let sender = stage.bed.host("sender")?;
        let (mut sent, mut best) = (SendReport::default(), 0.0);
        let windows = if rate.is_none() { WINDOWS } else { 1 };
        for _ in 0..windows {
            let before = far.counts()?.packets();
            sent = sender.run(|| loadgen::generate(&offered, stop))??;
            // One that was cut short reached nothing.
            go_on(stop)?;
            let arrived = (far.counts()?.packets() - before) as f64;
            best = f64::max(best, arrived / (sent.elapsed_ns as f64 / 1e9));
        }
        Ok((sent, best))
    };
    let (_, af_xdp) = rate(Backend::AfXdp, None, 64)?;
    let (_, live) = rate(Backend::Live, None, 256)?;
    let (paced, _) = rate(Backend::Socket, Some(100e3), 1)?;
    let off = 100.0 * (paced.achieved_pps / 100e3 - 1.0);
    let mega = |pps: f64| format!("{:.2} Mpps", pps / 1e6);
    let best = |name: &str| format!("{name}, best of {WINDOWS}");
    Ok(vec![
        Check::new(
            &best("af-xdp generator"),
            "at least 0.9 Mpps",
            mega(af_xdp),
            af_xdp >= 0.9e6,
        ),
        Check::new(
            &best("live generator into XDP_DROP"),
            "at least 4 Mpps",
            mega(live),
            live >= 4e6,
        ),
        Check::new(
            "socket generator paced at 100 kpps",
            "within 0.1 %",
            format!("{off:+.3} %"),
            off.abs() <= 0.1,
        ),
    ])
}
