//! A delay trial: one load through the stage, stamped at the sender's egress and matched at the
//! receiver's ingress.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadgen::{Amount, Backend, Load as Offered, Replay, SendReport, Timing};
use probes::delay::{DelayConfig, DelayProbe, MatchKey, Report, StampFrom, Subscriber};
use probes::disturb::{Disturbance, DisturbanceLink};
use stats::Histogram;

use super::application::Applications;
use super::losses::Losses;
use super::stage::{Layout, Stage};
use super::{BARE, DELAYED_FLOOR, FLOOR, INJECTED_DELAY_NS, NULL_PROBE, RelayBench, media};
use crate::jobs::relay::load::{Load, LoadSource, Scope, TrialSpec};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// Packets sent before the measured ones, to fill caches and neighbour tables.
const WARM_UP: u64 = 64;
/// Packets a trial can send at most.
const CAPACITY: u32 = 1 << 16;
/// Silence after which the rest counts as lost.
pub(super) const DRAIN: Duration = Duration::from_millis(500);

pub(super) fn trial(bench: &RelayBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let stage = Stage::set(&Layout {
        arm: if BARE.contains(&spec.arm) {
            FLOOR
        } else {
            spec.arm
        },
        ..bench.layout(spec)
    })?;
    // Attached before the probe, it comes before it in the receiver's chain.
    let _disturbance = match spec.arm {
        DELAYED_FLOOR => {
            let point = stage.receiver_point()?;
            Some(DisturbanceLink::attach(
                &point,
                Disturbance::Delay(INJECTED_DELAY_NS),
            )?)
        }
        _ => None,
    };
    let outcome = on_stage(bench, &stage, spec)?;
    Ok((stage, outcome))
}

/// The trial on a stage that is set.
pub(crate) fn on_stage(bench: &RelayBench, stage: &Stage, spec: &TrialSpec<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (report, losses) = match &spec.load.from {
        LoadSource::Generator => generated(bench, stage, spec, &mut outcome)?,
        LoadSource::Pcap(path) => replayed(bench, stage, spec, path, &mut outcome)?,
        LoadSource::Rtp | LoadSource::MpegTs => streamed(bench, stage, spec, &mut outcome)?,
    };
    match spec.load.scope {
        Scope::StampToStamp => note_delay(&mut outcome, &report),
        Scope::Application => outcome.violations.extend(report.violations()),
    }
    losses.note(&mut outcome)?;
    Ok(outcome)
}

fn generated<'a>(
    bench: &RelayBench,
    stage: &'a Stage,
    spec: &TrialSpec<'_>,
    outcome: &mut Outcome,
) -> Result<(Report, Losses<'a>)> {
    let run = run_id(spec.seed);
    let null = spec.arm == NULL_PROBE;
    let applications = match spec.load.scope {
        Scope::StampToStamp => None,
        Scope::Application => Some(Applications::start(stage, run, CAPACITY)?),
    };
    generate(bench, stage, spec.load, run ^ 1, Some(WARM_UP))?;
    let probe = probe(stage, MatchKey::Lowroad { run }, null, CAPACITY)?;
    let losses = Losses::watch(stage)?;
    let own = stage.relay_pids();
    let watch = Watch::start(&bench.foreign, &own)?;
    let sent = generate(bench, stage, spec.load, run, None)?;
    watch.end(&own, outcome)?;
    bench.monitor.note_generator(&sent, spec.load.rate, outcome);
    if let Some(applications) = applications {
        applications.finish(sent.sent, outcome)?;
    }
    let report = if null {
        probe.report(None)?
    } else {
        finish(&probe, sent.sent * spec.load.subscribers as u64)?
    };
    Ok((report, losses))
}

fn streamed<'a>(
    bench: &RelayBench,
    stage: &'a Stage,
    spec: &TrialSpec<'_>,
    outcome: &mut Outcome,
) -> Result<(Report, Losses<'a>)> {
    let probe = probe(stage, key(&spec.load.from), false, 1 << 14)?;
    let losses = Losses::watch(stage)?;
    let file = bench.video.file()?;
    let mut own = stage.relay_pids();
    let watch = Watch::start(&bench.foreign, &own)?;
    let mut video = media::Video::start(stage, file, &spec.load.from, spec.load.duration.0)?;
    own.push(video.pid());
    video.finish()?;
    watch.end(&own, outcome)?;
    let sent = probe.report(None)?.sent.iter().sum::<u64>();
    let report = finish(&probe, sent * spec.load.subscribers as u64)?;
    Ok((report, losses))
}

