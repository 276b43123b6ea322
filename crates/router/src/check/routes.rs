//! Longest-prefix match against intervals that a sweep over the prefixes makes: no trie, no table.

use lpm::{Address, Fib4, Fib6, Layout4, Layout6, NO_ROUTE, Rib, Simd};

use super::{CheckResult, compare, engine_name};
use crate::image::{Error, Tables};
use crate::random::Random;

/// Addresses looked up anywhere, besides the bounds of all prefixes.
const ANYWHERE: usize = 1 << 18;

/// Checks the tables as they are and all other layouts of their routes, by all instructions of this
/// machine; returns the tables.
///
/// # Errors
/// No memory for another layout.
pub fn tables(tables: Tables, seed: u64) -> Result<(Tables, Vec<CheckResult>), Error> {
    let (v4, v6) = (tables.fib4.rib(), tables.fib6.rib());
    let queries4 = queries(v4, seed, Random::narrow);
    let queries6 = queries(v6, seed, Random::wide);
    check(tables, &queries4, &queries6)
}

/// As `tables`, of these addresses only.
///
/// # Errors
/// As `tables`.
pub fn addresses(
    tables: Tables,
    v4: Vec<u32>,
    v6: Vec<u128>,
) -> Result<(Tables, Vec<CheckResult>), Error> {
    let queries4 = Queries::of(tables.fib4.rib(), v4);
    let queries6 = Queries::of(tables.fib6.rib(), v6);
    check(tables, &queries4, &queries6)
}

fn check(
    tables: Tables,
    queries4: &Queries<u32>,
    queries6: &Queries<u128>,
) -> Result<(Tables, Vec<CheckResult>), Error> {
    let mut checked = Vec::new();
    let Tables {
        layout4,
        mut fib4,
        mut fib6,
        hops4,
        hops6,
    } = tables;
    let rib4 = fib4.rib().clone();
    fib4 = check4(fib4, layout4, "in the image", queries4, &mut checked);
    for layout in Layout4::ALL {
        if layout != layout4 && hops4.len() <= usize::from(layout.limit()) {
            let other = Fib4::build(rib4.clone(), layout)?;
            check4(other, layout, "built here", queries4, &mut checked);
        }
    }
    let rib6 = fib6.rib().clone();
    fib6 = check6(fib6, "paged in the image", queries6, &mut checked);
    let other = Fib6::build(rib6, Layout6::Flat)?;
    check6(other, "flat built here", queries6, &mut checked);
    let tables = Tables {
        layout4,
        fib4,
        fib6,
        hops4,
        hops6,
    };
    Ok((tables, checked))
}

/// Addresses and the numbers of their next hops.
struct Queries<A> {
    addresses: Vec<A>,
    hops: Vec<u16>,
}

fn check4(
    mut fib: Fib4,
    layout: Layout4,
    made: &str,
    queries: &Queries<u32>,
    checked: &mut Vec<CheckResult>,
) -> Fib4 {
    let layout = layout.name();
    let before = Fib4::usual_simd();
    let mut answers = vec![NO_ROUTE; queries.addresses.len()];
    for simd in Simd::available() {
        fib = fib.with_simd(simd);
        fib.lookup_batch(&queries.addresses, &mut answers);
        let engine = engine_name(&format!("fib4 {layout} {made}"), simd.name());
        checked.push(queries.compare(engine, &answers));
    }
    let single = |address: &u32| {
        fib.rib()
            .lookup(*address)
            .map_or(NO_ROUTE, |(_, hop)| hop.get())
    };
    let answers: Vec<u16> = queries.addresses.iter().map(single).collect();
    checked.push(queries.compare(format!("rib4 of fib4 {layout} {made}"), &answers));
    fib.with_simd(before)
}

fn check6(
    mut fib: Fib6,
    made: &str,
    queries: &Queries<u128>,
    checked: &mut Vec<CheckResult>,
) -> Fib6 {
    let octets: Vec<[u8; 16]> = queries
        .addresses
        .iter()
        .map(|at| at.to_be_bytes())
        .collect();
    let mut answers = vec![NO_ROUTE; octets.len()];
    for simd in Simd::available() {
        fib = fib.with_simd(simd);
        fib.lookup_batch(&octets, &mut answers);
        let engine = engine_name(&format!("fib6 {made}"), simd.name());
        checked.push(queries.compare(engine, &answers));
    }
    fib.with_simd(Simd::widest())
}

impl<A: Address + Step> Queries<A> {
    fn of(rib: &Rib<A>, addresses: Vec<A>) -> Self {
        let hops = hops(rib, addresses.iter().copied());
        Self { addresses, hops }
    }

