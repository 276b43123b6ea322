//! Entropy against its definition.

use features::payload::entropy::bits_per_byte;
use proptest::prelude::*;

use super::fuzz::for_ten_seeds;

/// Minus the sum of p log2 p, term by term.
fn naive(payload: &[u8]) -> f64 {
    let mut counts = [0.0; 256];
    for byte in payload {
        counts[usize::from(*byte)] += 1.0;
    }
    let shares = counts.map(|count: f64| count / payload.len() as f64);
    let occurring = shares.iter().filter(|share| **share > 0.0);
    occurring.map(|share| -share * share.log2()).sum()
}

fn check(payload: &[u8]) {
    let Some(entropy) = bits_per_byte(payload) else {
        return assert!(payload.is_empty());
    };
    assert!((entropy - naive(payload)).abs() < 1e-9, "{payload:?}");
    assert!((0.0..=8.0).contains(&entropy));
}

#[test]
fn it_is_what_its_definition_says() {
    for_ten_seeds(&prop::collection::vec(any::<u8>(), 0..400), |payload| {
        check(&payload);
    });
    let few = prop::collection::vec(0_u8..4, 0..1500);
    for_ten_seeds(&few, |payload| check(&payload));
}

#[test]
fn jumbo_payloads_are_exact_too() {
    let ramp: Vec<u8> = (0..65_535_u32)
        .map(|at| (at * at / 128).to_le_bytes()[0])
        .collect();
    check(&ramp);
    check(&vec![0; 65_535]);
}
