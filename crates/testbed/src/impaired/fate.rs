//! When each frame leaves, or that it is lost: from the seed, the direction and its number alone.

use super::{Distribution, Impairment};

/// The fates of the frames of one direction.
#[derive(Debug)]
pub(super) struct Fate {
    impairment: Impairment,
    random: SplitMix,
    /// When the frame before leaves.
    last_ns: u64,
}

impl Fate {
    pub(super) fn new(impairment: Impairment, direction: u64) -> Self {
        let seed = impairment.seed ^ direction.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self {
            impairment,
            random: SplitMix(seed),
            last_ns: 0,
        }
    }

    /// When a frame that arrives at `now_ns` leaves; `None` when it is lost.
    pub(super) fn of(&mut self, now_ns: u64) -> Option<u64> {
        let lost = self.random.below(1_000_000) < u64::from(self.impairment.loss_ppm);
        let delay_us = f64::from(self.impairment.delay_us) + self.jitter_us();
        if lost {
            return None;
        }
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

    fn jitter_us(&mut self) -> f64 {
        let scale = f64::from(self.impairment.jitter_us);
        let (one, other) = (self.random.unit(), self.random.unit());
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

/// The SplitMix64 generator (Steele, Lea and Flood, 2014).
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// In (0, 1).
    fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are a double's")]
        let mantissa = (self.next() >> 11) as f64;
        (mantissa + 0.5) / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(impairment: Impairment, frames: u64) -> Vec<Option<u64>> {
        let mut fate = Fate::new(impairment, 0);
        let arrivals = (0..frames).map(|n| n * 100_000);
        arrivals
            .map(|now| fate.of(now).map(|due| due - now))
            .collect()
    }

    const JITTER: Impairment = Impairment {
        delay_us: 500,
        jitter_us: 1000,
        distribution: Distribution::Uniform,
        loss_ppm: 100_000,
        keep_order: false,
        seed: 7,
    };

    #[test]
    fn equal_seeds_have_equal_fates_and_directions_differ() {
        assert_eq!(delays(JITTER, 100), delays(JITTER, 100));
        assert_ne!(
            delays(JITTER, 100),
            delays(Impairment { seed: 8, ..JITTER }, 100)
        );
        let (mut there, mut back) = (Fate::new(JITTER, 0), Fate::new(JITTER, 1));
        assert_ne!(there.of(0), back.of(0));
    }

    #[test]
    fn loss_and_delay_are_what_was_asked() {
        let fates = delays(JITTER, 20_000);
        let kept: Vec<u64> = fates.iter().flatten().copied().collect();
        assert!((17_800..18_200).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().all(|ns| (500_000..=1_500_000).contains(ns)));
        let mean = kept.iter().sum::<u64>() / kept.len() as u64;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
    }

    #[test]
    fn a_normal_deviate_has_its_spread() {
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
    fn order_is_kept_where_asked() {
        let arrivals = |keep_order| {
            let mut fate = Fate::new(
                Impairment {
                    keep_order,
                    ..JITTER
                },
                0,
            );
            let due: Vec<u64> = (0..1000).filter_map(|n| fate.of(n * 1000)).collect();
            due.is_sorted()
        };
        assert!(arrivals(true) && !arrivals(false));
    }
}
