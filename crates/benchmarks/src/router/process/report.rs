//! The results of a run.

use router::engine::Contents;
use router::gpu::cpu_fallback::FallbackStatus;
use router::rules::{RuleHits, RuleSet, rule_hits};

use super::measurement::{Measurement, float};
use super::timeline::Timeline;
use super::updates::RouteUpdates;
use crate::router::engine::MeasuredEngine;

/// A run's results.
#[derive(Clone, Debug)]
pub struct Report {
    /// A description of where packets came from.
    pub origin: String,
    pub tables: TableSizes,
    pub threads: Vec<Measurement>,
    /// Of forwarded packets in a new capture.
    pub written: Option<CaptureCounts>,
    pub datagrams: Option<Datagrams>,
    /// The rules that matched packets, with their counts.
    pub rules: Vec<RuleHits>,
    pub updates: Option<RouteUpdates>,
    /// What CPUs did in the place of a failed device.
    pub fallback_status: Option<FallbackStatus>,
    pub timeline: Option<Timeline>,
}

/// Sizes of tables; of pairs, IPv4 is the first.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableSizes {
    pub prefixes: (usize, usize),
    pub rules: (usize, usize),
    /// Bytes of the structures for routes.
    pub route_bytes: usize,
    /// Bytes of the structures for rules.
    pub rule_bytes: usize,
}

/// Forwarded packets in a new capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureCounts {
    pub packets: u64,
    /// Packets whose TTL has expired: a router leaves them to the kernel, which answers.
    pub expired: u64,
}

/// Datagrams, beside the decisions about their frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Datagrams {
    /// Received in a batch that was processed.
    pub received: u64,
    /// Received when the run ended before their batch was complete.
    pub unprocessed: u64,
    /// Dropped because the socket's buffer was full.
    pub lost: u64,
    /// Longer than a frame may be; the rest of them was processed.
    pub truncated: u64,
    pub sent: u64,
    /// Not sent, because the kernel refused them.
    pub refused: u64,
    /// Not sent, because their TTL has expired: a router leaves them to the kernel, which answers.
    pub expired: u64,
}

impl Report {
    /// The sum of all threads.
    pub fn total(&self) -> Measurement {
        let mut total = Measurement::default();
        self.threads.iter().for_each(|thread| total.merge(thread));
        total
    }

    /// The sum of each thread's rate.
    pub fn packets_per_s(&self) -> f64 {
        self.threads.iter().map(Measurement::packets_per_s).sum()
    }

    /// Gbit/s of frames.
    pub fn gbit_per_s(&self) -> f64 {
        let rate = |thread: &Measurement| {
            8.0 * float(thread.counters.bytes) / float(thread.elapsed_ns.max(1))
        };
        self.threads.iter().map(rate).sum()
    }
}

impl TableSizes {
    pub(super) fn new(contents: &Contents) -> Self {
        Self {
            prefixes: (contents.v4.len(), contents.v6.len()),
            rules: (contents.rules.v4.len(), contents.rules.v6.len()),
            ..Self::default()
        }
    }

    pub(super) fn with_bytes(self, engine: &impl MeasuredEngine) -> Self {
        let (route_bytes, rule_bytes) = engine.bytes();
        Self {
            route_bytes,
            rule_bytes,
            ..self
        }
    }
}

impl Datagrams {
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            unprocessed: sum.unprocessed + one.unprocessed,
            lost: sum.lost + one.lost,
            truncated: sum.truncated + one.truncated,
            sent: sum.sent + one.sent,
            refused: sum.refused + one.refused,
            expired: sum.expired + one.expired,
        })
    }
}

/// The rules that matched packets.
pub(super) fn matched(set: &RuleSet, engine: &impl MeasuredEngine) -> Vec<RuleHits> {
    let mut rules = rule_hits(set, Some(&engine.hits()));
    rules.retain(|rule| rule.packets.is_some_and(|packets| packets > 0));
    rules
}
