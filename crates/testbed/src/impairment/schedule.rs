//! When each frame leaves, or that it is lost: from the seed, the direction, its number and what waits before it.

use splitmix::SplitMix64;

use super::{Distribution, Impairment};

/// How long frames wait for the capacity where the impairment does not say.
const QUEUE_US: u32 = 50_000;

/// The delays and losses of the frames of one direction.
#[derive(Debug)]
pub(super) struct Schedule {
    impairment: Impairment,
    random: SplitMix64,
    /// When the frame before leaves.
    last_ns: u64,
    /// When the last frame that got capacity has been serialized.
    idle_ns: u64,
}

impl Schedule {
    pub(super) fn new(impairment: Impairment, direction: u64) -> Self {
        let seed = impairment.seed ^ direction.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self {
            impairment,
            random: SplitMix64::new(seed),
            last_ns: 0,
            idle_ns: 0,
        }
    }

    /// When a frame of `len` bytes that arrives at `now_ns` leaves; `None` when it is lost.
    pub(super) fn departure_ns(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let serialized_ns = self.serialize(now_ns, len);
        let lost = self.random.below(1_000_000) < u64::from(self.impairment.loss_ppm);
        let delay_us = f64::from(self.impairment.delay_us) + self.jitter_us();
        if lost {
            return None;
        }
        let now_ns = serialized_ns?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and hours at most"
        )]
        let mut due_ns = now_ns + (delay_us * 1e3) as u64;
        if self.impairment.keep_order {
            due_ns = due_ns.max(self.last_ns);
            self.last_ns = due_ns;
        }
        Some(due_ns)
    }

    /// When the frame has passed the bottleneck; `None` where its queue is full.
    fn serialize(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let Impairment {
            capacity_bps,
            queue_us,
            ..
        } = self.impairment;
        if capacity_bps == 0 {
            return Some(now_ns);
        }
        let queue_us = if queue_us == 0 { QUEUE_US } else { queue_us };
        let start_ns = self.idle_ns.max(now_ns);
        if start_ns - now_ns > u64::from(queue_us) * 1000 {
            return None;
        }
        // Below 2^64 for every frame: 2048 bytes are 16 384 bits.
        self.idle_ns = start_ns + len as u64 * 8 * 1_000_000_000 / capacity_bps;
        Some(self.idle_ns)
    }

    fn jitter_us(&mut self) -> f64 {
        let scale = f64::from(self.impairment.jitter_us);
        let (one, other) = (self.random.open_unit(), self.random.open_unit());
        scale
            * match self.impairment.distribution {
                Distribution::Uniform => one,
                // Box and Muller, 1958.
                Distribution::Normal => {
                    ((-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()).abs()
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(impairment: Impairment, frames: u64) -> Vec<Option<u64>> {
        let mut schedule = Schedule::new(impairment, 0);
        let arrivals = (0..frames).map(|n| n * 100_000);
        arrivals
            .map(|now| schedule.departure_ns(now, 60).map(|due| due - now))
            .collect()
    }

    const JITTER: Impairment = Impairment {
        delay_us: 500,
        jitter_us: 1000,
        distribution: Distribution::Uniform,
        loss_ppm: 100_000,
        keep_order: false,
        seed: 7,
        capacity_bps: 0,
        queue_us: 0,
    };

    #[test]
    fn equal_seeds_give_equal_schedules() {
        assert_eq!(delays(JITTER, 100), delays(JITTER, 100));
        assert_ne!(
            delays(JITTER, 100),
            delays(Impairment { seed: 8, ..JITTER }, 100)
        );
        let (mut there, mut back) = (Schedule::new(JITTER, 0), Schedule::new(JITTER, 1));
        assert_ne!(there.departure_ns(0, 60), back.departure_ns(0, 60));
    }

    #[test]
    fn loss_and_delay_match_settings() {
        let fates = delays(JITTER, 20_000);
        let kept: Vec<u64> = fates.iter().flatten().copied().collect();
        assert!((17_800..18_200).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().all(|ns| (500_000..=1_500_000).contains(ns)));
        let mean = kept.iter().sum::<u64>() / kept.len() as u64;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
    }

    #[test]
    fn normal_jitter_has_its_spread() {
        let normal = Impairment {
            distribution: Distribution::Normal,
            loss_ppm: 0,
            ..JITTER
        };
        let within = |ns: &&u64| **ns <= 1_500_000;
        let delays: Vec<u64> = delays(normal, 20_000).into_iter().flatten().collect();
        let share = delays.iter().filter(within).count() as f64 / 20_000.0;
        assert!((0.67..0.70).contains(&share), "{share} within one sigma");
    }

    #[test]
    fn keep_order_prevents_overtaking() {
        let arrivals = |keep_order| {
            let mut schedule = Schedule::new(
                Impairment {
                    keep_order,
                    ..JITTER
                },
                0,
            );
            let due: Vec<u64> = (0..1000)
                .filter_map(|n| schedule.departure_ns(n * 1000, 60))
                .collect();
            due.is_sorted()
        };
        assert!(arrivals(true) && !arrivals(false));
    }

    #[test]
    fn capacity_serializes_frames_and_drops_beyond_its_queue() {
        let mut schedule = Schedule::new(
            Impairment {
                capacity_bps: 10_000_000,
                queue_us: 10_000,
                delay_us: 1000,
                ..Impairment::default()
            },
            0,
        );
        // 1250 bytes take 1 ms. Twelve at once: one is being sent, and one waits for each of 10 ms.
        let burst: Vec<_> = (0..12).map(|_| schedule.departure_ns(0, 1250)).collect();
        let expected = (0..11).map(|n| Some((n + 2) * 1_000_000));
        assert_eq!(burst, expected.chain([None]).collect::<Vec<_>>());
        // The link is idle from 11 ms on.
        let later = schedule.departure_ns(20_000_000, 625);
        assert_eq!(later, Some(21_500_000));
    }
}
