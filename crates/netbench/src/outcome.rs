//! What a test came to, as both ends saw it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// Of latencies in nanoseconds: three digits are kept.
const DIGITS: u8 = 3;
/// An hour; longer ones count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What one end did while it was measured, and what it cost that process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Of the window, by this end's clock, in nanoseconds.
    pub window_ns: u64,
    /// That it received (in a stream: or sent) in the window.
    pub bytes: u64,
    /// Reads, writes or datagrams that these were.
    pub messages: u64,
    /// Datagrams from the test's beginning to its end, when nothing is on the way any more.
    pub all_messages: u64,
    /// As many bytes, of any test.
    pub all_bytes: u64,
    /// Of the process, user and system; softirqs that work for it are somebody else's.
    pub cpu_ns: u64,
    /// What the kernel gave each socket, in bytes, as it counts them.
    pub send_buffer: u64,
    pub receive_buffer: u64,
    /// How long its reads poll before they sleep, in microseconds.
    pub busy_poll_us: u32,
}

/// How long transactions took, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// Payload that arrived in the window, in bits a second.
    pub bits_per_s: f64,
    /// Payload that was sent in the window, in bits a second.
    pub offered_bits_per_s: f64,
    /// Of all datagrams that were sent; none where nothing can be lost.
    pub loss: Option<f64>,
}

/// One test, done.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub spec: Spec,
    pub near: End,
    /// None where there is none: `icmp`, or a server that died.
    pub far: Option<End>,
    pub latency: Option<Latency>,
    pub transfer: Option<Transfer>,
    /// Requests that nothing came back for.
    pub lost: u64,
    /// It ended before its time: why.
    pub ended_early: Option<String>,
}

impl Latency {
    pub fn new() -> Self {
        // The bounds are constants that are known to be right.
        #[expect(clippy::unwrap_used, reason = "constant bounds")]
        Self(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).unwrap())
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// All of another's as well.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _same = self.0.add(&other.0);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// In nanoseconds: what this share of them did not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    pub fn min(&self) -> u64 {
        self.0.min()
    }

    pub fn max(&self) -> u64 {
        self.0.max()
    }

    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Values and how many there are of each, in their order, for who draws them.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let values = self.0.iter_recorded();
        values.map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Outcome {
    /// Transactions a second in the window.
    pub fn transactions_per_s(&self) -> Option<f64> {
        let latency = self.latency.as_ref()?;
        Some(latency.count() as f64 / seconds(self.near.window_ns))
    }
}

impl Transfer {
    /// From what the sending end and the receiving end counted.
    pub(crate) fn of(sent: &End, received: &End, datagrams: bool) -> Self {
        let rate = |end: &End| end.bytes as f64 * 8.0 / seconds(end.window_ns);
        let lost = sent.all_messages.saturating_sub(received.all_messages);
        let loss = datagrams.then(|| lost as f64 / sent.all_messages.max(1) as f64);
        let offered = rate(sent);
        let arrived = match loss {
            // A flood has kept it from hearing when the window began: what its own holds is no sample.
            Some(loss) if received.window_ns < sent.window_ns / 2 => offered * (1.0 - loss),
            _ => rate(received),
        };
        Self {
            bits_per_s: arrived,
            offered_bits_per_s: offered,
            loss,
        }
    }
}

pub(crate) fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latency = Latency::new();
        for ns in 1..=1000 {
            latency.record(ns * 1000);
        }
        let close = |share, ns: u64| latency.quantile(share).abs_diff(ns) * 1000 <= ns;
        assert!(close(0.5, 500_000) && close(0.99, 990_000) && close(1.0, 1_000_000));
        assert_eq!(latency.count(), 1000);
        let mut both = Latency::new();
        both.add(&latency);
        both.record(u64::MAX);
        assert_eq!(both.count(), 1001);
        assert_eq!(both.counts().map(|(_, count)| count).sum::<u64>(), 1001);
    }

    #[test]
    fn loss_is_of_all_that_was_sent() {
        let end = |bytes, all_messages| End {
            window_ns: 2_000_000_000,
            bytes,
            all_messages,
            ..End::default()
        };
        let transfer = Transfer::of(&end(1000, 100), &end(750, 80), true);
        assert_eq!(transfer.bits_per_s, 3000.0);
        assert_eq!(transfer.offered_bits_per_s, 4000.0);
        assert_eq!(transfer.loss, Some(0.2));
        assert_eq!(Transfer::of(&end(0, 0), &end(0, 0), true).loss, Some(0.0));
        let late = End {
            window_ns: 1000,
            ..end(0, 80)
        };
        let transfer = Transfer::of(&end(1000, 100), &late, true);
        assert_eq!((transfer.bits_per_s, transfer.loss), (3200.0, Some(0.2)));
        assert_eq!(Transfer::of(&end(8, 1), &end(8, 1), false).loss, None);
    }
}
