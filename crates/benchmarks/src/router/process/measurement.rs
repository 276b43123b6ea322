//! The time that one thread took by stage, and how long packets were in a batch.

use router::engine::{Counters, Stages};
use stats::Histogram;

/// Times and counts of one thread, or the sums of several.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    pub counters: Counters,
    /// Time in each stage.
    pub gather_ns: f64,
    pub process_ns: f64,
    pub scatter_ns: f64,
    /// None where nothing is sent.
    pub send_ns: Option<f64>,
    /// How long the first packet of each batch, which waits for the others, was in it.
    pub first: Histogram,
    /// The same of the last packet of each batch.
    pub last: Histogram,
    /// Packets of the first batch, which is not measured.
    pub first_batch: u64,
    pub batches: u64,
    /// Batches with fewer packets than the batch size.
    pub partial: u64,
    /// From the first batch to the last.
    pub elapsed_ns: u64,
}

impl Measurement {
    /// Adds a batch that was sent at `sent`.
    pub(super) fn batch(&mut self, stages: &Stages, sent: u64) {
        self.batch_with_arrivals(stages, sent, (stages.started, stages.gathered));
    }

    /// As `batch`, with the arrival times of the first and the last packet.
    pub(super) fn batch_with_arrivals(&mut self, stages: &Stages, sent: u64, arrivals: (u64, u64)) {
        let per_ns = sys::clock::ticks_per_ns();
        let between = |from: u64, to: u64| float(to.saturating_sub(from)) / per_ns;
        self.gather_ns += between(stages.started, stages.gathered);
        self.process_ns += between(stages.gathered, stages.processed);
        self.scatter_ns += between(stages.processed, stages.scattered);
        if let Some(send_ns) = &mut self.send_ns {
            *send_ns += between(stages.scattered, sent);
        }
        self.batches += 1;
        self.first.record(whole(between(arrivals.0, sent)));
        self.last.record(whole(between(arrivals.1, sent)));
    }

    /// Adds another thread, which ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.counters.merge(&other.counters);
        self.gather_ns += other.gather_ns;
        self.process_ns += other.process_ns;
        self.scatter_ns += other.scatter_ns;
        if let Some(send_ns) = other.send_ns {
            *self.send_ns.get_or_insert(0.0) += send_ns;
        }
        self.batches += other.batches;
        self.partial += other.partial;
        self.first.merge(&other.first);
        self.last.merge(&other.last);
        self.first_batch += other.first_batch;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
    }

    pub fn packets_per_s(&self) -> f64 {
        1e9 * float(self.counters.packets) / float(self.elapsed_ns.max(1))
    }

    /// A thread's time for each of its packets.
    pub fn per_packet(&self, ns: f64) -> f64 {
        ns / float(self.counters.packets.max(1))
    }

    pub fn stages_ns(&self) -> f64 {
        self.gather_ns + self.process_ns + self.scatter_ns + self.send_ns.unwrap_or(0.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is not negative"
)]
pub(super) fn whole(ns: f64) -> u64 {
    ns.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_packet_have_latencies_of_their_own() {
        let tick = sys::clock::ticks_per_ns();
        let at = |ns: f64| whole(ns * tick) + 1_000_000;
        let stages = Stages {
            started: at(0.0),
            gathered: at(4000.0),
            processed: at(9000.0),
            scattered: at(10_000.0),
        };
        let mut measured = Measurement {
            send_ns: Some(0.0),
            ..Measurement::default()
        };
        measured.batch(&stages, at(12_000.0));
        measured.counters.packets = 100;
        let near = |ns: f64, expected: f64| (ns / expected - 1.0).abs() < 0.01;
        assert!(near(measured.per_packet(measured.gather_ns), 40.0));
        assert!(near(measured.process_ns, 5000.0));
        assert!(near(measured.scatter_ns, 1000.0));
        assert!(measured.send_ns.is_some_and(|ns| near(ns, 2000.0)));
        assert!(near(measured.stages_ns(), 12_000.0));
        assert!(measured.first.min() > measured.last.min());
        let mut sum = measured.clone();
        sum.merge(&measured);
        assert!(near(sum.per_packet(sum.gather_ns), 40.0));
        assert_eq!(sum.first.count(), 2);
    }
}
