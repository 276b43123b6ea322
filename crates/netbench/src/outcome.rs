//! The result of a test, as both ends saw it.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::flow::{Arrivals, LatencySummary};
use crate::pace::Pace;
use crate::spec::{Direction, Spec};

/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// The largest latency: longer ones count as an hour.
const MAX_NS: u64 = 3_600_000_000_000;
/// A sender that stays below this share of its rate has missed it.
const MIN_RATE_SHARE: f64 = 0.98;
/// Distinct ages that are recorded of transactions that never began.
const MAX_AGES: u64 = 10_000;

/// What one end counted in the window, and what that cost its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
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
    /// The bytes of each flow in the window.
    pub flow_bytes: Vec<u64>,
    /// Datagrams that this machine refused to send: a full queue, a firewall, a size that does not fit the path.
    pub send_errors: u64,
    /// The MTU of its path when the test ended, in bytes, as far as it knew.
    pub path_mtu: Option<u32>,
    /// What it received by sequence numbers, from the test's beginning on.
    pub arrivals: Arrivals,
    /// What TCP knew of its connections when the window closed; none if it had none, or has closed them.
    pub tcp: Option<TcpStatistics>,
    /// The 99th percentile of how late it began its messages, in nanoseconds, where the server sends at a rate.
    pub late_p99_ns: Option<u64>,
}

/// What TCP knows of the connections of a test, by `TCP_INFO`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpStatistics {
    pub connections: u16,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// The smoothed round trip and its variation, the mean of the connections, in microseconds.
    pub rtt_us: u32,
    pub rtt_variation_us: u32,
    /// The shortest round trip of any connection, in microseconds.
    pub min_rtt_us: Option<u32>,
    /// The sum of the connections' congestion windows, in bytes.
    pub congestion_window_bytes: u64,
    /// The largest segment, in bytes.
    pub mss: u32,
    /// The name of the congestion control.
    pub congestion: String,
}

impl TcpStatistics {
    /// Those of two sets of connections.
    pub(crate) fn merge(self, other: &Self) -> Self {
        let connections = self.connections.saturating_add(other.connections);
        let mean = |one: u32, two: u32| {
            let sum = u64::from(one) * u64::from(self.connections)
                + u64::from(two) * u64::from(other.connections);
            u32::try_from(sum / u64::from(connections.max(1))).unwrap_or(u32::MAX)
        };
        Self {
            connections,
            retransmits: self.retransmits + other.retransmits,
            rtt_us: mean(self.rtt_us, other.rtt_us),
            rtt_variation_us: mean(self.rtt_variation_us, other.rtt_variation_us),
            min_rtt_us: [self.min_rtt_us, other.min_rtt_us]
                .into_iter()
                .flatten()
                .min(),
            congestion_window_bytes: self.congestion_window_bytes + other.congestion_window_bytes,
            mss: self.mss.max(other.mss),
            congestion: self.congestion,
        }
    }
}

/// How long transactions took, in nanoseconds.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

/// The times of transactions, and how an open loop kept its schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) latency: Latency,
    /// How long the transactions of `unsent` and `unfinished` have waited at least.
    pub(crate) bounds: Latency,
    /// How late this end itself began its messages; none in a closed loop.
    pub(crate) late: Option<Latency>,
    /// Requests that were sent, from the test's beginning on.
    pub(crate) sent: u64,
    /// Messages that were due and never sent.
    pub(crate) unsent: u64,
    /// Transactions that were given up before their answer came.
    pub(crate) unfinished: u64,
}

/// A quantile of latencies, some of which are known only to be above a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantile {
    /// The shortest that it can be, and the longest; none where it has no upper limit.
    pub ns: u64,
    pub at_most: Option<u64>,
}

impl Quantile {
    /// False if the true quantile may be longer.
    pub fn is_exact(self) -> bool {
        self.at_most == Some(self.ns)
    }
}

/// What passed in one direction of a test, by sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datagrams {
    /// None: there and back, where the other end is a kernel that does not count.
    pub direction: Option<Direction>,
    pub sent: u64,
    pub arrivals: Arrivals,
}

