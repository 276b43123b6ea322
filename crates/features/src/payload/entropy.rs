//! Shannon entropy of a payload's byte frequencies, in bits per byte.

use std::sync::LazyLock;

/// Counts below this have a precomputed n log2 n, in a table of 2 KiB. Few byte values occur more often in a packet.
const TABLE: usize = 256;
/// The number of parallel counters. With a single one, a repeated byte would wait for its previous increment.
const LANES: usize = 4;
/// The tolerance for rounding errors of an entropy that is a whole number of steps.
const ROUNDING: f64 = 1e-9;

static N_LOG_N: LazyLock<[f64; TABLE]> =
    LazyLock::new(|| std::array::from_fn(|n| n_log_n(n as f64)));

/// The entropy, from 0 (one value only) to 8 (all values equally often); `None` for an empty payload.
pub fn bits_per_byte(payload: &[u8]) -> Option<f64> {
    if payload.is_empty() {
        return None;
    }
    let table = &*N_LOG_N;
    let look_up = |count: usize| match table.get(count) {
        Some(known) => *known,
        None => n_log_n(count as f64),
    };
    let length = payload.len() as f64;
    let sum: f64 = counts(payload).map(look_up).sum();
    Some((length.log2() - sum / length).clamp(0.0, 8.0))
}

/// An entropy as a byte: in steps of 1/32 bit, rounded down; 8 bits saturate at 255.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast rounds down and saturates, as wanted"
)]
pub fn scaled(bits_per_byte: f64) -> u8 {
    (bits_per_byte * 32.0 + ROUNDING) as u8
}

/// The number of occurrences of each of the 256 values.
fn counts(payload: &[u8]) -> impl Iterator<Item = usize> {
    let mut lanes = [[0_usize; 256]; LANES];
    let (groups, rest) = payload.as_chunks::<LANES>();
    for group in groups {
        for (lane, byte) in lanes.iter_mut().zip(group) {
            lane[usize::from(*byte)] += 1;
        }
    }
    for byte in rest {
        lanes[0][usize::from(*byte)] += 1;
    }
    (0..256).map(move |value| lanes.iter().map(|lane| lane[value]).sum())
}

fn n_log_n(n: f64) -> f64 {
    if n < 1.0 { 0.0 } else { n * n.log2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled_of(payload: &[u8]) -> Option<u8> {
        bits_per_byte(payload).map(scaled)
    }

    #[test]
    fn known_distributions_are_exact() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bits_per_byte(b""), None);
        assert_eq!(bits_per_byte(b"x"), Some(0.0));
        assert_eq!(bits_per_byte(&[7; 1460]), Some(0.0));
        assert_eq!(bits_per_byte(b"abab"), Some(1.0));
        assert_eq!(bits_per_byte(&all), Some(8.0));
        assert_eq!(bits_per_byte(&all.repeat(300)), Some(8.0));
    }

    #[test]
    fn the_byte_rounds_down_and_saturates() {
        assert_eq!(scaled_of(&[7; 1460]), Some(0));
        assert_eq!(scaled_of(&(0..=255).collect::<Vec<_>>()), Some(255));
        assert_eq!(scaled_of(b"aab"), Some(29), "0.918 bits");
        for repeats in 1..3000 {
            assert_eq!(scaled_of(&b"ab".repeat(repeats)), Some(32));
            assert_eq!(scaled_of(&b"aaaabbcd".repeat(repeats)), Some(56));
        }
    }
}
