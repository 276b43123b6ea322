//! Prints how lookups, memory and build time fare on generated lists, the hostile ones above all.
//!
//!     hostile [RULES [KIND...]]
//!
//! Kinds are named as `generate::Kind` names them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for the terminal"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use acl::generate::{self, Kind};
use acl::{Address, BATCH, Classifier, Key, Options};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(20_000, |n| n.parse().unwrap());
    let wanted: Vec<String> = arguments.collect();
    let is_wanted = |kind: &Kind| wanted.is_empty() || wanted.contains(&format!("{kind:?}"));
    for kind in Kind::ALL.into_iter().filter(is_wanted) {
        print::<u32>("IPv4", kind, count);
        print::<u128>("IPv6", kind, count);
    }
}

fn print<A: Address>(name: &str, kind: Kind, count: usize) {
    let rules = generate::rules::<A>(kind, count, 1);
    let classifier = Classifier::build(&rules, Options::default()).unwrap();
    let report = classifier.report();
    println!(
        "{name} {kind:?}: within {:.1} ns, anywhere {:.1} ns, built in {:.2} s, {:.1} MiB, longest leaf {}, looked at {:.1} for each rule, {} warnings",
        time(&classifier, &generate::keys_within(&rules, 64 << 10, 2)),
        time(&classifier, &generate::keys_anywhere(64 << 10, 3)),
        report.seconds,
        report.bytes as f64 / f64::from(1 << 20),
        report.longest,
        report.work as f64 / count as f64,
        report.warnings.len(),
    );
}

/// Fewer keys are looked up if all take longer than this.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Nanoseconds for a key, the least of several passes.
fn time<A: Address>(classifier: &Classifier<A>, keys: &[Key<A>]) -> f64 {
    let mut found = vec![0; BATCH];
    let begun = Instant::now();
    let mut least = f64::INFINITY;
    while begun.elapsed() < TIME_LIMIT / 4 {
        let started = Instant::now();
        let mut done = 0;
        for keys in keys.chunks(BATCH) {
            classifier.classify(keys, &mut found[..keys.len()]);
            black_box(&found);
            done += keys.len();
            if begun.elapsed() > TIME_LIMIT {
                break;
            }
        }
        least = least.min(started.elapsed().as_secs_f64() * 1e9 / done as f64);
    }
    least
}