impl Datagrams {
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrivals.unique)
    }
}

/// What the streams of another session did to the path during a test of latency.
#[derive(Clone, Debug)]
pub struct Load {
    /// The streams in each direction; none where nothing was sent that way.
    pub up: Option<Transfer>,
    pub down: Option<Transfer>,
    /// The flows of each direction.
    pub flows: u16,
    /// The same test on the idle path, just before.
    pub idle: Box<Outcome>,
}

/// A half of a test of latency under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the load.
    Idle,
    Loaded,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Loaded => "loaded",
        }
    }
}

/// What passed in one interval of a test, at the near end.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    pub direction: Direction,
    /// None where a test has no load.
    pub phase: Option<Phase>,
    /// From the beginning of the window, in seconds.
    pub begin: Duration,
    pub end: Duration,
    pub bytes: u64,
    pub messages: u64,
    /// The transactions that ended in it; without any in a test of streams.
    pub latency: LatencySummary,
    /// Segments that this end's TCP sent again in it, and what it knows of the connections at its end. Of a stream from
    /// the server these are the receiver's.
    pub retransmits: u64,
    pub tcp: Option<TcpStatistics>,
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
    /// The times of complete transactions.
    pub latency: Option<Latency>,
    /// How long the transactions of `unsent` and `unfinished` have waited at least. They have no time.
    pub bounds: Latency,
    /// Requests that were sent, from the test's beginning on.
    pub sent: u64,
    pub transfer: Option<Transfer>,
    /// Requests without an answer.
    pub lost: u64,
    /// Requests that were due in the window and never sent, in an open loop.
    pub unsent: u64,
    /// Requests over a connection that were given up after the end. Each was waited for in the window.
    pub unfinished: u64,
    /// How late the near end itself began its messages, in an open loop.
    pub late: Option<Latency>,
    /// The MTU of the path, in bytes, as far as the near end knows it.
    pub path_mtu: Option<u32>,
    /// The largest packet that carries a datagram of the test, with its headers, in bytes; none without datagrams.
    pub packet_bytes: Option<u32>,
    /// The test ran at the same time as another in the other direction.
    pub bidirectional: bool,
    /// The load of the path, if the test was to measure latency under load.
    pub load: Option<Load>,
    /// The times of each flow's transactions, if there are several.
    pub flow_latencies: Vec<Latency>,
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

    pub(crate) fn record_many(&mut self, took: Duration, count: u64) {
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

    /// Records messages that were due this long before the window closed and never began.
    pub(crate) fn record_unsent(&mut self, age: Duration, count: u64) {
        self.unsent += count;
        self.bounds.record_many(age, count);
    }

    /// Records one that was given up after so long.
    pub(crate) fn record_unfinished(&mut self, took: Duration) {
        self.unfinished += 1;
        self.bounds.record(took);
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
        self.bounds.add(&other.bounds);
        self.sent += other.sent;
        if let Some(late) = &other.late {
            self.late.get_or_insert_default().add(late);
        }
        self.unsent += other.unsent;
        self.unfinished += other.unfinished;
    }
}

impl Outcome {
    /// The outcome of a test that has measured nothing.
    pub(crate) fn empty(spec: &Spec) -> Self {
        Self {
            spec: spec.clone(),
            near: End::default(),
            far: None,
            latency: None,
            bounds: Latency::new(),
            sent: 0,
            transfer: None,
            lost: 0,
            unsent: 0,
            unfinished: 0,
            late: None,
            path_mtu: None,
            packet_bytes: None,
            bidirectional: false,
            load: None,
            flow_latencies: Vec::new(),
            ended_early: None,
        }
    }

    /// Complete transactions a second in the window.
    pub fn transactions_per_s(&self) -> Option<f64> {
        let done = self.latency.as_ref()?.count();
        Some(done as f64 / seconds(self.near.window_ns))
    }

