//! Which addresses packets go to, for measuring: drawn from a table's prefixes.

use lpm::{Address, Prefix, Rib};

use crate::named::named;

/// How destinations are drawn. Each has a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Any routed address as likely as any other; of IPv6 any routed /64.
    Uniform,
    /// Any prefix as likely as any other, and in it any address.
    PerPrefix,
    /// A prefix in proportion to 1/rank, ranks being random; in it any address.
    Zipf,
    /// Every 671st routed address, or /64, in order.
    Sequential,
}

named!(Pattern or UnknownPattern:
    Uniform = "uniform",
    PerPrefix = "per-prefix",
    Zipf = "zipf",
    Sequential = "sequential",
);

/// No pattern of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no traffic pattern: uniform, per-prefix, zipf, sequential")]
pub struct UnknownPattern(String);

/// Reproducible random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from((u128::from(self.bits()) * end as u128) >> 64).unwrap_or(0)
    }

    /// A random order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }

    /// 0..1
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Addresses as numbers.
pub trait Number: Address {
    /// Bits of an address below what `Uniform` and `Sequential` count.
    const BELOW: u32;

    fn number(self) -> u128;
    fn of(number: u128) -> Self;
}

impl Number for u32 {
    const BELOW: Self = 0;

    fn number(self) -> u128 {
        self.into()
    }

    #[expect(clippy::cast_possible_truncation, reason = "made of an address")]
    fn of(number: u128) -> Self {
        number as Self
    }
}

impl Number for u128 {
    const BELOW: u32 = 64;

    fn number(self) -> u128 {
        self
    }

    fn of(number: u128) -> Self {
        number
    }
}

/// So many destinations; none for a table without prefixes.
pub fn addresses<A: Number>(
    rib: &Rib<A>,
    pattern: Pattern,
    count: usize,
    random: &mut Random,
) -> Vec<A> {
    if rib.is_empty() {
        return Vec::new();
    }
    match pattern {
        Pattern::Uniform => {
            let space = Space::of(rib);
            let draw = |_| space.at(random.wide() % space.units, random);
            (0..count).map(draw).collect()
        }
        Pattern::Sequential => {
            const STEP: u128 = 671;
            let space = Space::of(rib);
            let step = |at: usize| space.at(at as u128 * STEP % space.units, random);
            (0..count).map(step).collect()
        }
        Pattern::PerPrefix => {
            let prefixes: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
            let draw = |_| inside(prefixes[random.below(prefixes.len())], random);
            (0..count).map(draw).collect()
        }
        Pattern::Zipf => zipf(rib, count, random),
    }
}

/// The routed addresses as one range of units.
struct Space<A: Address> {
    /// Prefixes that no other one covers, with the units up to their end.
    outermost: Vec<(u128, Prefix<A>)>,
    units: u128,
}

impl<A: Number> Space<A> {
    fn of(rib: &Rib<A>) -> Self {
        let (mut outermost, mut units) = (Vec::new(), 0_u128);
        let mut last: Option<Prefix<A>> = None;
        for (prefix, _) in rib {
            if last.is_some_and(|last| last.covers(prefix)) {
                continue;
            }
            let span = prefix.last().number() - prefix.first().number();
            units += (span >> A::BELOW) + 1;
            outermost.push((units, prefix));
            last = Some(prefix);
        }
        Self { outermost, units }
    }

    /// The address of a unit, with random bits below it.
    fn at(&self, unit: u128, random: &mut Random) -> A {
        let at = self.outermost.partition_point(|(end, _)| *end <= unit);
        let (end, prefix) = self.outermost[at];
        let before = if at == 0 { 0 } else { self.outermost[at - 1].0 };
        let place = prefix.first().number() | (unit - before) << A::BELOW;
        debug_assert!(unit < end, "{unit} of {}", self.units);
        let below = (1_u128 << A::BELOW) - 1;
        let span = prefix.last().number() - prefix.first().number();
        A::of(place | random.wide() & below & span)
    }
}

fn inside<A: Number>(prefix: Prefix<A>, random: &mut Random) -> A {
    let (first, last) = (prefix.first().number(), prefix.last().number());
    A::of(first | random.wide() & (last - first))
}

#[expect(clippy::cast_precision_loss, reason = "ranks are fewer than 2^53")]
fn zipf<A: Number>(rib: &Rib<A>, count: usize, random: &mut Random) -> Vec<A> {
    let mut ranked: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
    random.shuffle(&mut ranked);
    let mut sum = 0.0;
    let weighed = (1..=ranked.len()).map(|rank| {
        sum += 1.0 / rank as f64;
        sum
    });
    let cumulative: Vec<f64> = weighed.collect();
    let draw = |_| {
        let drawn = random.unit() * sum;
        let rank = cumulative.partition_point(|upto| *upto <= drawn);
        inside(ranked[rank.min(ranked.len() - 1)], random)
    };
    (0..count).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use lpm::NextHop;

    use super::*;

    fn rib<A: Address>(prefixes: &[&str]) -> Rib<A> {
        let hop = NextHop::new(1).unwrap();
        let parsed = prefixes.iter().map(|text| text.parse().unwrap());
        parsed.map(|prefix| (prefix, hop)).collect()
    }

    #[test]
    fn every_address_has_a_route_and_the_seed_decides_which() {
        let v4 = rib::<u32>(&["10.0.0.0/8", "10.1.2.0/24", "192.0.2.7/32"]);
        let v6 = rib::<u128>(&["2001:db8::/32", "2001:db8::/48", "fd00::1/128", "::/0"]);
        for pattern in Pattern::ALL {
            let draw = |seed| addresses(&v4, pattern, 500, &mut Random::new(seed));
            assert_eq!(draw(1).len(), 500, "{pattern}");
            assert!(draw(1).iter().all(|&to| v4.lookup(to).is_some()));
            assert_eq!(draw(1), draw(1), "{pattern}");
            if pattern != Pattern::Sequential {
                assert_ne!(draw(1), draw(2), "{pattern}");
            }
            let six = addresses(&v6, pattern, 500, &mut Random::new(1));
            assert!(six.iter().all(|&to| v6.lookup(to).is_some()), "{pattern}");
            assert!(addresses(&Rib::<u32>::new(), pattern, 5, &mut Random::new(1)).is_empty());
        }
    }

    #[test]
    fn patterns_are_what_their_names_say() {
        let rib = rib::<u32>(&["10.0.0.0/8", "192.0.2.0/24", "192.0.2.128/25"]);
        let small = |pattern| {
            let all = addresses(&rib, pattern, 9000, &mut Random::new(4));
            all.into_iter().filter(|to| to >> 24 == 192).count()
        };
        assert!(small(Pattern::Uniform) < 10, "256 of 2^24");
        assert!((5500..6500).contains(&small(Pattern::PerPrefix)));
        let steps = addresses(&rib, Pattern::Sequential, 3, &mut Random::new(4));
        assert_eq!(steps, [0x0a00_0000, 0x0a00_0000 + 671, 0x0a00_0000 + 1342]);
        let last = Space::of(&rib).at((1 << 24) + 255, &mut Random::new(0));
        assert_eq!(last, 0xc000_02ff);
    }
}
