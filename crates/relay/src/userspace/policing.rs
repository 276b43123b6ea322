//! Controls the senders of a stream and their rates: source policy, latch and token buckets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::counters::DropReason;
use crate::plan::{Limits, SourcePolicy};

/// Sources whose rate is remembered at most. Beyond it those at rest are forgotten, and when none
/// is at rest, all: a flood of invented sources must not take memory.
const MAX_SOURCES: usize = 16_384;

/// The state of one stream's admission.
#[derive(Debug)]
pub(super) struct Policing {
    policy: SourcePolicy,
    limits: Limits,
    latch: Option<Latch>,
    stream: Option<Bucket>,
    sources: HashMap<IpAddr, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Latch {
    holder: SocketAddr,
    seen_ns: u64,
}

impl Policing {
    pub(super) fn new(policy: &SourcePolicy, limits: Limits, now_ns: u64) -> Self {
        let held_by = match policy {
            SourcePolicy::Latch { held_by, .. } => *held_by,
            _ => None,
        };
        Self {
            policy: policy.clone(),
            limits,
            latch: held_by.map(|holder| Latch {
                holder,
                seen_ns: now_ns,
            }),
            stream: limits.stream_pps.map(|rate| Bucket::full(rate, now_ns)),
            sources: HashMap::new(),
        }
    }

    /// Takes over changed settings; a latch and the buckets survive where they still apply.
    pub(super) fn update(&mut self, policy: &SourcePolicy, limits: Limits, now_ns: u64) {
        let latch = self.latch;
        if self.limits != limits || !same_kind(&self.policy, policy) {
            *self = Self::new(policy, limits, now_ns);
        }
        self.policy = policy.clone();
        if matches!(policy, SourcePolicy::Latch { .. }) && self.latch.is_none() {
            self.latch = latch;
        }
    }

    /// How many of `packets` datagrams from `source` may pass, from the first on, and why the
    /// rest may not.
    pub(super) fn admit(
        &mut self,
        source: SocketAddr,
        packets: u64,
        now_ns: u64,
    ) -> (u64, Option<DropReason>) {
        if !self.allows(source, now_ns) {
            return (0, Some(DropReason::SourceDenied));
        }
        let admitted = self.within_rates(source.ip(), packets, now_ns);
        let refused = (admitted < packets).then_some(DropReason::RateLimited);
        (admitted, refused)
    }

    pub(super) fn latched(&self) -> Option<SocketAddr> {
        self.latch.map(|latch| latch.holder)
    }

    fn allows(&mut self, source: SocketAddr, now_ns: u64) -> bool {
        match &self.policy {
            SourcePolicy::Any => true,
            SourcePolicy::Allow(prefixes) => {
                prefixes.iter().any(|prefix| prefix.contains(source.ip()))
            }
            SourcePolicy::Latch { timeout, .. } => {
                let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
                let latch = self.latch.get_or_insert(Latch {
                    holder: source,
                    seen_ns: now_ns,
                });
                if now_ns.saturating_sub(latch.seen_ns) > timeout_ns {
                    latch.holder = source;
                }
                if latch.holder == source {
                    latch.seen_ns = now_ns;
                }
                latch.holder == source
            }
        }
    }

    fn within_rates(&mut self, source: IpAddr, packets: u64, now_ns: u64) -> u64 {
        let mut admitted = packets;
        if let Some(stream) = &mut self.stream {
            admitted = stream.take(admitted, now_ns);
        }
        let Some(rate) = self.limits.source_pps else {
            return admitted;
        };
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, bucket| !bucket.is_full(now_ns));
            if self.sources.len() >= MAX_SOURCES {
                self.sources.clear();
            }
        }
        let bucket = self
            .sources
            .entry(source)
            .or_insert_with(|| Bucket::full(rate, now_ns));
        let taken = bucket.take(admitted, now_ns);
        if let Some(stream) = &mut self.stream {
            stream.give_back(admitted - taken);
        }
        taken
    }
}

fn same_kind(ours: &SourcePolicy, theirs: &SourcePolicy) -> bool {
    std::mem::discriminant(ours) == std::mem::discriminant(theirs)
}

/// A token bucket of `max(rate / 10, 1)` packets. Credit is in billionths of a packet, so that a
/// nanosecond earns exactly `rate` of it.
#[derive(Debug)]
struct Bucket {
    rate: u64,
    credit: u64,
    filled_ns: u64,
}

const PACKET: u64 = 1_000_000_000;

