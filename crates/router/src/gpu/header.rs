//! The layout of a batch at the beginning of its input, for kernels with the same arguments for all batches.
//! gpu/batch.h is the twin.

use super::launch::Input;

/// Numbers that a batch has there.
const NUMBERS: usize = 8;

/// Bytes of it.
pub(super) const LENGTH: usize = NUMBERS * size_of::<u32>();

/// Writes it.
pub(super) fn write(input: &Input, to: &mut [u8]) {
    let (at, keys) = (input.at, input.keys);
    let numbers = [at[0], at[1], keys[0], keys[1], input.form as usize];
    let (to, _) = to.as_chunks_mut();
    for (to, number) in to.iter_mut().zip(numbers) {
        *to = u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    }
}

/// Rounded up so that few sizes serve all, by an eighth at most where there is much.
pub(super) fn rounded(number: usize, least: usize) -> usize {
    number.next_multiple_of((number.next_power_of_two() / 16).max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_serve_all() {
        let sizes: std::collections::BTreeSet<usize> =
            (1..=1 << 16).map(|number| rounded(number, 128)).collect();
        assert!(sizes.len() < 100, "{}", sizes.len());
        for number in 1..=1 << 16 {
            let size = rounded(number, 128);
            assert!(size >= number && size <= number.next_power_of_two().max(128));
            assert!(size <= number + number / 8 + 128);
        }
    }
}
