//! Prints how lookups, memory and build time fare on generated lists, the hostile ones above all.
//!
//!     hostile [RULES]

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for the terminal"
)]

use std::hint::black_box;
use std::time::Instant;

use acl::generate::{self, Kind};
use acl::{Address, BATCH, Classifier, Key, Options};

fn main() {
    let count = std::env::args().nth(1).map_or(20_000, |n| n.parse().unwrap());
    for kind in Kind::ALL {
        print::<u32>("IPv4", kind, count);
        print::<u128>("IPv6", kind, count);
    }
}

fn print<A: Address>(name: &str, kind: Kind, count: usize) {
    let rules = generate::rules::<A>(kind, count, 1);
    let classifier = Classifier::build(&rules, Options::default()).unwrap();
    let report = classifier.report();
    println!(
        "{name} {kind:?}: within {:.1} ns, anywhere {:.1} ns, built in {:.2} s, {:.1} MiB, longest leaf {}, {} warnings",
        time(&classifier, &generate::keys_within(&rules, 64 << 10, 2)),
        time(&classifier, &generate::keys_anywhere(64 << 10, 3)),
        report.seconds,
        report.bytes as f64 / f64::from(1 << 20),
        report.longest,
        report.warnings.len(),
    );
}

/// Nanoseconds for a key, the least of several passes.
fn time<A: Address>(classifier: &Classifier<A>, keys: &[Key<A>]) -> f64 {
    let mut found = vec![0; BATCH];
    let pass = |_| {
        let started = Instant::now();
        for keys in keys.chunks(BATCH) {
            classifier.classify(keys, &mut found[..keys.len()]);
            black_box(&found);
        }
        started.elapsed().as_secs_f64() * 1e9 / keys.len() as f64
    };
    (0..9).map(pass).fold(f64::INFINITY, f64::min)
}
