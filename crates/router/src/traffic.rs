//! Which addresses packets go to, for measuring: drawn from a table's prefixes.

use lpm::{Address, Prefix, Rib};

use crate::enum_names::enum_names;
use crate::random::Random;

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

enum_names!(Pattern or UnknownPattern:
    Uniform = "uniform",
    PerPrefix = "per-prefix",
    Zipf = "zipf",
    Sequential = "sequential",
);

/// No pattern of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no traffic pattern: uniform, per-prefix, zipf, sequential")]
pub struct UnknownPattern(String);

/// Destinations without end; none for a table without prefixes.
#[derive(Clone, Debug)]
pub struct Destinations<A: Address> {
    random: Random,
    sampler: Sampler<A>,
}

#[derive(Clone, Debug)]
enum Sampler<A: Address> {
    Uniform(Space<A>),
    Sequential {
        space: Space<A>,
        next: u128,
        step: u128,
    },
    PerPrefix(Vec<Prefix<A>>),
    /// With the sum of the weights up to each.
    Zipf(Vec<Prefix<A>>, Vec<f64>),
}

/// Of `Pattern::Sequential`.
const STEP: u128 = 671;

impl<A: Address> Destinations<A> {
    pub fn new(rib: &Rib<A>, pattern: Pattern, mut random: Random) -> Self {
        let prefixes = || rib.iter().map(|(prefix, _)| prefix).collect();
        let sampler = match pattern {
            Pattern::Uniform => Sampler::Uniform(Space::of(rib)),
            Pattern::PerPrefix => Sampler::PerPrefix(prefixes()),
            Pattern::Zipf => {
                let mut ranked: Vec<_> = prefixes();
                random.shuffle(&mut ranked);
                let sums = sums(ranked.len());
                Sampler::Zipf(ranked, sums)
            }
            Pattern::Sequential => Sampler::Sequential {
                space: Space::of(rib),
                next: 0,
                step: STEP,
            },
        };
        Self { random, sampler }
    }

    /// With steps of `Pattern::Sequential` that lead through the table once in so many destinations.
    #[must_use]
    pub fn once_in(mut self, count: u64) -> Self {
        if let Sampler::Sequential { space, step, .. } = &mut self.sampler {
            *step = (space.units / u128::from(count.max(1))).max(1);
        }
        self
    }
}

impl<A: Address> Iterator for Destinations<A> {
    type Item = A;

    fn next(&mut self) -> Option<A> {
        let random = &mut self.random;
        match &mut self.sampler {
            Sampler::Uniform(space) => {
                let unit = random.wide().checked_rem(space.units)?;
                Some(space.at(unit, random))
            }
            Sampler::Sequential { space, next, step } => {
                let unit = next.checked_rem(space.units)?;
                *next = unit + *step;
                Some(space.at(unit, random))
            }
            Sampler::PerPrefix(prefixes) => {
                let at = random.index(prefixes.len());
                prefixes.get(at).map(|prefix| inside(*prefix, random))
            }
            Sampler::Zipf(ranked, sums) => {
                let drawn = random.unit() * sums.last()?;
                let rank = sums.partition_point(|sum| *sum <= drawn);
                let prefix = ranked[rank.min(ranked.len() - 1)];
                Some(inside(prefix, random))
            }
        }
    }
}

/// Of the weights of so many ranks, each with those before.
#[expect(clippy::cast_precision_loss, reason = "ranks are fewer than 2^53")]
fn sums(ranks: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let summed = (1..=ranks).map(|rank| {
        sum += 1.0 / rank as f64;
        sum
    });
    summed.collect()
}

/// The routed addresses as one range of units: addresses of IPv4, /64s of IPv6.
#[derive(Clone, Debug)]
struct Space<A: Address> {
    /// Prefixes that no other one covers, with the units up to their end.
    outermost: Vec<(u128, Prefix<A>)>,
    units: u128,
}

impl<A: Address> Space<A> {
    /// Bits of an address below a unit.
    const BELOW: u8 = if A::BITS == 128 { 64 } else { 0 };

