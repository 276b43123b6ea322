//! The IPv6 table against plain oracles: made-up tables that are nastier than the real one, changes,
//! the real table, readers beside a writer.

#![expect(clippy::cast_possible_truncation, reason = "tests on made-up numbers")]

use lpm::{Fib6, Layout6, NextHop, Prefix6, Rib, Simd};
use proptest::prelude::*;

use crate::common::table::Table;
use crate::common::{
    Random, Rng, answer, bounds, churn, concurrent, hop, hop_of, inside, longest, ranges, real,
};

/// Prefixes that nest: few distinct bits in each part, all lengths.
fn prefix() -> impl Strategy<Value = Prefix6> {
    let top = prop::sample::select(vec![0x2001_0db8u128, 0x2001_0db9, 0x2001_0000, 0xfe80_0000]);
    let part = || prop::sample::select(vec![0u128, 1, 0x8000, 0xffff]);
    let low = prop::sample::select(vec![0u128, 1, u64::MAX.into()]);
    (top, part(), part(), low, 0..=128u8).prop_map(|(top, x, y, low, len)| {
        Prefix6::containing(top << 96 | x << 80 | y << 64 | low, len).unwrap()
    })
}

fn change() -> impl Strategy<Value = (Prefix6, Option<NextHop>)> {
    let hop = (1..=NextHop::MAX).prop_map(|number| NextHop::new(number).unwrap());
    (prefix(), prop::option::weighted(0.7, hop))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24 * sys::require::fuzz()))]
    #[test]
    fn changes_are_exact(
        changes in prop::collection::vec(change(), 1..150),
        length in 0..100usize,
    ) {
        Fib6::each(|layout, simd| {
            let mut table = <Fib6 as Table>::build(Rib::new(), layout, simd);
            for (at, &(prefix, hop)) in changes.iter().enumerate() {
                apply(&mut table, prefix, hop);
                if at % 16 == 0 || at + 1 == changes.len() {
                    check_bounds(&table, length);
                }
            }
            check_bounds(&<Fib6 as Table>::build(table.rib().clone(), layout, simd), length);
        });
    }
}

fn apply(table: &mut Fib6, prefix: Prefix6, hop: Option<NextHop>) {
    match hop {
        Some(hop) => Table::insert(table, prefix, hop),
        None => Table::remove(table, prefix),
    };
}

/// In batches of any length, at the bounds of all prefixes.
fn check_bounds(table: &Fib6, length: usize) {
    let routes: Vec<_> = table.rib().iter().collect();
    let mut keys = bounds(routes.iter().map(|&(prefix, _)| prefix));
    keys.extend([0, 1, u128::MAX, 0x2001_0db8 << 96]);
    for batch in keys.chunks(length.max(1)) {
        let expected: Vec<_> = batch.iter().map(|&key| longest(&routes, key)).collect();
        for answers in table.look(batch) {
            assert_eq!(answers, expected, "{batch:x?} in {routes:?}");
        }
    }
    let key = keys[length % keys.len()];
    assert_eq!(Table::lookup(table, key), longest(&routes, key));
}

/// All bounds and some addresses within, against ranges.
fn check_ranges(table: &Fib6, seed: u64) {
    let oracle = ranges(table.rib().iter());
    let prefixes: Vec<_> = table.rib().iter().map(|(prefix, _)| prefix).collect();
    let mut keys = bounds(prefixes.iter().copied());
    let mut rng = Rng::new(seed);
    keys.extend((0..100_000).map(|_| inside(prefixes[rng.index(prefixes.len())], &mut rng)));
    keys.extend((0..10_000).map(|_| u128::random(&mut rng)));
    for answers in table.look(&keys) {
        let right = |(&key, &found): (&u128, &u16)| answer(&oracle, key) == found;
        assert!(keys.iter().zip(&answers).all(right));
    }
}

/// Prefixes of a few lengths anywhere in `around`.
fn crowd(
    around: &str,
    lens: std::ops::RangeInclusive<usize>,
    count: usize,
    rng: &mut Rng,
) -> Vec<Prefix6> {
    let around: Prefix6 = around.parse().unwrap();
    (0..count)
        .map(|_| {
            let len = lens.start() + rng.index(lens.end() - lens.start() + 1);
            Prefix6::containing(inside(around, rng), len as u8).unwrap()
        })
        .collect()
}

