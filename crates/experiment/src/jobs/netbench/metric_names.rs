//! Names of metrics: each test has its own, so that a name tells what was measured.

use netbench::Test;
use report::record::{Better, Effect, Metric};

pub(super) const TRANSACTIONS: &str = "transactions_per_s";
pub(super) const CPU_OF_TRANSACTION: &str = "cpu_ns_per_transaction";
pub(super) const CPU_OF_GBIT: &str = "cpu_s_per_gbit";

/// The median of its transactions' times.
pub(super) fn p50(test: Test) -> String {
    format!("{test}_us_p50")
}

/// Their 99th percentile.
pub(super) fn p99(test: Test) -> String {
    format!("{test}_us_p99")
}

/// The goodput of its stream.
pub(super) fn goodput(test: Test) -> String {
    format!("{test}_mbps")
}

/// The share of its datagrams that is lost.
pub(super) fn loss(test: Test) -> String {
    format!("{test}_loss_pct")
}

/// Half a bucket of the agent's histograms, which keep three significant digits.
const RESOLUTION: f64 = 0.0005;

/// The metrics of all tests.
pub(crate) fn metrics() -> Vec<Metric> {
    let metric = |name: String, unit: &str, better, effect| Metric {
        name,
        unit: unit.to_owned(),
        better,
        primary: false,
        effect,
        resolution: 0.0,
    };
    let time = |name| Metric {
        resolution: RESOLUTION,
        ..metric(name, "us", Better::Lower, Effect::Ratio)
    };
    let goodputs = |test| metric(goodput(test), "Mb/s", Better::Higher, Effect::Ratio);
    let losses = |test| metric(loss(test), "%", Better::Lower, Effect::Difference);
    let (streaming, transacting): (Vec<_>, Vec<_>) =
        Test::ALL.into_iter().partition(|test| test.streams());
    let lossy = streaming.iter().filter(|test| test.measures_loss());
    let times = transacting.into_iter();
    let mut all: Vec<_> = times
        .flat_map(|test| [p50(test), p99(test)].map(time))
        .collect();
    let transactions = TRANSACTIONS.to_owned();
    all.push(metric(transactions, "1/s", Better::Higher, Effect::Ratio));
    all.extend(streaming.iter().copied().map(goodputs));
    all.extend(lossy.copied().map(losses));
    for (name, unit) in [(CPU_OF_TRANSACTION, "ns"), (CPU_OF_GBIT, "s")] {
        all.push(metric(name.to_owned(), unit, Better::Lower, Effect::Ratio));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_metrics_of_these_names() {
        let all = metrics();
        let has = |name: &str| all.iter().any(|metric| metric.name == name);
        for test in Test::ALL {
            assert_eq!(has(&goodput(test)), test.streams(), "{test}");
            assert_eq!(has(&p50(test)), !test.streams(), "{test}");
            assert_eq!(has(&p99(test)), !test.streams(), "{test}");
            assert_eq!(has(&loss(test)), test.measures_loss(), "{test}");
        }
        for name in [TRANSACTIONS, CPU_OF_TRANSACTION, CPU_OF_GBIT] {
            assert!(has(name), "{name}");
        }
    }
}
