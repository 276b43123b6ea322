//! Limits the packets per second, summed over all readers. Twin of `bpf/limit.h`.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, Ordering};

const SECOND_NS: i64 = 1_000_000_000;
/// The burst that is admitted after a pause, as the time in which it would arrive at the limit's rate.
const BURST_NS: i64 = 10_000_000;
/// Attempts of the atomic update. A packet that loses all of them to other workers counts as over the limit.
const ATTEMPTS: usize = 4;

/// The generic cell rate algorithm (ITU-T I.371). Its only state is the time at which the next packet would arrive at
/// the limit's rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) gap_ns: i64,
    next_ns: AtomicI64,
}

/// Two limiters with the same rate are equal, whatever their states are.
impl PartialEq for Limiter {
    fn eq(&self, other: &Self) -> bool {
        self.gap_ns == other.gap_ns
    }
}

impl Eq for Limiter {}

impl Limiter {
    pub(super) fn new(packets_a_second: NonZeroU32) -> Self {
        Self {
            gap_ns: SECOND_NS / i64::from(packets_a_second.get()),
            next_ns: AtomicI64::new(0),
        }
    }

    /// Whether a packet that arrives now is within the limit. If so, it is counted.
    pub(super) fn admits(&self, now_ns: i64) -> bool {
        for _ in 0..ATTEMPTS {
            let next = self.next_ns.load(Ordering::Relaxed);
            let Some(after) = after(next, now_ns, self.gap_ns) else {
                return false;
            };
            let exchanged =
                self.next_ns
                    .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed);
            if exchanged.is_ok() {
                return true;
            }
        }
        false
    }
}

/// The arrival time of the packet after one that arrives now; `None` if this one exceeds the limit.
fn after(next: i64, now: i64, gap: i64) -> Option<i64> {
    let ahead = next.wrapping_sub(now);
    // It is that far ahead only if the clock was set back.
    if ahead > BURST_NS + gap || ahead < 0 {
        return Some(now.wrapping_add(gap));
    }
    (ahead <= BURST_NS).then(|| next.wrapping_add(gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limiter: &Limiter, times: impl Iterator<Item = i64>) -> usize {
        times.filter(|&time| limiter.admits(time)).count()
    }

    fn limiter(packets_a_second: u32) -> Limiter {
        Limiter::new(NonZeroU32::new(packets_a_second).expect("some"))
    }

    #[test]
    fn the_limit_is_kept_from_second_to_second() {
        let limiter = limiter(1000);
        // A million a second, for ten.
        let times = (0..10_000_000).map(|packet| 1000 * packet);
        let admitted = admitted(&limiter, times);
        assert!((10_000..=10_011).contains(&admitted), "{admitted}");
    }

    #[test]
    fn what_comes_slowly_is_all_admitted() {
        let limiter = limiter(1000);
        assert_eq!(admitted(&limiter, (0..5000).map(|n| n * 1_000_000)), 5000);
    }

    #[test]
    fn a_clock_that_is_set_back_or_forth_stops_nothing() {
        let limiter = limiter(10);
        let times = [
            5,
            5_000_000_000_000,
            5 + SECOND_NS,
            -9,
            i64::MAX,
            i64::MIN + SECOND_NS,
        ];
        assert_eq!(admitted(&limiter, times.into_iter()), times.len());
    }
}
