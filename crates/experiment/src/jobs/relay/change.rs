//! A change trial: a subscriber joins and leaves a running stream again and again, while the
//! others' packets are accounted for exactly.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use packet::payload::Header;
use probes::delay::MatchKey;
use serde_json::json;
use sys::clock::monotonic_ns;

use super::RelayBench;
use super::delay::{generate, probe, run_id};
use super::losses::Losses;
use super::process::RelayProcess;
use super::stage::Stage;
use crate::jobs::{Outcome, TrialSpec};
use crate::plan::Load;

/// Time between two changes: many packets at the rates used here.
const BETWEEN: Duration = Duration::from_millis(20);
/// A change that has no effect by then failed.
const DEADLINE: Duration = Duration::from_secs(2);

pub(super) fn trial(bench: &RelayBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let stage = Stage::set(&bench.layout(spec))?;
    let relay = stage.relay().context("only a relay changes live")?;
    let run = run_id(spec.seed);
    let probe = probe(&stage, MatchKey::Lowroad { run }, false, 1 << 16)?;
    let losses = Losses::watch(&stage)?;
    let visitor = Visitor::listen(&stage, run, interval_ns(spec.load))?;
    let done = AtomicBool::new(false);
    let (sent, changes) = thread::scope(|scope| {
        let done = &done;
        let changing = scope.spawn(move || visit(relay, &visitor, done));
        let sent = generate(bench, &stage, spec.load, run, None);
        done.store(true, Ordering::Relaxed);
        let changes = changing
            .join()
            .map_err(|_| anyhow::anyhow!("a thread died"));
        (sent, changes)
    });
    let (sent, changes) = (sent?, changes??);
    probe.settle(
        sent.sent * spec.load.subscribers as u64,
        Duration::from_millis(200),
    )?;
    let report = probe.report(None)?;
    let mut outcome = Outcome::default();
    outcome.counts.extend(
        report
            .counts()
            .map(|(name, count)| (name.to_owned(), count)),
    );
    // The visitor's packets are no subscriber's to the probe; those it was to get are not foreign.
    let welcome = changes.welcome - changes.late;
    for name in ["received", "foreign"] {
        outcome
            .counts
            .entry(name.to_owned())
            .and_modify(|count| *count -= welcome.min(*count));
    }
    let foreign = outcome.counts["foreign"] as f64;
    outcome.values.insert("foreign_packets".to_owned(), foreign);
    losses.note(&mut outcome)?;
    if let Some(median) = stats::median(&changes.effect_ms) {
        outcome
            .values
            .insert("subscriber_change_ms".to_owned(), median);
    }
    if report
        .subscribers
        .iter()
        .any(|s| s.missing > 0 || s.duplicates > 0)
    {
        outcome
            .flags
            .push("stable subscribers did not get every packet once".to_owned());
    }
    outcome
        .counts
        .insert("changes".to_owned(), changes.effect_ms.len() as u64);
    Ok((stage, outcome))
}

fn interval_ns(load: &Load) -> u64 {
    load.rate
        .and_then(|rate| u64::try_from(Duration::from_secs_f64(1.0 / rate.0).as_nanos()).ok())
        .unwrap_or_default()
}

/// What joining and leaving gave.
#[derive(Debug, Default)]
struct Changes {
    /// From the request to the first packet got, or the last one, in milliseconds.
    effect_ms: Vec<f64>,
    /// Packets the visitor got, the late ones too.
    welcome: u64,
    /// Packets it got that were sent after its leaving was confirmed.
    late: u64,
}

/// Joins and leaves until the load ends.
fn visit(relay: &RelayProcess, visitor: &Visitor, done: &AtomicBool) -> Result<Changes> {
    let mut changes = Changes::default();
    let mut client = relay.client()?;
    thread::sleep(BETWEEN);
    while !done.load(Ordering::Relaxed) {
        let asked = monotonic_ns();
        client.call(
            "subscriber.add",
            json!({
                "stream": "stream",
                "subscriber": {"name": "visitor", "to": visitor.address.to_string()},
            }),
        )?;
        let Some(first) = visitor.first(done)? else {
            break;
        };
        changes.welcome += 1;
        changes
            .effect_ms
            .push(first.saturating_sub(asked) as f64 / 1e6);
        thread::sleep(BETWEEN);
        let asked = monotonic_ns();
        client.call(
            "subscriber.remove",
            json!({"stream": "stream", "subscriber": "visitor"}),
        )?;
        let confirmed = monotonic_ns();
        thread::sleep(BETWEEN);
        let mut last = asked;
        for sent in visitor.sent_times.try_iter() {
            changes.welcome += 1;
            last = last.max(sent);
            changes.late += u64::from(sent > confirmed);
        }
        // Packets tell the time of a change to within their interval.
        changes
            .effect_ms
            .push((last - asked).max(visitor.interval_ns) as f64 / 1e6);
    }
    Ok(changes)
}

/// A socket in the receiver's namespace, and a thread that notes when its packets were sent.
struct Visitor {
    address: SocketAddr,
    sent_times: Receiver<u64>,
    /// Between two packets of the load.
    interval_ns: u64,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Visitor {
    fn listen(stage: &Stage, run: u32, interval_ns: u64) -> Result<Self> {
        let mut address = stage.subscribers[0];
        address.set_port(address.port() - 1);
        let socket = stage
            .bed
            .host("receiver")?
            .run(move || UdpSocket::bind(address))??;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let (sender, sent_times) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !ended.load(Ordering::Relaxed) {
                let Ok(length) = socket.recv(&mut buffer) else {
                    continue;
                };
                if let Some(header) = Header::read(&buffer[..length]).filter(|h| h.run == run)
                    && sender.send(header.sent_ns).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self {
            address,
            sent_times,
            interval_ns,
            stop,
            thread: Some(thread),
        })
    }

    /// When the first packet that comes now was sent; `None` when the load ended before.
    fn first(&self, done: &AtomicBool) -> Result<Option<u64>> {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            if let Ok(sent) = self.sent_times.recv_timeout(Duration::from_millis(5)) {
                return Ok(Some(sent));
            }
            if done.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        bail!(
            "an added subscriber got nothing for {} s",
            DEADLINE.as_secs()
        );
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}
