//! The IPv4 table against plain oracles: made-up tables, changes, the real table, readers beside a
//! writer.

#![expect(clippy::cast_possible_truncation, reason = "tests on made-up numbers")]

use lpm::{Error, Fib4, Layout4, NextHop, Prefix4, Rib, Simd};
use proptest::prelude::*;

use crate::common;
use crate::common::table::Table;
use crate::common::{Rng, answer, bounds, churn, concurrent, inside, longest, ranges, real};

/// Prefixes that nest: few distinct bits in each byte, all lengths.
fn prefix() -> impl Strategy<Value = Prefix4> {
    let byte = || prop::sample::select(vec![0u8, 1, 127, 128, 255]);
    (byte(), byte(), byte(), byte(), 0..=32u8).prop_map(|(a, b, c, d, len)| {
        Prefix4::containing(u32::from_be_bytes([a, b, c, d]), len).unwrap()
    })
}

fn change(hops: u16) -> impl Strategy<Value = (Prefix4, Option<NextHop>)> {
    let hop = (1..=hops).prop_map(|number| NextHop::new(number).unwrap());
    (prefix(), prop::option::weighted(0.7, hop))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24 * sys::require::fuzz()))]
    #[test]
    fn changes_are_exact(
        changes in prop::collection::vec(change(254), 1..150),
        wide in prop::collection::vec(change(NextHop::MAX), 1..60),
        length in 0..100usize,
    ) {
        let mut built: Vec<_> = Vec::new();
        Fib4::each(|layout, simd| {
            let mut all = changes.clone();
            if layout != Layout4::Bytes {
                all.extend(&wide);
            }
            let mut table = <Fib4 as Table>::build(Rib::new(), layout, simd);
            for (at, &(prefix, hop)) in all.iter().enumerate() {
                match hop {
                    Some(hop) => Table::insert(&mut table, prefix, hop),
                    None => Table::remove(&mut table, prefix),
                };
                if at % 16 == 0 || at + 1 == all.len() {
                    check_bounds(&table, length);
                }
            }
            let anew = <Fib4 as Table>::build(table.rib().clone(), layout, simd);
            check_bounds(&anew, length);
            built.push(anew);
        });
    }
}

/// All ways to look up, in batches of any length, at the bounds of all prefixes.
fn check_bounds(table: &Fib4, length: usize) {
    let routes: Vec<_> = table.rib().iter().collect();
    let mut keys = bounds(routes.iter().map(|&(prefix, _)| prefix));
    keys.extend([0, 1, u32::MAX, 0x0a00_0001]);
    for batch in keys.chunks(length.max(1)) {
        let expected: Vec<_> = batch.iter().map(|&key| longest(&routes, key)).collect();
        for answers in table.look(batch) {
            assert_eq!(answers, expected, "{batch:x?} in {routes:?}");
        }
    }
    let key = keys[length % keys.len()];
    assert_eq!(Table::lookup(table, key), longest(&routes, key));
    assert_eq!(table.look(&[]), [[], []]);
}

#[test]
fn the_real_table_at_all_its_bounds() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let rib: Rib<u32> = real(&corpus, 200);
    let many: Rib<u32> = real(&corpus, 5000);
    for (layout, rib) in [
        (Layout4::Bytes, &rib),
        (Layout4::Mixed, &many),
        (Layout4::Words, &many),
    ] {
        let oracle = ranges(rib.iter());
        let mut keys = bounds(rib.iter().map(|(prefix, _)| prefix));
        let mut rng = Rng::new(1);
        keys.extend((0..100_000).map(|_| rng.next_u64() as u32));
        let expected: Vec<_> = keys.iter().map(|&key| answer(&oracle, key)).collect();
        for simd in Simd::available() {
            let table = <Fib4 as Table>::build(rib.clone(), layout, simd);
            for answers in table.look(&keys) {
                let wrong = answers
                    .iter()
                    .zip(&expected)
                    .filter(|(a, b)| a != b)
                    .count();
                assert_eq!(wrong, 0, "{layout:?} {simd:?}");
            }
        }
    }
}

