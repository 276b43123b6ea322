use proptest::prelude::*;

use super::*;

/// Blocks of a steady bench: the arm at `ratio` times the baseline, a little noise.
fn blocks(n: u32, ratio: f64) -> Vec<Block> {
    (0..n)
        .map(|i| {
            let wobble = 1.0 + 0.01 * f64::from(i * 3 % 5) - 0.02;
            Block {
                arm: Some(10.0 * ratio * wobble),
                baseline: Some(10.0),
                aa: Some((10.0, 10.0 / wobble)),
                ..Block::default()
            }
        })
        .collect()
}

const CRITERIA: Criteria = Criteria {
    effect: Effect::Ratio,
    better: Better::Lower,
    rows: 6,
    resolution: 0.0,
    offset: 0.0,
    flags: [Flags {
        flagged: 0,
        trials: 0,
    }; 2],
};

fn compare(blocks: &[Block]) -> Comparison {
    compare_by(&CRITERIA, blocks)
}

/// The clean blocks are those without a disturbance.
fn compare_by(criteria: &Criteria, blocks: &[Block]) -> Comparison {
    let clean: Vec<Block> = blocks
        .iter()
        .filter(|block| !block.is_disturbed())
        .copied()
        .collect();
    Comparison::new(criteria, blocks, &clean)
}

#[test]
fn large_effect_is_claimed() {
    let result = compare(&blocks(20, 0.125));
    let all = result.all.unwrap();
    assert_eq!(result.verdict, Verdict::Better);
    assert_eq!((all.n, result.disturbed, result.failed), (20, 0, [0, 0]));
    assert!((all.effect - 0.125).abs() < 1e-9);
    let interval = all.interval.unwrap();
    assert!((interval.confidence - 0.9974).abs() < 1e-4);
    assert!((interval.lower - 0.125 * 0.98).abs() < 1e-9, "{interval:?}");
    assert!(all.aa.unwrap().upper < 1.03);
    assert_eq!(result.a12, Some(0.0), "never above");
    assert_eq!(result.clean, None, "nothing was disturbed");
}