/// Tables with much in one place: lines, cells and deep blocks of all sizes.
fn crowds() -> Vec<Vec<Prefix6>> {
    let rng = &mut Rng::new(17);
    let mut all = vec![
        (0..65536u128)
            .map(|x| Prefix6::containing(0x2001_0db8 << 96 | x << 80, 48).unwrap())
            .collect(),
        crowd("2001:db8::/32", 33..=48, 6000, rng),
        crowd("2001:db8:ff0::/44", 45..=64, 3000, rng),
        crowd("2001:db8:1::/48", 49..=128, 3000, rng),
        crowd("2001:db8::/36", 49..=64, 200, rng),
        crowd("::/0", 0..=128, 20000, rng),
        crowd("fd00::/8", 16..=64, 5000, rng),
    ];
    let together = all.concat();
    all.push(together);
    all
}

#[test]
fn crowds_are_exact() {
    for prefixes in crowds() {
        let rib: Rib<u128> = prefixes
            .iter()
            .map(|&prefix| (prefix, hop_of(prefix, 200)))
            .collect();
        for layout in Fib6::variants() {
            check_ranges(
                &<Fib6 as Table>::build(rib.clone(), layout, Simd::widest()),
                1,
            );
        }
    }
}

#[test]
fn crowds_come_and_go() {
    let mut table = Fib6::new(Layout6::Paged).unwrap();
    let crowds: Vec<_> = crowds()
        .into_iter()
        .skip(1)
        .map(|mut all| {
            all.truncate(4000);
            all
        })
        .collect();
    let bytes = [1, 2].map(|round| {
        for prefixes in &crowds {
            come_and_go(&mut table, prefixes, round);
        }
        table.bytes()
    });
    // Pages stay; all else was given back, but for what the last changes have retired.
    assert!(bytes[1] < bytes[0] + (1 << 20), "{bytes:?}");
}

fn come_and_go(table: &mut Fib6, prefixes: &[Prefix6], round: u64) {
    for &prefix in prefixes {
        Table::insert(table, prefix, hop_of(prefix, 300 * round));
    }
    check_ranges(table, 2);
    for &prefix in prefixes.iter().step_by(2) {
        Table::remove(table, prefix);
    }
    check_ranges(table, 3);
    for &prefix in prefixes {
        Table::remove(table, prefix);
    }
    assert!(table.rib().is_empty());
    assert_eq!(table.look(&[1, u128::MAX, 0x2001_0db8 << 96]), [[0, 0, 0]]);
}

#[test]
fn the_real_table_at_all_its_bounds() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    for (hops, with_default) in [(200, false), (20_000, true)] {
        let mut rib: Rib<u128> = real(&corpus, hops);
        if with_default {
            rib.insert(Prefix6::DEFAULT, hop(9));
            rib.insert("2000::/3".parse().unwrap(), hop(10));
        }
        Fib6::each(|layout, simd| {
            let table = <Fib6 as Table>::build(rib.clone(), layout, simd);
            check_ranges(&table, 5);
        });
    }
}

#[test]
fn the_real_table_under_churn() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let rib: Rib<u128> = real(&corpus, 200);
    let updates = churn::updates(&rib, 200, 60_000, 7);
    let mut table = <Fib6 as Table>::build(rib, Layout6::Flat, Simd::widest());
    for part in updates.chunks(20_000) {
        for &(prefix, hop) in part {
            apply(&mut table, prefix, hop);
        }
        check_ranges(&table, 9);
    }
}

#[test]
fn readers_see_before_or_after() {
    let mut rng = Rng::new(5);
    let mut pool = crowd("2001:db8::/31", 33..=48, 100, &mut rng);
    pool.extend(crowd("2001:db8:7::/48", 47..=128, 30, &mut rng));
    pool.extend(crowd("2001:d00::/24", 12..=40, 30, &mut rng));
    let mut keys = bounds(pool.iter().copied());
    keys.truncate(400);
    Fib6::each(|layout, simd| {
        let table = <Fib6 as Table>::build(Rib::new(), layout, simd);
        concurrent::check(table, &keys, &concurrent::changes(&pool, 4_000, 11));
    });
}
