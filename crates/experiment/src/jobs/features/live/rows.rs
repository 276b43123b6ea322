//! A row-latency trial: how long after a packet its flow's row is with whoever reads the capture's
//! output. The same two points for every datapath: the kernel's time of the packet, and ours of the row.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use loadgen::Amount;
use serde_json::Value;
use stats::Histogram;

use super::capture::Rows;
use super::stage::Stage;
use crate::jobs::features::FeaturesBench;
use crate::jobs::features::load::TrialSpec;
use crate::noise::Watch;
use crate::outcome::Outcome;

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Longer than rows are ever collected for.
const SETTLE: Duration = Duration::from_millis(1500);

pub(super) fn trial(bench: &FeaturesBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let mut stage = Stage::set(bench.cpus(), spec, Rows::Pipe)?;
    let pids = stage.pids();
    let latencies = Arc::<Latencies>::default();
    let Some(process) = stage.process() else {
        anyhow::bail!("the bare link has no rows");
    };
    let rows = process.rows()?;
    let reader = thread::spawn({
        let latencies = Arc::clone(&latencies);
        move || latencies.read(rows)
    });
    let mut outcome = Outcome::default();
    let noise = Watch::start(&bench.foreign, &pids)?;
    let sent = stage.generate(spec.load, Amount::Time(spec.load.duration.0))?;
    thread::sleep(SETTLE);
    noise.end(&pids, &mut outcome)?;
    bench
        .monitor
        .note_generator(&sent, spec.load.rate, &mut outcome);
    latencies.over.store(true, Ordering::Relaxed);
    stage.finish(&mut outcome)?;
    let _read = reader.join();
    let taken = latencies
        .taken
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    ensure!(!taken.is_empty(), "no row came while there was traffic");
    let mut value = |name: &str, quantile: f64| {
        if let Some(ns) = taken.quantile(quantile) {
            outcome.values.insert(name.to_owned(), ns / 1e3);
        }
    };
    value("row_latency_us", 0.5);
    value("row_latency_p99_us", 0.99);
    outcome
        .histograms
        .insert("row_latency".to_owned(), taken.clone());
    Ok((stage, outcome))
}

#[derive(Debug, Default)]
struct Latencies {
    taken: Mutex<Histogram>,
    /// Rows from now on are leftovers.
    over: AtomicBool,
}

impl Latencies {
    fn read(&self, rows: ChildStdout) {
        for line in BufReader::new(rows).lines() {
            let Ok(line) = line else { return };
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(0));
            if self.over.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(last) = last_packet(&line) {
                let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.record(since(last, now % DAY));
            }
        }
    }
}

/// From one time of day to the next time that it is another.
fn since(before: u64, now: u64) -> u64 {
    (now + DAY - before) % DAY
}

/// The time of day of a row's last packet, in nanoseconds; none of a row that ends its flow.
fn last_packet(line: &str) -> Option<u64> {
    let row: Value = serde_json::from_str(line).ok()?;
    if !row["flowEndReason"].is_null() {
        return None;
    }
    time_of_day(row["flowEndNanoseconds"].as_str()?)
}

/// Of `2026-11-22T10:39:52.718574331Z`.
fn time_of_day(text: &str) -> Option<u64> {
    let (_, time) = text.split_once('T')?;
    let (time, fraction) = time
        .strip_suffix('Z')?
        .split_once('.')
        .unwrap_or((time, "0"));
    let mut seconds = 0;
    for part in time.trim_end_matches('Z').split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok()?;
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(seconds * SECOND + nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_after_a_flows_first_packets_are_timed() {
        let row = |more: &str| {
            format!("{{\"flowEndNanoseconds\":\"2026-11-22T10:39:52.718574331Z\"{more}}}")
        };
        let time = (10 * 3600 + 39 * 60 + 52) * SECOND + 718_574_331;
        assert_eq!(last_packet(&row("")), Some(time));
        assert_eq!(last_packet(&row(",\"flowEndReason\":4")), None);
        assert_eq!(last_packet("no row"), None);
        assert_eq!(time_of_day("2026-11-22T00:01:00Z"), Some(60 * SECOND));
        assert_eq!(time_of_day("2026-11-22T00:00:00.5Z"), Some(SECOND / 2));
    }

    #[test]
    fn midnight_may_come_between_a_packet_and_its_row() {
        assert_eq!(since(DAY - 5, 7), 12);
        assert_eq!(since(7, 9), 2);
    }
}
