use proptest::prelude::*;

use super::*;

/// Blocks of a steady bench: the arm at `ratio` times the baseline, a little noise.
fn blocks(n: u32, ratio: f64) -> Vec<Block> {
    (0..n)
        .map(|i| {
            let wobble = 1.0 + 0.01 * f64::from(i % 5) - 0.02;
            Block {
                arm: 10.0 * ratio * wobble,
                baseline: 10.0,
                aa: Some((10.0, 10.0 / wobble)),
            }
        })
        .collect()
}

fn compare(blocks: &[Block]) -> Comparison {
    Comparison::new(Effect::Ratio, Better::Lower, blocks, blocks, None)
}

#[test]
fn a_large_effect_is_claimed_with_its_interval() {
    let result = compare(&blocks(20, 0.125));
    let clean = result.clean.unwrap();
    assert_eq!(result.verdict, Verdict::Better);
    assert_eq!((clean.n, result.flagged), (20, 0));
    assert!((clean.effect - 0.125).abs() < 1e-9);
    let interval = clean.interval.unwrap();
    assert!((interval.confidence - 0.9586).abs() < 1e-4);
    assert!((interval.lower - 0.125 * 0.99).abs() < 1e-9, "{interval:?}");
    assert!(clean.aa.unwrap().upper < 1.02);
    assert_eq!(result.a12, Some(0.0), "never above");
}

#[test]
fn a12_counts_pairs_of_all_blocks_and_equal_ones_half() {
    let block = |arm, baseline| Block {
        arm,
        baseline,
        aa: None,
    };
    // 1 and 3 against 2 and 3: one is above, one is equal, two are below.
    let blocks = [block(1.0, 2.0), block(3.0, 3.0)];
    assert_eq!(compare(&blocks).a12, Some(1.5 / 4.0));
    assert_eq!(compare(&[]).a12, None);
}

#[test]
fn direction_and_better_make_the_verdict() {
    let slower = blocks(20, 2.0);
    assert_eq!(compare(&slower).verdict, Verdict::Worse);
    let higher = Comparison::new(Effect::Ratio, Better::Higher, &slower, &slower, None);
    assert_eq!(higher.verdict, Verdict::Better);
}

#[test]
fn an_effect_inside_the_band_is_not_claimed() {
    let mut noisy = blocks(20, 1.1);
    for (i, block) in noisy.iter_mut().enumerate() {
        block.aa = Some((10.0, if i % 2 == 0 { 12.0 } else { 8.0 }));
    }
    let result = compare(&noisy);
    assert_eq!(result.verdict, Verdict::NoDifference);
    assert!(result.clean.unwrap().interval.unwrap().lower > 1.0);
}

#[test]
fn equality_reports_what_would_have_been_seen() {
    let result = compare(&blocks(20, 1.0));
    assert_eq!(result.verdict, Verdict::NoDifference);
    let smallest = result.clean.unwrap().smallest_detectable.unwrap();
    assert!(smallest > 0.015 && smallest < 0.03, "{smallest}");
    assert_eq!(
        compare(&blocks(20, 1.0 + 1.05 * smallest)).verdict,
        Verdict::Worse
    );
}

#[test]
fn flagged_blocks_must_not_decide() {
    let mut mixed = blocks(20, 0.5);
    for block in &mut mixed[..8] {
        block.arm = 100.0;
    }
    let of = |clean: &[Block]| Comparison::new(Effect::Ratio, Better::Lower, clean, &mixed, None);
    let result = of(&mixed[8..]);
    assert_eq!((result.verdict, result.flagged), (Verdict::NoDifference, 8));
    // Nor must further attempts at them.
    let result = of(&blocks(20, 0.5));
    assert_eq!((result.verdict, result.flagged), (Verdict::NoDifference, 0));
    assert_eq!(
        result.reason.as_deref(),
        Some("flagged blocks read otherwise")
    );
}

