//! Receiving applications at the subscribers' addresses: the delay from the intended time of
//! sending to an application's hands.

use std::net::UdpSocket;

use anyhow::{Context, Result};
use probes::receiver::{Receiver, ReceiverReport};
use stats::Histogram;

use super::delay::DRAIN;
use super::stage::Stage;
use crate::outcome::Outcome;

/// An application for each subscriber.
pub(super) struct Applications(Vec<Receiver>);

impl Applications {
    /// Starts them in the receiver's namespace, for packets of `run` below `capacity`.
    pub(super) fn start(stage: &Stage, run: u32, capacity: u32) -> Result<Self> {
        let host = stage.bed.host("receiver")?;
        let start = |&address| {
            let socket = host
                .run(|| UdpSocket::bind(address))?
                .with_context(|| format!("receiving at {address}"))?;
            Ok(Receiver::start(socket, run, 0, capacity)?)
        };
        let receivers: Result<_> = stage.subscribers.iter().map(start).collect();
        Ok(Self(receivers?))
    }

    /// Waits for what is under way, and notes what the applications got of `sent` packets.
    pub(super) fn finish(self, sent: u64, outcome: &mut Outcome) -> Result<()> {
        let mut delays = Histogram::new();
        let (mut unique, mut missing) = (0, 0);
        for receiver in self.0 {
            // Packets before the measured ones count as received too: the quiet ends the wait.
            receiver.settle(u64::MAX, DRAIN);
            let received: ReceiverReport = receiver.stop()?;
            delays.merge(&received.since_intended);
            unique += received.unique;
            missing += received.missing(sent);
            outcome.violations.extend(received.violations(sent));
        }
        if let Some(ns) = delays.quantile(0.5) {
            outcome.values.insert("app_delay_p50".to_owned(), ns / 1e3);
        }
        if unique + missing > 0 {
            let percent = 100.0 * missing as f64 / (unique + missing) as f64;
            outcome.values.insert("loss_pct".to_owned(), percent);
        }
        outcome.counts.insert("app_unique".to_owned(), unique);
        outcome.counts.insert("app_missing".to_owned(), missing);
        outcome.histograms.insert("app_delay".to_owned(), delays);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::{Load, Measure, Scope, TrialSpec};
    use super::super::{FLOOR, NULL_PROBE, RelayBench};
    use crate::bench::JobBench;
    use crate::environment::NATIVE;
    use crate::idle::IdlePolicy;
    use crate::program::Lowroad;

    #[test]
    fn both_bare_arms_tell_when_the_application_has_it() {
        if !sys::require::root() {
            return;
        }
        let load = Load {
            scope: Scope::Application,
            ..Load::paced("200B", "1kpps", 1, "100ms").unwrap()
        };
        let mut bench = RelayBench::prepare().unwrap();
        for arm in [FLOOR, NULL_PROBE] {
            let spec = TrialSpec {
                arm,
                lowroad: &Lowroad::own(),
                program: None,
                load: &load,
                measure: Measure::Delay,
                idle: IdlePolicy::None,
                environment: NATIVE,
                seed: 6,
                block: 0,
            };
            let outcome = bench.trial(&spec).unwrap();
            assert!(outcome.values["app_delay_p50"] > 0.0, "{arm}");
            assert_eq!(outcome.counts["app_unique"], 100, "{arm}");
            assert!(!outcome.values.contains_key("delay_p50"), "{arm}");
        }
    }
}
