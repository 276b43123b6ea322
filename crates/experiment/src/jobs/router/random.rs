//! Reproducible random numbers, as tables and traffic are drawn.

pub(super) use crate::schedule::SplitMix as Random;

impl Random {
    /// 128 random bits.
    pub(super) fn address(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

/// 0..end
pub(super) fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.next() % end as u64).unwrap_or(0)
}

/// 0..1
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
pub(super) fn unit(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}