fn replayed<'a>(
    bench: &RelayBench,
    stage: &'a Stage,
    spec: &TrialSpec<'_>,
    path: &Path,
    outcome: &mut Outcome,
) -> Result<(Report, Losses<'a>)> {
    let rate = spec.load.rate.map(|rate| f64::from(rate.0));
    let offered = Offered {
        backend: Backend::Pcap(Replay {
            path: path.to_owned(),
            timing: rate.map_or(Timing::Original, Timing::Rate),
            redirect: true,
        }),
        fifo: true,
        ..bench.offered(stage, spec.load, run_id(spec.seed))?
    };
    let probe = probe(stage, key(&spec.load.from), false, CAPACITY)?;
    let losses = Losses::watch(stage)?;
    let own = stage.relay_pids();
    let watch = Watch::start(&bench.foreign, &own)?;
    let sent = send(stage, &offered)?;
    watch.end(&own, outcome)?;
    ensure!(sent.sent > 0, "{}: no UDP datagram to send", path.display());
    bench.monitor.note_generator(&sent, spec.load.rate, outcome);
    let report = finish(&probe, sent.sent * spec.load.subscribers as u64)?;
    Ok((report, losses))
}

/// Identifies the packets of a stream that is not our generator's.
pub(super) fn key(from: &LoadSource) -> MatchKey {
    match from {
        LoadSource::MpegTs | LoadSource::Pcap(_) => MatchKey::PayloadHash,
        LoadSource::Generator | LoadSource::Rtp => MatchKey::Rtp {
            sources: vec![media::SSRC],
        },
    }
}

/// Attaches the probe pair between the sender's and the receiver's device.
pub(super) fn probe(stage: &Stage, key: MatchKey, null: bool, capacity: u32) -> Result<DelayProbe> {
    let config = DelayConfig {
        sender: Some(stage.sender_point()?),
        receivers: vec![stage.receiver_point()?],
        key,
        stamp: StampFrom::Egress,
        subscribers: stage
            .subscribers
            .iter()
            .map(|&address| Subscriber { address, flow: 0 })
            .collect(),
        capacity,
        window: 1 << 14,
        split_histograms: false,
        null,
    };
    DelayProbe::attach(&config).context("the delay probes")
}

/// Sends the load, or `packets` of it, from the sender's namespace.
pub(super) fn generate(
    bench: &RelayBench,
    stage: &Stage,
    load: &Load,
    run: u32,
    packets: Option<u64>,
) -> Result<SendReport> {
    let offered = Offered {
        rate: load.rate.map(|rate| f64::from(rate.0)),
        amount: packets.map_or(Amount::Time(load.duration.0), Amount::Packets),
        fifo: true,
        ..bench.offered(stage, load, run)?
    };
    send(stage, &offered)
}

fn send(stage: &Stage, offered: &Offered) -> Result<SendReport> {
    let sender = stage.bed.host("sender")?;
    Ok(sender.run(|| loadgen::generate(offered, &AtomicBool::new(false)))??)
}

pub(super) fn finish(probe: &DelayProbe, expected: u64) -> Result<Report> {
    probe.settle(expected, DRAIN)?;
    Ok(probe.report(None)?)
}

pub(super) fn note_delay(outcome: &mut Outcome, report: &Report) {
    let mut value = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            outcome.values.insert(name.to_owned(), value);
        }
    };
    let us = |histogram: &Histogram, q: f64| histogram.quantile(q).map(|ns| ns / 1e3);
    let delay = &report.delay;
    value("delay_p50", us(delay, 0.5));
    value("delay_p99", us(delay, 0.99));
    let quartiles = us(delay, 0.75).zip(us(delay, 0.25));
    // Two delays in one bucket are equal as far as the instrument sees: its resolution, not 0.
    let resolution = us(delay, 0.5).map(|us| us * 2.0 * stats::RESOLUTION);
    value(
        "delay_iqr",
        quartiles
            .zip(resolution)
            .map(|((high, low), least)| (high - low).max(least)),
    );
    let jitters: Vec<f64> = report
        .subscribers
        .iter()
        .map(|subscriber| subscriber.jitter_ns as f64 / 1e3)
        .collect();
    value("jitter", stats::median(&jitters));
    for (name, count) in report.counts() {
        outcome.counts.insert(name.to_owned(), count);
    }
    let due: u64 = report.subscribers.iter().map(|s| s.sent).sum();
    let missing: u64 = report.subscribers.iter().map(|s| s.missing).sum();
    if due > 0 {
        value("loss_pct", Some(100.0 * missing as f64 / due as f64));
    }
    outcome.violations.extend(report.violations());
    outcome
        .histograms
        .insert("delay".to_owned(), report.delay.clone());
}

/// A run id that no other trial uses: the trial's seed, made even so that the warm-up's differs.
pub(super) fn run_id(seed: u64) -> u32 {
    u32::try_from(seed & 0xffff_fffe).unwrap_or(2)
}