    /// A quantile of all transactions that were due in the window. One that never began, or was given up, took longer
    /// than it has waited: at least that, and at most any time. None without a transaction.
    pub fn quantile(&self, share: f64) -> Option<Quantile> {
        let latency = self.latency.as_ref().filter(|it| it.count() > 0)?;
        if self.bounds.count() == 0 {
            let ns = latency.quantile(share);
            let at_most = Some(ns);
            return Some(Quantile { ns, at_most });
        }
        let mut all = latency.clone();
        all.add(&self.bounds);
        let ns = all.quantile(share);
        // All that have no time may have taken longer than those that have one. Half a rank less, so that rounding does
        // not lead to the next one.
        let rank = (share * all.count() as f64).ceil().max(1.0);
        let known = latency.count() as f64;
        let at_most = (rank <= known).then(|| latency.quantile((rank - 0.5) / known).max(ns));
        Some(Quantile { ns, at_most })
    }

    /// Whether anything was measured in the window: an answer came, or a part of a stream arrived.
    pub fn has_result(&self) -> bool {
        match (&self.latency, &self.transfer) {
            (Some(latency), _) => latency.count() > 0,
            (None, Some(transfer)) => transfer.bits_per_s > 0.0,
            (None, None) => self.near.messages > 0,
        }
    }

    /// The datagrams of each direction by their sequence numbers. None without an account of both ends, except where one
    /// end sees both directions.
    pub fn datagrams(&self) -> Vec<Datagrams> {
        let of = |direction, sent, end: &End| Datagrams {
            direction: Some(direction),
            sent,
            arrivals: end.arrivals,
        };
        if !self.spec.test.needs_server() {
            return vec![Datagrams {
                direction: None,
                sent: self.sent,
                arrivals: self.near.arrivals,
            }];
        }
        let Some(far) = self.far.as_ref().filter(|_| self.spec.test.datagrams()) else {
            return Vec::new();
        };
        match (self.spec.test.streams(), self.spec.direction) {
            (true, Direction::Up) => vec![of(Direction::Up, self.near.all_messages, far)],
            (true, Direction::Down) => vec![of(Direction::Down, far.all_messages, &self.near)],
            // The server answers each request once, so that it has sent as many answers as requests have arrived.
            (false, _) => vec![
                of(Direction::Up, self.sent, far),
                of(Direction::Down, far.arrivals.unique, &self.near),
            ],
        }
    }

    /// The sending end of a stream.
    pub fn sender(&self) -> Option<&End> {
        match self.spec.direction {
            _ if !self.spec.test.streams() => None,
            Direction::Up => Some(&self.near),
            Direction::Down => self.far.as_ref(),
        }
    }

    /// The receiving end of a stream.
    pub fn receiver(&self) -> Option<&End> {
        match self.spec.direction {
            _ if !self.spec.test.streams() => None,
            Direction::Up => self.far.as_ref(),
            Direction::Down => Some(&self.near),
        }
    }

    /// The share of the rate that was asked for and that the sender reached; none without a rate.
    pub fn rate_share(&self) -> Option<f64> {
        self.sent_and_due().map(|(sent, due)| sent / due)
    }

    /// The share of the rate that the sender reached, if it has missed the rate: by more than one message of each flow,
    /// because that one may be due at the window's very end.
    pub fn missed_rate(&self) -> Option<f64> {
        let (sent, due) = self.sent_and_due()?;
        let share = sent / due;
        let missed = (due - sent).floor() > f64::from(self.spec.flows);
        (share < MIN_RATE_SHARE && missed).then_some(share)
    }

    /// The messages that were sent in the window, and those that were due in it by the rate.
    fn sent_and_due(&self) -> Option<(f64, f64)> {
        let rate = self.spec.rate?;
        let (sent, due) = match self.sender() {
            Some(sender) if sender.window_ns > 0 => (
                sender.bytes as f64 / f64::from(self.spec.message),
                rate * seconds(sender.window_ns),
            ),
            Some(_) => return None,
            None => {
                let latency = self.latency.as_ref().map_or(0, Latency::count);
                let sent = latency + self.lost + self.unfinished;
                (sent as f64, (sent + self.unsent) as f64)
            }
        };
        (due > 0.0).then_some((sent, due))
    }
}