#[test]
fn inconclusive_comparison_has_reason() {
    let reason = |blocks: &[Block], gap: Option<f64>| {
        let result = Comparison::new(Effect::Ratio, Better::Lower, blocks, blocks, gap);
        assert_eq!(result.verdict, Verdict::Unreliable);
        result.reason.unwrap()
    };
    assert_eq!(
        reason(&blocks(5, 0.5), None),
        "only 5 clean blocks, and an interval needs 6"
    );
    assert_eq!(
        reason(&blocks(20, 0.5), Some(15.0)),
        "the arms' flagged shares are 15 points apart"
    );
    assert_eq!(reason(&[], None), "no clean block holds both arms");
    let mut zero = blocks(20, 0.5);
    zero.iter_mut().take(11).for_each(|block| block.arm = 0.0);
    assert_eq!(
        reason(&zero, None),
        "a median is not above 0, so it has no ratio"
    );
    let mut alone = blocks(20, 0.5);
    alone.iter_mut().for_each(|block| block.aa = None);
    assert_eq!(reason(&alone, None), "fewer than 6 clean A/A pairs");
}

#[test]
fn a_value_below_zero_is_less_than_any_above() {
    let mut mixed = blocks(20, 0.5);
    mixed[3].arm = -1.0;
    mixed[4].aa = Some((10.0, 0.0));
    let result = compare(&mixed);
    assert_eq!(result.verdict, Verdict::Better);
    let clean = result.clean.unwrap();
    assert!((clean.interval.unwrap().upper - 0.5 * 1.01).abs() < 1e-9);
    assert!(clean.aa.unwrap().upper < 1.03);
    // Of the other side, it claims nothing.
    let mut slower = blocks(20, 2.0);
    slower.iter_mut().take(8).for_each(|block| block.arm = -1.0);
    assert_eq!(compare(&slower).verdict, Verdict::NoDifference);
}

#[test]
fn differences_may_be_zero_and_negative() {
    let losses: Vec<Block> = (0..10)
        .map(|i| Block {
            arm: 5.0 + f64::from(i % 3),
            baseline: 0.0,
            aa: Some((0.0, 0.0)),
        })
        .collect();
    let result = Comparison::new(Effect::Difference, Better::Lower, &losses, &losses, None);
    assert_eq!(result.verdict, Verdict::Worse);
    assert_eq!(result.clean.unwrap().effect, 6.0);
}

/// Holm's own arithmetic on four p-values.
#[test]
fn holm_steps_down() {
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (got, want) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        assert!((got - want).abs() < 1e-12);
    }
    assert!(holm(&[]).is_empty());
}

proptest! {
    #[test]
    fn the_unit_does_not_matter(
        values in proptest::collection::vec((1.0f64..100.0, 1.0f64..100.0, 1.0f64..100.0), 6..30),
        unit in 0.001f64..1000.0,
    ) {
        let scaled = |k: f64| -> Vec<Block> {
            values.iter().map(|&(arm, baseline, again)| Block {
                arm: arm * k, baseline: baseline * k, aa: Some((baseline * k, again * k)),
            }).collect()
        };
        let (a, b) = (compare(&scaled(1.0)), compare(&scaled(unit)));
        prop_assert_eq!(a.verdict, b.verdict);
        prop_assert!((a.clean.unwrap().effect / b.clean.unwrap().effect - 1.0).abs() < 1e-9);
    }

    #[test]
    fn swapping_the_arms_turns_the_verdict(
        values in proptest::collection::vec((1.0f64..100.0, 1.0f64..100.0), 6..30),
    ) {
        let there: Vec<Block> = values.iter().map(|&(arm, baseline)| Block {
            arm, baseline, aa: Some((10.0, 10.1)),
        }).collect();
        let back: Vec<Block> = there.iter().map(|b| Block { arm: b.baseline, baseline: b.arm, ..*b }).collect();
        let turned = match compare(&there).verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            other => other,
        };
        prop_assert_eq!(compare(&back).verdict, turned);
    }

    #[test]
    fn a_claim_excludes_equality_and_the_band(
        values in proptest::collection::vec((1.0f64..100.0, 1.0f64..100.0, 1.0f64..100.0), 6..30),
    ) {
        let blocks: Vec<Block> = values.iter().map(|&(arm, baseline, again)| Block {
            arm, baseline, aa: Some((baseline, again)),
        }).collect();
        let result = compare(&blocks);
        let clean = result.clean.unwrap();
        let (interval, band) = (clean.interval.unwrap(), clean.aa.unwrap());
        prop_assert!(band.lower <= 1.0 && band.upper >= 1.0);
        if matches!(result.verdict, Verdict::Better | Verdict::Worse) {
            prop_assert!(interval.upper < band.lower || interval.lower > band.upper);
        }
    }
}