    fn compare(&self, engine: String, answers: &[u16]) -> CheckResult {
        let address = |address: &A| address.ip().to_string();
        let hop = |hop: u16| match hop {
            NO_ROUTE => "no route".to_owned(),
            hop => format!("next hop {hop}"),
        };
        compare(engine, &self.addresses, answers, &self.hops, address, hop)
    }
}

/// The bounds of all prefixes and the addresses beside them, and addresses anywhere; with the answers of
/// the naive engine.
fn queries<A: Address + Step>(
    rib: &Rib<A>,
    seed: u64,
    anywhere: impl Fn(&mut Random) -> A,
) -> Queries<A> {
    Queries::of(rib, bounds(rib, seed, anywhere))
}

/// As `queries`, without answers.
pub(super) fn bounds<A: Address + Step>(
    rib: &Rib<A>,
    seed: u64,
    anywhere: impl Fn(&mut Random) -> A,
) -> Vec<A> {
    let mut addresses = Vec::with_capacity(4 * rib.len() + ANYWHERE);
    for (prefix, _) in rib {
        let (first, last) = (prefix.first(), prefix.last());
        addresses.extend([first.before(), first, last, last.after()]);
    }
    let random = &mut Random::new(seed);
    addresses.extend((0..ANYWHERE).map(|_| anywhere(random)));
    addresses
}

/// The answers of the naive engine.
pub(super) fn hops<A: Address + Step>(
    rib: &Rib<A>,
    addresses: impl Iterator<Item = A>,
) -> Vec<u16> {
    let intervals = intervals(rib);
    let hop = |address: A| {
        let behind = intervals.partition_point(|(start, _)| *start <= address);
        intervals[behind - 1].1
    };
    addresses.map(hop).collect()
}

/// From which address on which next hop holds, the first from zero: a sweep with the prefixes that are
/// open, which their order makes a stack.
fn intervals<A: Address + Step>(rib: &Rib<A>) -> Vec<(A, u16)> {
    let mut from = vec![(A::ZERO, NO_ROUTE)];
    let mut open: Vec<(A, u16)> = Vec::new();
    let close = |open: &mut Vec<(A, u16)>, from: &mut Vec<(A, u16)>| {
        if let Some((last, _)) = open.pop()
            && last.after() != A::ZERO
        {
            let outer = open.last().map_or(NO_ROUTE, |(_, hop)| *hop);
            from.push((last.after(), outer));
        }
    };
    for (prefix, hop) in rib {
        while open.last().is_some_and(|(last, _)| *last < prefix.first()) {
            close(&mut open, &mut from);
        }
        from.push((prefix.first(), hop.get()));
        open.push((prefix.last(), hop.get()));
    }
    while !open.is_empty() {
        close(&mut open, &mut from);
    }
    from
}

/// Addresses beside an address, round the end.
pub(super) trait Step: Sized {
    fn before(self) -> Self;
    fn after(self) -> Self;
}

macro_rules! step {
    ($int:ty) => {
        impl Step for $int {
            fn before(self) -> Self {
                self.wrapping_sub(1)
            }

            fn after(self) -> Self {
                self.wrapping_add(1)
            }
        }
    };
}

step!(u32);
step!(u128);

#[cfg(test)]
mod tests {
    use lpm::NextHop;

    use super::*;

    #[test]
    fn intervals_are_what_the_prefixes_say() {
        let hop = |number| NextHop::new(number).unwrap();
        let prefix = |text: &str| text.parse::<lpm::Prefix4>().unwrap();
        let rib: Rib<u32> = [
            (prefix("10.0.0.0/8"), hop(1)),
            (prefix("10.1.0.0/16"), hop(2)),
            (prefix("10.1.255.0/24"), hop(3)),
            (prefix("255.0.0.0/8"), hop(4)),
        ]
        .into_iter()
        .collect();
        let at = |address: u32| {
            let intervals = intervals(&rib);
            let behind = intervals.partition_point(|(start, _)| *start <= address);
            intervals[behind - 1].1
        };
        for (address, hop) in [
            (0, 0),
            (0x0a00_0000, 1),
            (0x0a01_0000, 2),
            (0x0a01_feff, 2),
            (0x0a01_ffff, 3),
            (0x0a02_0000, 1),
            (0x0b00_0000, 0),
            (0xff00_0000, 4),
            (u32::MAX, 4),
        ] {
            assert_eq!(at(address), hop, "{address:x}");
        }
    }
}