/// How evenly flows share a path: 1 if all have the same, 1/n if one of n has everything. Jain, Chiu and Hawe, "A
/// Quantitative Measure of Fairness", DEC-TR-301, 1984.
pub fn fairness(bytes: &[u64]) -> Option<f64> {
    let sum: f64 = bytes.iter().map(|bytes| *bytes as f64).sum();
    let squares: f64 = bytes.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (bytes.len() as f64 * squares))
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

    fn outcome(latency: Latency, bounds: Latency) -> Outcome {
        let spec = Spec::new(crate::Test::UdpRr, Duration::from_secs(1));
        Outcome {
            latency: Some(latency),
            bounds,
            ..Outcome::empty(&spec)
        }
    }

    #[test]
    fn waits_without_end_bound_quantiles() {
        let times = |ms: std::ops::Range<u64>| {
            let mut latency = Latency::new();
            ms.for_each(|ms| latency.record(Duration::from_millis(ms)));
            latency
        };
        let known = outcome(times(0..1000), Latency::new());
        assert!(known.quantile(0.99).unwrap().is_exact());
        // One in ten has waited for 400 ms and more, and it is not known how long its answer would have taken.
        let some = outcome(times(0..900), times(400..500));
        let (middle, high) = (some.quantile(0.4).unwrap(), some.quantile(0.9).unwrap());
        assert!(
            middle.is_exact() && middle.ns.abs_diff(400_000_000) < 2_000_000,
            "{middle:?}"
        );
        assert!(!high.is_exact() && high.ns > 790_000_000, "{high:?}");
        assert!(high.at_most.unwrap() >= 899_000_000, "{high:?}");
        assert_eq!(some.quantile(0.99).unwrap().at_most, None);
        // One that has waited for a moment only may be anywhere, and changes a median by one rank.
        let one = outcome(times(0..999), times(0..1)).quantile(0.5).unwrap();
        assert!(one.at_most.unwrap() - one.ns <= 2_000_000, "{one:?}");
        assert_eq!(some.latency.as_ref().unwrap().count(), 900);
        assert_eq!(outcome(Latency::new(), times(0..9)).quantile(0.5), None);
    }

    #[test]
    fn stream_without_arrivals_in_window_has_no_result() {
        let spec = Spec::new(crate::Test::UdpStream, Duration::from_secs(1));
        let end = |bytes| End {
            window_ns: 1_000_000_000,
            bytes,
            // From the warm-up on.
            all_messages: 100,
            ..End::default()
        };
        let of = |arrived| Outcome {
            transfer: Some(Transfer::of(&end(1000), &end(arrived), true)),
            far: Some(end(arrived)),
            ..Outcome::empty(&spec)
        };
        assert!(!of(0).has_result() && of(1).has_result());
    }

    #[test]
    fn one_message_less_is_no_missed_rate() {
        let of = |flows, rate, sent: u64| {
            let spec = Spec {
                rate: Some(rate),
                flows,
                message: 10,
                ..Spec::new(crate::Test::UdpStream, Duration::from_secs(10))
            };
            let near = End {
                window_ns: 10_020_000_000,
                bytes: sent * 10,
                ..End::default()
            };
            let outcome = Outcome {
                near,
                ..Outcome::empty(&spec)
            };
            outcome.missed_rate().is_some()
        };
        assert_eq!(
            [of(1, 1.0, 9), of(1, 1.0, 8), of(2, 1.0, 8)],
            [false, true, false]
        );
        assert_eq!([of(1, 100.0, 990), of(1, 100.0, 980)], [false, true]);
    }

    #[test]
    fn fairness_is_jains_index() {
        assert_eq!(fairness(&[5, 5, 5]), Some(1.0));
        assert_eq!(fairness(&[7, 0, 0, 0]), Some(0.25));
        assert_eq!(fairness(&[0, 0]), None);
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
