//! How late packets were, and whose fault that was.

use stats::{BUCKETS, Histogram, bucket};

/// Splits lateness: time that sends took pushes later packets back, and that is the receiver's
/// back-pressure; the rest is the generator's own.
///
/// It follows a generator that needs no time of its own: it would have entered each send when that
/// was due or when the send before returned, whichever was later.
#[derive(Debug)]
pub(crate) struct Lateness {
    whole: Box<[u64; BUCKETS]>,
    own: Box<[u64; BUCKETS]>,
    /// When the ideal generator's last send would have returned.
    ideal_free: u64,
}

impl Lateness {
    pub(crate) fn new() -> Self {
        Self {
            whole: Box::new([0; BUCKETS]),
            own: Box::new([0; BUCKETS]),
            ideal_free: 0,
        }
    }

    /// A send of `packets`, due at `due`, was entered and left at these times.
    pub(crate) fn record(&mut self, due: u64, entered: u64, left: u64, packets: u64) {
        let ideal = due.max(self.ideal_free);
        self.whole[bucket(entered.saturating_sub(due))] += packets;
        self.own[bucket(entered.saturating_sub(ideal))] += packets;
        self.ideal_free = ideal + left.saturating_sub(entered);
    }

    /// The whole lateness, and the generator's own.
    pub(crate) fn histograms(&self) -> (Histogram, Histogram) {
        // The arrays have exactly the histogram's buckets, which is all that could be wrong.
        let histogram = |counts: &[u64]| Histogram::from_counts(counts).unwrap_or_default();
        (histogram(&self.whole[..]), histogram(&self.own[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(histogram: &Histogram) -> Vec<(u64, u64)> {
        let lower = |(bucket, count)| (stats::lower_bound(bucket), count);
        histogram.buckets().map(lower).collect()
    }

    #[test]
    fn a_slow_send_is_back_pressure() {
        let mut lateness = Lateness::new();
        // Due every 10, sends take 25: the second is 15 late, the third 30, none by its own fault.
        lateness.record(100, 100, 125, 1);
        lateness.record(110, 125, 150, 1);
        lateness.record(120, 150, 175, 1);
        let (whole, own) = lateness.histograms();
        assert_eq!(values(&whole), [(0, 1), (15, 1), (30, 1)]);
        assert_eq!(values(&own), [(0, 3)]);
    }

    #[test]
    fn interrupted_wait_is_own_lateness() {
        let mut lateness = Lateness::new();
        // Due every 10, sends take 1; the first is entered 20 late, and the next catches up.
        lateness.record(100, 120, 121, 4);
        lateness.record(110, 121, 122, 4);
        lateness.record(130, 130, 131, 4);
        let (whole, own) = lateness.histograms();
        assert_eq!(values(&whole), [(0, 4), (11, 4), (20, 4)]);
        assert_eq!(values(&own), values(&whole));
    }
}
