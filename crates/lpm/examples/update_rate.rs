//! How many announcements and withdrawals a table takes in a second while another thread looks up
//! without pause, how long the slowest one took, and how long the slowest batch of lookups, alone and
//! beside the updates. The table is the one in LOWROAD_CORPUS; afterwards it is checked.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement for the terminal"
)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::table::Table;
use common::{Rng, answer, bounds, churn, inside, ranges, real};
use lpm::{Fib4, Fib6, Layout4, Layout6, Rib, Simd};
use sys::clock;

fn main() {
    let simd = Simd::widest();
    let corpus = sys::require::corpus().expect("LOWROAD_CORPUS names the folder of the table");
    let rib: Rib<u32> = real(&corpus, 200);
    let table = <Fib4 as Table>::build(rib, Layout4::Bytes, Fib4::usual_simd());
    measure("IPv4, bytes", table, 4_000_000);
    let rib: Rib<u128> = real(&corpus, 200);
    for layout in [Layout6::Paged, Layout6::Flat] {
        let table = <Fib6 as Table>::build(rib.clone(), layout, simd);
        measure(&format!("IPv6, {layout:?}"), table, 1_000_000);
    }
}

fn measure<T: Table>(name: &str, mut table: T, count: usize) {
    let updates = churn::updates(table.rib(), 200, count, 1);
    let prefixes: Vec<_> = table.rib().iter().map(|(prefix, _)| prefix).collect();
    let mut rng = Rng::new(2);
    let keys: Vec<_> = (0..256)
        .map(|_| inside(prefixes[rng.index(prefixes.len())], &mut rng))
        .collect();
    let pause = || thread::sleep(Duration::from_secs(2));
    let ((), alone) = with_lookups::<T, _>(table.reader(), &keys, pause);
    let mut times = Vec::with_capacity(count);
    let (cpu, beside) = with_lookups::<T, _>(table.reader(), &keys, || {
        let before = clock::thread_cpu_ns();
        for &(prefix, hop) in &updates {
            let start = Instant::now();
            match hop {
                Some(hop) => table.insert(prefix, hop),
                None => table.remove(prefix),
            };
            times.push(start.elapsed());
        }
        clock::thread_cpu_ns() - before
    });
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |share: f64| times[((count - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{name}: {:.2} M updates/s, {:.2} M in a second of CPU time; one takes {:.2} us (median), {:.2} us (99 %), {:.2} us (99.99 %), {:.0} us (slowest)",
        count as f64 / total.as_secs_f64() / 1e6,
        count as f64 * 1e3 / cpu as f64,
        at(0.5),
        at(0.99),
        at(0.9999),
        at(1.0)
    );
    println!("  lookups alone: {alone}");
    println!("  lookups beside the updates: {beside}");
    println!("  wrong answers afterwards: {}", wrong(&table));
}

/// Batches of lookups.
#[derive(Default)]
struct Batches {
    count: u64,
    /// Nanoseconds of CPU time of the longest one, and by the clock.
    cpu: u64,
    clock: u64,
    /// Changes that took more than a millisecond of CPU time.
    stalled: u64,
}

/// Does `work` while another thread looks up without pause.
fn with_lookups<T: Table, W>(
    mut reader: T::Reader,
    keys: &[T::Address],
    work: impl FnOnce() -> W,
) -> (W, Batches) {
    let (done, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut batches = Batches::default();
            while !done.load(Ordering::Relaxed) {
                let start = [clock::thread_cpu_ns(), clock::monotonic_ns()];
                std::hint::black_box(T::read(&mut reader, keys));
                let end = [clock::thread_cpu_ns(), clock::monotonic_ns()];
                batches.count += 1;
                batches.cpu = batches.cpu.max(end[0] - start[0]);
                batches.clock = batches.clock.max(end[1] - start[1]);
                batches.stalled += u64::from(end[0] - start[0] > 1_000_000);
                begun.store(true, Ordering::Relaxed);
            }
            batches
        });
        while !begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let made = work();
        done.store(true, Ordering::Relaxed);
        (made, reading.join().expect("the reader has ended early"))
    })
}

impl fmt::Display for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cpu, clock] = [self.cpu, self.clock].map(|ns| ns as f64 / 1e3);
        write!(
            f,
            "{} batches of 256, the longest {cpu:.0} us of CPU time ({clock:.0} us with what it was scheduled away for), {} over 1 ms of CPU time",
            self.count, self.stalled
        )
    }
}

/// Answers at the bounds of all prefixes that are not those of the prefixes by definition.
fn wrong<T: Table>(table: &T) -> usize {
    let oracle = ranges(table.rib().iter());
    let keys = bounds(table.rib().iter().map(|(prefix, _)| prefix));
    let answers = T::read(&mut table.reader(), &keys);
    let pairs = keys.iter().zip(&answers);
    pairs
        .filter(|&(&key, &found)| answer(&oracle, key) != found)
        .count()
}
