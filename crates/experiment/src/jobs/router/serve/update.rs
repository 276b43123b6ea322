//! Changes of a table in one thread, and lookups in another: how many, and how long each takes.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use acl::{Live, Options, Rule4};
use anyhow::{Context, Result};
use lpm::{Fib4, Fib6};

use super::keys::Keys;
use super::{BATCH, Table, records};
use crate::jobs::router::engine::UpdateAnswer;

/// One rule in this many is inserted and erased.
const CHURN_INTERVAL: usize = 10;

pub(super) fn run(
    table: Table,
    updates: Option<&Path>,
    keys: &Keys,
    length: Duration,
    offered: f64,
) -> Result<UpdateAnswer> {
    let pace = Pace { length, offered };
    let file = updates.map(std::fs::read).transpose()?;
    let needed = || file.as_deref().context("updates of prefixes are a file");
    match table {
        Table::V4(table) => routes4(table, needed()?, &keys.v4, pace),
        Table::V6(table) => routes6(*table, needed()?, &keys.v6, pace),
        Table::Kernel(_) => anyhow::bail!("updates are not measured in the kernel"),
        Table::Rules { rules, .. } => list(rules, keys, pace),
    }
}

fn routes4(mut table: Fib4, file: &[u8], keys: &[u32], pace: Pace) -> Result<UpdateAnswer> {
    let updates = records(file, u32::from_ne_bytes)?;
    let mut reader = table.reader();
    let mut hops = [0; BATCH];
    let look_up = move |keys: &[u32]| {
        reader.lookup_batch(keys, &mut hops[..keys.len()]);
        black_box(&mut hops);
    };
    look_up_during(keys, look_up, || {
        pace.timed(&updates, |(prefix, hop)| {
            match hop {
                Some(hop) => drop(table.insert(*prefix, *hop)?),
                None => drop(table.remove(*prefix)),
            }
            Ok(())
        })
    })
}

fn routes6(mut table: Fib6, file: &[u8], keys: &[[u8; 16]], pace: Pace) -> Result<UpdateAnswer> {
    let updates = records(file, u128::from_be_bytes)?;
    let mut reader = table.reader();
    let mut hops = [0; BATCH];
    let look_up = move |keys: &[[u8; 16]]| {
        reader.lookup_batch(keys, &mut hops[..keys.len()]);
        black_box(&mut hops);
    };
    look_up_during(keys, look_up, || {
        pace.timed(&updates, |(prefix, hop)| {
            match hop {
                Some(hop) => drop(table.insert(*prefix, *hop)?),
                None => drop(table.remove(*prefix)?),
            }
            Ok(())
        })
    })
}

/// The list begins without the rules that come and go.
fn list(rules: Vec<Rule4>, keys: &Keys, pace: Pace) -> Result<UpdateAnswer> {
    let (mut churning, mut start) = (Vec::new(), Vec::new());
    for (number, rule) in (0_u32..).zip(rules) {
        let churns = number as usize % CHURN_INTERVAL == 3;
        (if churns { &mut churning } else { &mut start }).push((number, rule));
    }
    let inserts = churning.iter().map(|(number, rule)| (*number, Some(rule)));
    let erases = churning.iter().map(|(number, _)| (*number, None));
    let updates: Vec<_> = inserts.chain(erases).collect();
    let live = Live::new(start, Options::default())?;
    let mut reader = live.reader();
    let mut found = [0; BATCH];
    let look_up = move |keys: &[acl::Key4]| {
        reader.classify(keys, &mut found[..keys.len()]);
        black_box(&mut found);
    };
    look_up_during(&keys.packets, look_up, || {
        pace.timed(&updates, |(number, rule)| {
            match rule {
                Some(rule) => live.insert(*number, (*rule).clone())?,
                None => live.erase(*number)?,
            }
            Ok(())
        })
    })
}

#[derive(Clone, Copy)]
struct Pace {
    length: Duration,
    /// Updates a second; 0 is one after the other.
    offered: f64,
}

impl Pace {
    /// Makes the updates from the first to the last, again and again, and says how long each took.
    fn timed<U>(self, updates: &[U], mut update: impl FnMut(&U) -> Result<()>) -> Result<Vec<u32>> {
        let mut times = Vec::with_capacity(1 << 20);
        let begun = Instant::now();
        for (number, one) in updates.iter().cycle().enumerate() {
            let mut started = Instant::now();
            if self.offered > 0.0 {
                #[expect(clippy::cast_precision_loss, reason = "a count of updates")]
                let due = begun + Duration::from_secs_f64(number as f64 / self.offered);
                while started < due {
                    std::hint::spin_loop();
                    started = Instant::now();
                }
            }
            if started - begun > self.length {
                break;
            }
            update(one)?;
            times.push(nanoseconds(started.elapsed()));
        }
        Ok(times)
    }
}

fn nanoseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// Looks up in a thread while `work` makes updates.
fn look_up_during<K: Sync>(
    keys: &[K],
    mut look_up: impl FnMut(&[K]) + Send,
    work: impl FnOnce() -> Result<Vec<u32>>,
) -> Result<UpdateAnswer> {
    let (done, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut times = Vec::with_capacity(1 << 20);
            for keys in keys.chunks_exact(BATCH).cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let started = Instant::now();
                look_up(keys);
                times.push(nanoseconds(started.elapsed()));
                begun.store(1, Ordering::Relaxed);
            }
            times
        });
        while begun.load(Ordering::Relaxed) == 0 && !reading.is_finished() {
            thread::yield_now();
        }
        let started = Instant::now();
        let times = work();
        let took = started.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        let batches = reading
            .join()
            .ok()
            .context("the thread that looks up ended")?;
        account(times?, took, batches)
    })
}

fn account(mut times: Vec<u32>, took: f64, mut batches: Vec<u32>) -> Result<UpdateAnswer> {
    times.sort_unstable();
    batches.sort_unstable();
    let middle = |sorted: &[u32]| sorted.get(sorted.len() / 2).copied();
    let longest = |sorted: &[u32]| f64::from(sorted.last().copied().unwrap_or(0)) / 1e3;
    let median = middle(&times).context("the time was too short for an update")?;
    let batch = middle(&batches).context("the time was too short for a lookup")?;
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let updates_per_s = times.len() as f64 / took;
    #[expect(clippy::cast_precision_loss, reason = "a batch is short")]
    let ns = f64::from(batch) / BATCH as f64;
    Ok(UpdateAnswer {
        updates: times.len() as u64,
        updates_per_s,
        median_us: f64::from(median) / 1e3,
        longest_us: longest(&times),
        ns,
        longest_batch_us: longest(&batches),
        batches: batches.len() as u64,
    })
}