#[test]
fn ranges_are_the_definition() {
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let routes: Vec<_> = (0..60)
            .map(|_| {
                let len = rng.index(33) as u8;
                let address = rng.next_u64() as u32 & 0x8100_8181;
                (
                    Prefix4::containing(address, len).unwrap(),
                    common::hop(1 + rng.next_u64() % 9),
                )
            })
            .collect();
        let rib: Rib<u32> = routes.iter().copied().collect();
        let routes: Vec<_> = rib.iter().collect();
        let ranges = ranges(rib.iter());
        for key in bounds(rib.iter().map(|(prefix, _)| prefix)) {
            assert_eq!(answer(&ranges, key), longest(&routes, key));
            assert_eq!(
                answer(&ranges, key),
                rib.lookup(key).map_or(0, |(_, hop)| hop.get())
            );
        }
    }
}

#[test]
fn the_real_table_under_churn() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let rib: Rib<u32> = real(&corpus, 200);
    let updates = churn::updates(&rib, 200, 400_000, 7);
    let prefixes: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
    let mut table = <Fib4 as Table>::build(rib, Layout4::Bytes, Fib4::usual_simd());
    let mut rng = Rng::new(9);
    for part in updates.chunks(100_000) {
        for &(prefix, hop) in part {
            match hop {
                Some(hop) => assert!(table.insert(prefix, hop).is_ok()),
                None => assert!(table.remove(prefix).is_some()),
            }
        }
        let oracle = ranges(table.rib().iter());
        let mut keys = bounds(part.iter().map(|&(prefix, _)| prefix));
        keys.extend((0..200_000).map(|_| inside(prefixes[rng.index(prefixes.len())], &mut rng)));
        for answers in table.look(&keys) {
            let right = |(&key, &found): (&u32, &u16)| answer(&oracle, key) == found;
            assert!(keys.iter().zip(&answers).all(right));
        }
    }
}

#[test]
fn readers_see_before_or_after() {
    // Sixteen /24s, so that groups come, go and are used again all the time.
    let mut rng = Rng::new(5);
    let pool: Vec<_> = (0..120)
        .map(|_| {
            let len = [8, 16, 20, 22, 24, 24, 25, 26, 28, 30, 32, 32][rng.index(12)];
            Prefix4::containing(0x0a01_0000 | rng.next_u64() as u32 & 0xfff, len).unwrap()
        })
        .collect();
    let mut keys = bounds(pool.iter().copied());
    keys.truncate(256);
    Fib4::each(|layout, simd| {
        let table = <Fib4 as Table>::build(Rib::new(), layout, simd);
        concurrent::check(table, &keys, &concurrent::changes(&pool, 20_000, 11));
    });
}

#[test]
fn refuses_what_bytes_cannot_hold() {
    let mut table = Fib4::new(Layout4::Bytes).unwrap();
    let prefix = "192.0.2.0/24".parse().unwrap();
    let hop = NextHop::new(255).unwrap();
    assert!(matches!(
        table.insert(prefix, hop),
        Err(Error::NextHop {
            next_hop: 255,
            limit: 254
        })
    ));
    assert!(table.rib().is_empty());
    let rib: Rib<u32> = [(prefix, hop)].into_iter().collect();
    assert!(Fib4::build(rib.clone(), Layout4::Bytes).is_err());
    assert!(Fib4::build(rib, Layout4::Words).is_ok());
}

#[test]
fn stays_within_its_memory() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let table = Fib4::build(real(&corpus, 200), Layout4::Bytes).unwrap();
    assert!(table.bytes() <= 17 << 20, "{}", table.bytes());
    assert!(table.rib().bytes() <= 48 << 20, "{}", table.rib().bytes());
}