impl Bucket {
    fn full(rate: u32, now_ns: u64) -> Self {
        let mut bucket = Self {
            rate: u64::from(rate),
            credit: 0,
            filled_ns: now_ns,
        };
        bucket.credit = bucket.capacity();
        bucket
    }

    fn capacity(&self) -> u64 {
        (self.rate / 10).max(1) * PACKET
    }

    fn fill(&mut self, now_ns: u64) {
        // One second fills any bucket and bounds the product to what fits.
        let elapsed = now_ns.saturating_sub(self.filled_ns).min(PACKET);
        self.credit = (self.credit + elapsed * self.rate).min(self.capacity());
        self.filled_ns = now_ns.max(self.filled_ns);
    }

    fn take(&mut self, packets: u64, now_ns: u64) -> u64 {
        self.fill(now_ns);
        let taken = packets.min(self.credit / PACKET);
        self.credit -= taken * PACKET;
        taken
    }

    fn give_back(&mut self, packets: u64) {
        self.credit = (self.credit + packets * PACKET).min(self.capacity());
    }

    fn is_full(&mut self, now_ns: u64) -> bool {
        self.fill(now_ns);
        self.credit == self.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn limits(stream_pps: Option<u32>, source_pps: Option<u32>) -> Limits {
        Limits {
            stream_pps,
            source_pps,
        }
    }

    #[test]
    fn a_rate_admits_its_burst_and_then_its_rate() {
        let mut policing = Policing::new(&SourcePolicy::Any, limits(Some(1000), None), 0);
        let source = from("192.0.2.1:5");
        assert_eq!(
            policing.admit(source, 300, 0),
            (100, Some(DropReason::RateLimited))
        );
        let mut admitted = 0;
        for tenth_ms in 1..=10_000 {
            admitted += policing.admit(source, 1, tenth_ms * 100_000).0;
        }
        assert_eq!(admitted, 1000);
    }

    #[test]
    fn slow_rates_still_pass_one() {
        let mut policing = Policing::new(&SourcePolicy::Any, limits(Some(1), None), 0);
        let source = from("192.0.2.1:5");
        assert_eq!(policing.admit(source, 1, 0).0, 1);
        assert_eq!(policing.admit(source, 1, SECOND - 1).0, 0);
        assert_eq!(policing.admit(source, 1, SECOND).0, 1);
    }

    #[test]
    fn one_source_does_not_use_up_the_others_share() {
        let mut policing = Policing::new(&SourcePolicy::Any, limits(Some(1000), Some(100)), 0);
        let (loud, quiet) = (from("192.0.2.1:5"), from("192.0.2.2:5"));
        assert_eq!(policing.admit(loud, 500, 0).0, 10);
        assert_eq!(policing.admit(loud, 500, 0).0, 0);
        assert_eq!(policing.admit(quiet, 10, 0).0, 10);
    }

    #[test]
    fn invented_sources_are_forgotten() {
        let mut policing = Policing::new(&SourcePolicy::Any, limits(None, Some(10)), 0);
        for source in 0..100_000_u32 {
            let source = SocketAddr::new(IpAddr::V4(source.into()), 1);
            assert_eq!(policing.admit(source, 1, 0).0, 1);
        }
        assert!(policing.sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn a_latch_holds_until_its_holder_is_silent() {
        let policy = SourcePolicy::Latch {
            timeout: Duration::from_secs(1),
            held_by: None,
        };
        let mut policing = Policing::new(&policy, Limits::default(), 0);
        let (first, second) = (from("192.0.2.1:5"), from("192.0.2.1:6"));
        assert_eq!(policing.admit(first, 1, 0), (1, None));
        assert_eq!(
            policing.admit(second, 1, SECOND),
            (0, Some(DropReason::SourceDenied))
        );
        assert_eq!(policing.admit(first, 1, SECOND), (1, None));
        assert_eq!(policing.admit(second, 1, 2 * SECOND).0, 0);
        assert_eq!(policing.admit(second, 1, 2 * SECOND + 1), (1, None));
        assert_eq!(policing.latched(), Some(second));
        assert_eq!(policing.admit(first, 1, 2 * SECOND + 2).0, 0);
    }

    #[test]
    fn a_latch_moves_with_its_stream() {
        let holder = from("192.0.2.1:5");
        let policy = SourcePolicy::Latch {
            timeout: Duration::from_secs(1),
            held_by: Some(holder),
        };
        let mut policing = Policing::new(&policy, Limits::default(), 5);
        assert_eq!(policing.admit(from("192.0.2.9:5"), 1, 6).0, 0);
        assert_eq!(policing.admit(holder, 1, 6).0, 1);
    }
}