    fn of(rib: &Rib<A>) -> Self {
        let (mut outermost, mut units) = (Vec::new(), 0_u128);
        let mut last: Option<Prefix<A>> = None;
        for (prefix, _) in rib {
            if last.is_some_and(|last| last.covers(prefix)) {
                continue;
            }
            units += 1 << (A::BITS - Self::BELOW).saturating_sub(prefix.len());
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
        debug_assert!(unit < end, "{unit} of {}", self.units);
        let below = random.wide() & ((1 << Self::BELOW) - 1);
        prefix.with_host(A::narrow((unit - before) << Self::BELOW | below))
    }
}

fn inside<A: Address>(prefix: Prefix<A>, random: &mut Random) -> A {
    prefix.with_host(A::narrow(random.wide()))
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

    fn draw<A: Address>(rib: &Rib<A>, pattern: Pattern, count: usize, seed: u64) -> Vec<A> {
        let destinations = Destinations::new(rib, pattern, Random::new(seed));
        destinations.take(count).collect()
    }

    #[test]
    fn every_address_has_a_route_and_the_seed_decides_which() {
        let v4 = rib::<u32>(&["10.0.0.0/8", "10.1.2.0/24", "192.0.2.7/32"]);
        let v6 = rib::<u128>(&["2001:db8::/32", "2001:db8::/48", "fd00::1/128", "::/0"]);
        for pattern in Pattern::ALL {
            let draw4 = |seed| draw(&v4, pattern, 500, seed);
            assert_eq!(draw4(1).len(), 500, "{pattern}");
            assert!(draw4(1).iter().all(|&to| v4.lookup(to).is_some()));
            assert_eq!(draw4(1), draw4(1), "{pattern}");
            if pattern != Pattern::Sequential {
                assert_ne!(draw4(1), draw4(2), "{pattern}");
            }
            let six = draw(&v6, pattern, 500, 1);
            assert!(six.iter().all(|&to| v6.lookup(to).is_some()), "{pattern}");
            assert!(draw(&Rib::<u32>::new(), pattern, 5, 1).is_empty());
        }
    }

    #[test]
    fn patterns_are_what_their_names_say() {
        let rib = rib::<u32>(&["10.0.0.0/8", "192.0.2.0/24", "192.0.2.128/25"]);
        let small = |pattern| {
            let all = draw(&rib, pattern, 9000, 4);
            all.into_iter().filter(|to| to >> 24 == 192).count()
        };
        assert!(small(Pattern::Uniform) < 10, "256 of 2^24");
        assert!((5500..6500).contains(&small(Pattern::PerPrefix)));
        let steps = draw(&rib, Pattern::Sequential, 3, 4);
        assert_eq!(steps, [0x0a00_0000, 0x0a00_0000 + 671, 0x0a00_0000 + 1342]);
        let last = Space::of(&rib).at((1 << 24) + 255, &mut Random::new(0));
        assert_eq!(last, 0xc000_02ff);
    }

    #[test]
    fn the_first_of_three_ranks_has_six_in_eleven() {
        let rib = rib::<u32>(&["10.0.0.0/8", "172.16.0.0/12", "192.0.2.0/24"]);
        let all = draw(&rib, Pattern::Zipf, 3000, 7);
        let mut shares = [10, 172, 192].map(|first| {
            let to = |to: &&u32| **to >> 24 == first;
            all.iter().filter(to).count()
        });
        shares.sort_unstable();
        for (share, wanted) in shares.iter().zip([545, 818, 1636]) {
            assert!(share.abs_diff(wanted) < 120, "{shares:?}");
        }
    }

    #[test]
    fn a_sequence_can_go_through_the_table_once() {
        let rib = rib::<u32>(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"]);
        let all = Destinations::new(&rib, Pattern::Sequential, Random::new(7));
        let to: Vec<u32> = all.once_in(1000).take(1002).collect();
        assert!(to[..1000].is_sorted());
        assert_eq!(to[0], 0x0a00_0000);
        assert!(to[1001] < to[1000], "and begins again");
    }
}
