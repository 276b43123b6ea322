//! The result of a test, as both ends saw it.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::pace::Pace;
use crate::spec::Spec;

/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// The largest latency: longer ones count as an hour.
const MAX_NS: u64 = 3_600_000_000_000;
/// Distinct ages that are recorded of transactions that never began.
const MAX_AGES: u64 = 10_000;

/// What one end counted in the window, and what that cost its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The length of the window by this end's clock, in nanoseconds.
    pub window_ns: u64,
    /// Bytes that it received (in a stream: or sent) in the window.
    pub bytes: u64,
    /// The reads, writes or datagrams of these bytes.
    pub messages: u64,
    /// The same from the test's beginning until nothing is on the way any more.
    pub all_messages: u64,
    pub all_bytes: u64,
    /// CPU time of the process, user and system, without softirqs that work for it.
    pub cpu_ns: u64,
    /// The largest buffers of a socket until the window closed, in bytes, as the kernel counts them.
    pub send_buffer: u64,
    pub receive_buffer: u64,
    /// How long its reads poll before they sleep, in microseconds.
    pub busy_poll_us: u32,
}

/// How long transactions took, in nanoseconds.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

/// The times of transactions, and how an open loop kept its schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) latency: Latency,
    /// How late this end itself began them; none in a closed loop.
    pub(crate) late: Option<Latency>,
    /// Transactions that were due and never began.
    pub(crate) unsent: u64,
    /// Transactions that were given up before their answer came.
    pub(crate) unfinished: u64,
}

/// What a stream carried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// Payload that arrived in the window, in bits a second.
    pub bits_per_s: f64,
    /// Payload that was sent in the window, in bits a second.
    pub offered_bits_per_s: f64,
    /// The share of all datagrams that was lost; none where nothing can be lost.
    pub loss: Option<f64>,
}

/// The result of one test.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub spec: Spec,
    pub near: End,
    /// None if the test has no server, or the server died.
    pub far: Option<End>,
    /// The times of transactions. Those that never began, or were given up, count with what they took at least.
    pub latency: Option<Latency>,
    pub transfer: Option<Transfer>,
    /// Requests without an answer.
    pub lost: u64,
    /// Requests that were due in the window and never sent, in an open loop.
    pub unsent: u64,
    /// Requests over a connection that were given up after the end. Each was waited for in the window.
    pub unfinished: u64,
    /// How late the near end itself began its transactions, beyond their wait for those before them, in an open loop.
    pub late: Option<Latency>,
    /// Why the test ended early, if it did.
    pub ended_early: Option<String>,
}

impl Latency {
    pub fn new() -> Self {
        // The bounds are constants that are known to be right.
        #[expect(clippy::unwrap_used, reason = "constant bounds")]
        Self(Histogram::new_with_bounds(1, MAX_NS, DIGITS).unwrap())
    }

    pub(crate) fn record(&mut self, took: Duration) {
        self.record_many(took, 1);
    }

    fn record_many(&mut self, took: Duration, count: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record_n(ns, count);
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _same = self.0.add(&other.0);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value that this share of them does not exceed, in nanoseconds.
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

    /// Values in their order, and how many there are of each.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let values = self.0.iter_recorded();
        values.map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

/// Without its thousands of counts.
impl std::fmt::Debug for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .field("min", &self.min())
            .field("max", &self.max())
            .finish()
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Times {
    pub(crate) fn record(&mut self, took: Duration) {
        self.latency.record(took);
    }

    pub(crate) fn record_lateness(&mut self, by: Duration) {
        self.late.get_or_insert_default().record(by);
    }

    /// Records so many that were due this long before the window closed and never began.
    pub(crate) fn record_unsent(&mut self, age: Duration, count: u64) {
        self.unsent += count;
        self.latency.record_many(age, count);
    }

    /// Records one that was given up after so long.
    pub(crate) fn record_unfinished(&mut self, took: Duration) {
        self.unfinished += 1;
        self.latency.record(took);
    }

    /// Records all that a pace has not sent in this window.
    pub(crate) fn record_all_unsent(&mut self, pace: &Pace, opened: Instant, closed: Instant) {
        let Some((first, count)) = pace.unsent(opened, closed) else {
            return;
        };
        let oldest = closed.saturating_duration_since(first);
        let interval = pace.interval().as_secs_f64();
        let mut begun = 0;
        let together = count.div_ceil(MAX_AGES);
        while begun < count {
            let some = together.min(count - begun);
            // The age of the youngest, because each has waited at least so long.
            let later = Duration::from_secs_f64((begun + some - 1) as f64 * interval);
            self.record_unsent(oldest.saturating_sub(later), some);
            begun += some;
        }
    }

    /// Adds those of another flow.
    pub(crate) fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency);
        if let Some(late) = &other.late {
            self.late.get_or_insert_default().add(late);
        }
        self.unsent += other.unsent;
        self.unfinished += other.unfinished;
    }
}

impl Outcome {
    /// Complete transactions a second in the window.
    pub fn transactions_per_s(&self) -> Option<f64> {
        let done = self.latency.as_ref()?.count() - self.unsent - self.unfinished;
        Some(done as f64 / seconds(self.near.window_ns))
    }
}

impl Transfer {
    /// Compares what the sending end and the receiving end counted.
    pub(crate) fn of(sent: &End, received: &End, datagrams: bool) -> Self {
        let rate = |end: &End| end.bytes as f64 * 8.0 / seconds(end.window_ns);
        let lost = sent.all_messages.saturating_sub(received.all_messages);
        let loss = datagrams.then(|| lost as f64 / sent.all_messages.max(1) as f64);
        let offered = rate(sent);
        let arrived = match loss {
            // A flood delayed the message that opens the receiver's window, which is then too short a sample.
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
    fn percentiles_match_recorded_values() {
        let mut latency = Latency::new();
        for ns in 1..=1000 {
            latency.record(Duration::from_micros(ns));
        }
        let close = |share, ns: u64| latency.quantile(share).abs_diff(ns) * 1000 <= ns;
        assert!(close(0.5, 500_000) && close(0.99, 990_000) && close(1.0, 1_000_000));
        assert_eq!(latency.count(), 1000);
        let mut both = Latency::new();
        both.add(&latency);
        both.record(Duration::MAX);
        assert_eq!(both.count(), 1001);
        assert_eq!(both.counts().map(|(_, count)| count).sum::<u64>(), 1001);
    }

    #[test]
    fn loss_is_share_of_all_sent() {
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