#[test]
fn a12_counts_pairs_of_all_blocks_and_equal_ones_half() {
    let block = |arm, baseline| Block {
        arm: Some(arm),
        baseline: Some(baseline),
        ..Block::default()
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
    let higher = Criteria {
        better: Better::Higher,
        ..CRITERIA
    };
    assert_eq!(compare_by(&higher, &slower).verdict, Verdict::Better);
}

#[test]
fn effect_inside_the_band_is_not_claimed() {
    let mut noisy = blocks(20, 1.1);
    for (i, block) in noisy.iter_mut().enumerate() {
        block.aa = Some((10.0, if i % 2 == 0 { 12.0 } else { 8.0 }));
    }
    let result = compare(&noisy);
    assert_eq!(result.verdict, Verdict::NoDifference);
    assert!(result.all.unwrap().interval.unwrap().lower > 1.0);
    assert_eq!(
        result.reason.as_deref(),
        Some("the effect lies within the A/A band")
    );
}

#[test]
fn wide_interval_keeps_its_margin_from_equality() {
    // The widest margin of a report is the one of its interval's own width: from just above 1 to 3.
    let mut wide = blocks(10, 1.05);
    for block in &mut wide[6..] {
        block.arm = block.arm.map(|value| 3.0 * value);
    }
    let criteria = Criteria {
        rows: 40,
        ..CRITERIA
    };
    let result = compare_by(&criteria, &wide);
    assert!(result.all.unwrap().interval.unwrap().lower > 1.0);
    assert_eq!(result.verdict, Verdict::NoDifference);
    let reason = result.reason.unwrap();
    assert!(
        reason.starts_with("a claim in a report of 40 rows needs an interval"),
        "{reason}"
    );
}

#[test]
fn halves_must_agree() {
    let mut halves = blocks(20, 1.2);
    for block in &mut halves[..10] {
        block.arm = block.arm.map(|value| value * 0.7);
    }
    halves[0].arm = Some(12.0);
    assert_eq!(compare(&halves).verdict, Verdict::NoDifference);
}

#[test]
fn equality_has_a_smallest_detectable_effect() {
    let result = compare(&blocks(20, 1.0));
    assert_eq!(result.verdict, Verdict::NoDifference);
    let all = result.all.unwrap();
    let smallest = all.smallest_detectable(Effect::Ratio).unwrap();
    assert!(smallest > 0.005 && smallest < 0.05, "{smallest}");
    assert_eq!(
        compare(&blocks(20, 1.0 + 1.5 * smallest)).verdict,
        Verdict::Worse
    );
}

/// A disturbance that hits every arm alike widens the interval and decides nothing.
#[test]
fn disturbed_blocks_count() {
    let mut mixed = blocks(20, 0.5);
    for block in &mut mixed[..8] {
        (block.arm, block.baseline) = (Some(30.0), Some(60.0));
        (block.arm_disturbed, block.baseline_disturbed) = (true, true);
    }
    let result = compare(&mixed);
    assert_eq!((result.verdict, result.disturbed), (Verdict::Better, 8));
    assert_eq!(result.clean.unwrap().n, 12);
}

#[test]
fn undisturbed_blocks_may_contradict() {
    let mut mixed = blocks(20, 0.5);
    for block in &mut mixed[..7] {
        block.arm = block.arm.map(|value| value * 4.0);
    }
    for block in &mut mixed[7..] {
        block.other_disturbed = true;
    }
    let result = compare(&mixed);
    assert_eq!(result.verdict, Verdict::Unreliable);
    assert_eq!(
        result.reason.as_deref(),
        Some("the 7 undisturbed blocks exclude the effect of all blocks")
    );
}

#[test]
fn failed_trials_count_against_their_arm() {
    let mut failing = blocks(10, 0.75);
    for block in &mut failing[3..5] {
        block.arm = None;
    }
    let result = compare(&failing);
    assert_eq!(result.failed, [2, 0]);
    assert_eq!(result.verdict, Verdict::Unreliable);
    assert_eq!(result.reason.as_deref(), Some("2 of 10 trials failed"));
    // Few enough of many leave a finite interval.
    let mut failing = blocks(20, 0.75);
    failing[3].arm = None;
    let result = compare(&failing);
    assert_eq!((result.verdict, result.failed), (Verdict::Better, [1, 0]));
    assert_eq!(result.all.unwrap().n, 20);
}

#[test]
fn inconclusive_comparison_has_reason() {
    let reason = |blocks: &[Block]| {
        let result = compare(blocks);
        assert_eq!(result.verdict, Verdict::Unreliable);
        result.reason.unwrap()
    };
    assert_eq!(
        reason(&blocks(5, 0.5)),
        "only 5 blocks, and an interval needs 6"
    );
    assert_eq!(reason(&[]), "no block holds both arms");
    let mut zero = blocks(20, 0.5);
    zero.iter_mut()
        .take(11)
        .for_each(|block| block.arm = Some(0.0));
    assert_eq!(reason(&zero), "a median is not above 0, so it has no ratio");
    let mut alone = blocks(20, 0.5);
    alone.iter_mut().for_each(|block| block.aa = None);
    assert_eq!(reason(&alone), "fewer than 6 A/A pairs");
}

#[test]
fn one_sided_disturbance_needs_a_claim_that_stands_at_worst() {
    let criteria = Criteria {
        flags: [
            Flags {
                flagged: 0,
                trials: 20,
            },
            Flags {
                flagged: 18,
                trials: 20,
            },
        ],
        ..CRITERIA
    };
    let disturbed = |ratio| {
        let mut blocks = blocks(20, ratio);
        for block in &mut blocks[..18] {
            block.baseline = Some(14.0);
            block.baseline_disturbed = true;
        }
        compare_by(&criteria, &blocks)
    };
    let result = disturbed(1.0);
    assert_eq!(
        result.reason.as_deref(),
        Some("the arms' shares of disturbed trials are 90 points apart")
    );
    assert_eq!(disturbed(0.5).verdict, Verdict::Better);
}

#[test]
fn drifting_row_claims_large_effects_only() {
    let drifting = |ratio: f64| {
        let mut blocks = blocks(20, ratio);
        for (i, block) in (0_u32..).zip(&mut blocks) {
            block.arm = Some(10.0 * ratio * (1.0 + 0.004 * f64::from(i)));
        }
        compare(&blocks)
    };
    let result = drifting(1.05);
    assert!(result.drifting);
    assert_eq!(result.verdict, Verdict::NoDifference);
    assert!(result.reason.unwrap().contains("drifts"));
    assert_eq!(drifting(2.0).verdict, Verdict::Worse);
}

/// Midpoints of buckets that are 3 % wide: a true difference of 2 % may not show at all.
#[test]
fn interval_is_widened_by_the_resolution() {
    let criteria = Criteria {
        resolution: 1.0 / 64.0,
        ..CRITERIA
    };
    let mut equal = blocks(20, 1.0);
    for block in &mut equal {
        (block.arm, block.baseline, block.aa) = (Some(19.7), Some(19.7), Some((19.7, 19.7)));
    }
    let result = compare_by(&criteria, &equal);
    let interval = result.all.unwrap().interval.unwrap();
    assert!(interval.lower < 0.98 && interval.upper > 1.02);
}

/// A delay of 100 less a floor of 99 is known as the delay is, and not as the difference of 1 is.
#[test]
fn difference_is_as_uncertain_as_what_it_was_taken_off() {
    let blocks: Vec<Block> = (0..20)
        .map(|_| Block {
            arm: Some(1.0),
            baseline: Some(1.5),
            aa: Some((1.5, 1.5)),
            ..Block::default()
        })
        .collect();
    let criteria = |offset| Criteria {
        effect: Effect::Difference,
        resolution: 0.004,
        offset,
        ..CRITERIA
    };
    let claimed = compare_by(&criteria(0.0), &blocks);
    assert_eq!(claimed.verdict, Verdict::Better);
    let result = compare_by(&criteria(99.0), &blocks);
    assert_eq!(result.verdict, Verdict::NoDifference);
    let interval = result.all.unwrap().interval.unwrap();
    assert!(
        (interval.upper - (-0.5 + 0.004 * 200.5)).abs() < 1e-9,
        "{interval:?}"
    );
}

#[test]
fn value_below_zero_is_less_than_any_above() {
    let mut mixed = blocks(20, 0.5);
    mixed[3].arm = Some(-1.0);
    mixed[4].aa = Some((10.0, 0.0));
    let result = compare(&mixed);
    assert_eq!(result.verdict, Verdict::Better);
    let all = result.all.unwrap();
    assert!(all.interval.unwrap().upper < 0.52);
    assert!(all.aa.unwrap().upper < 1.03);
    // It claims nothing on the other side.
    let mut slower = blocks(20, 2.0);
    slower
        .iter_mut()
        .take(8)
        .for_each(|block| block.arm = Some(-1.0));
    assert_eq!(compare(&slower).verdict, Verdict::NoDifference);
}

#[test]
fn differences_may_be_zero_and_negative() {
    let losses: Vec<Block> = (0..10)
        .map(|i| Block {
            arm: Some(5.0 + f64::from(i * 2 % 3)),
            baseline: Some(0.0),
            aa: Some((0.0, 0.0)),
            ..Block::default()
        })
        .collect();
    let criteria = Criteria {
        effect: Effect::Difference,
        ..CRITERIA
    };
    let result = compare_by(&criteria, &losses);
    assert_eq!(result.verdict, Verdict::Worse);
    assert_eq!(result.all.unwrap().effect, 6.0);
}

proptest! {
    #[test]
    fn the_unit_does_not_matter(
        values in proptest::collection::vec((1.0f64..100.0, 1.0f64..100.0, 1.0f64..100.0), 6..30),
        unit in 0.001f64..1000.0,
    ) {
        let scaled = |k: f64| -> Vec<Block> {
            values.iter().map(|&(arm, baseline, again)| Block {
                arm: Some(arm * k),
                baseline: Some(baseline * k),
                aa: Some((baseline * k, again * k)),
                ..Block::default()
            }).collect()
        };
        let (a, b) = (compare(&scaled(1.0)), compare(&scaled(unit)));
        prop_assert_eq!(a.verdict, b.verdict);
        prop_assert!((a.all.unwrap().effect / b.all.unwrap().effect - 1.0).abs() < 1e-9);
    }

    #[test]
    fn swapping_the_arms_turns_the_verdict(
        values in proptest::collection::vec((1.0f64..100.0, 1.0f64..100.0), 6..30),
    ) {
        let there: Vec<Block> = values.iter().map(|&(arm, baseline)| Block {
            arm: Some(arm),
            baseline: Some(baseline),
            aa: Some((10.0, 10.1)),
            ..Block::default()
        }).collect();
        let back: Vec<Block> = there.iter().map(|block| Block {
            arm: block.baseline,
            baseline: block.arm,
            ..*block
        }).collect();
        let turned = match compare(&there).verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            other => other,
        };
        prop_assert_eq!(compare(&back).verdict, turned);
    }

    #[test]
    fn a_claim_excludes_equality_and_its_effect_the_band(
        values in proptest::collection::vec((1.0f64..100.0, 1.0f64..100.0, 1.0f64..100.0), 6..30),
    ) {
        let blocks: Vec<Block> = values.iter().map(|&(arm, baseline, again)| Block {
            arm: Some(arm),
            baseline: Some(baseline),
            aa: Some((baseline, again)),
            ..Block::default()
        }).collect();
        let result = compare(&blocks);
        let all = result.all.unwrap();
        let (interval, band) = (all.interval.unwrap(), all.aa.unwrap());
        prop_assert!(band.lower <= 1.0 && band.upper >= 1.0);
        if matches!(result.verdict, Verdict::Better | Verdict::Worse) {
            prop_assert!(interval.upper < 1.0 || interval.lower > 1.0);
            prop_assert!(all.effect < band.lower || all.effect > band.upper);
        }
    }
}
