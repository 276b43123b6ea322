//! How many announcements and withdrawals a table takes in a second while another thread looks up
//! without pause, and how long the slowest one took. The table is the one in LOWROAD_CORPUS.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement for the terminal"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::table::Table;
use common::{Rng, churn, inside, real};
use lpm::{Fib4, Fib6, Layout4, Layout6, Rib, Simd};

fn main() {
    let simd = Simd::widest();
    let corpus = sys::require::corpus().expect("LOWROAD_CORPUS names the folder of the table");
    let rib: Rib<u32> = real(&corpus, 200);
    let table = <Fib4 as Table>::build(rib, Layout4::Bytes, Fib4::usual_simd());
    measure("IPv4, bytes", table, 4_000_000);
    let rib: Rib<u128> = real(&corpus, 200);
    for layout in [Layout6::Paged, Layout6::Flat] {
        let table = <Fib6 as Table>::build(rib.clone(), layout, simd);
        measure(&format!("IPv6, {layout:?}"), table, 500_000);
    }
}

fn measure<T: Table>(name: &str, mut table: T, count: usize) {
    let updates = churn::updates(table.rib(), 200, count, 1);
    let prefixes: Vec<_> = table.rib().iter().map(|(prefix, _)| prefix).collect();
    let mut rng = Rng(2);
    let keys: Vec<_> = (0..256)
        .map(|_| inside(prefixes[rng.below(prefixes.len())], &mut rng))
        .collect();
    let (done, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut times = Vec::with_capacity(count);
    let mut reader = table.reader();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::black_box(T::read(&mut reader, &keys));
                batches.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Until the reader reads.
        while batches.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        for &(prefix, hop) in &updates {
            let start = Instant::now();
            match hop {
                Some(hop) => table.insert(prefix, hop),
                None => table.remove(prefix),
            };
            times.push(start.elapsed());
        }
        done.store(true, Ordering::Relaxed);
    });
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |share: f64| times[((count - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let rate = count as f64 / total.as_secs_f64() / 1e6;
    println!(
        "{name}: {rate:.2} M updates/s beside {} batches of 256; one takes {:.2} us (median), {:.2} us (99 %), {:.2} us (99.99 %), {:.0} us (slowest)",
        batches.into_inner(),
        at(0.5),
        at(0.99),
        at(0.9999),
        at(1.0)
    );
}
