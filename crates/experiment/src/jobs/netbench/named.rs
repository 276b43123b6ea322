//! What the figures of a test are called: each test has its own, so that a name says what was measured.

use netbench::Test;

pub(super) const TRANSACTIONS: &str = "transactions_per_s";
pub(super) const CPU_OF_TRANSACTION: &str = "cpu_ns_per_transaction";
pub(super) const CPU_OF_GBIT: &str = "cpu_s_per_gbit";

/// How long its transactions take: half of them no longer than this.
pub(super) fn p50(test: Test) -> String {
    format!("{test}_us_p50")
}

/// And 99 of a hundred.
pub(super) fn p99(test: Test) -> String {
    format!("{test}_us_p99")
}

/// What arrives of its stream.
pub(super) fn goodput(test: Test) -> String {
    format!("{test}_mbps")
}

/// What of its datagrams does not.
pub(super) fn loss(test: Test) -> String {
    format!("{test}_loss_pct")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn every_test_has_metrics_of_these_names() {
        for test in Test::ALL {
            let names = match test {
                Test::UdpStream => vec![goodput(test), loss(test)],
                _ if test.streams() => vec![goodput(test)],
                _ => vec![p50(test), p99(test)],
            };
            for name in names {
                assert!(metrics::find(&name).is_some(), "{name}");
            }
        }
        for name in [TRANSACTIONS, CPU_OF_TRANSACTION, CPU_OF_GBIT] {
            assert!(metrics::find(name).is_some(), "{name}");
        }
    }
}
