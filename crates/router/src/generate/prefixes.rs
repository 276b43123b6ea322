//! Sets of prefixes as long as the Internet's, and as often within each other.

use lpm::{Address, NextHop, Prefix, Prefix4, Prefix6, Rib};

use super::lengths::{
    Count, FIRST4, FIRST6, LENGTHS4, LENGTHS6, NESTED_PER_THOUSAND4, NESTED_PER_THOUSAND6, WITHOUT4,
};
use crate::random::Random;

/// Tries to find a prefix that is not there yet, before a longer one is taken.
const TRIES: usize = 64;

/// `count` different IPv4 prefixes, shorter ones first.
pub fn prefixes4(count: u32, seed: u64) -> Vec<Prefix4> {
    let anywhere = |random: &mut Random| {
        let span = u64::from(FIRST4.end() - FIRST4.start() + 1);
        loop {
            let first = FIRST4.start() + u32::try_from(random.below(span)).unwrap_or(0);
            if !WITHOUT4.contains(&first) {
                return first << 24 | random.narrow() >> 8;
            }
        }
    };
    prefixes(
        count,
        seed,
        &LENGTHS4,
        NESTED_PER_THOUSAND4,
        anywhere,
        Random::narrow,
    )
}

/// As `prefixes4`.
pub fn prefixes6(count: u32, seed: u64) -> Vec<Prefix6> {
    let all: u64 = FIRST6.iter().map(|(_, count)| u64::from(*count)).sum();
    let anywhere = |random: &mut Random| {
        let mut at = random.below(all);
        let begins = FIRST6.iter().find(|(_, count)| {
            let here = at < u64::from(*count);
            at = at.saturating_sub((*count).into());
            here
        });
        let first = begins.map_or(0x200, |(first, _)| *first);
        u128::from(first) << 116 | random.wide() >> 12
    };
    prefixes(
        count,
        seed,
        &LENGTHS6,
        NESTED_PER_THOUSAND6,
        anywhere,
        Random::wide,
    )
}

fn prefixes<A: Address>(
    count: u32,
    seed: u64,
    lengths: &[Count],
    nested: u64,
    anywhere: impl Fn(&mut Random) -> A,
    any: impl Fn(&mut Random) -> A,
) -> Vec<Prefix<A>> {
    let random = &mut Random::new(seed);
    let hop = NextHop::new(1);
    let mut known: Rib<A> = Rib::new();
    let mut made: Vec<Prefix<A>> = Vec::new();
    for (length, wanted) in shares(count, lengths) {
        let shorter = made.len();
        for _ in 0..wanted {
            let within = shorter > 0 && random.below(1000) < nested;
            let mut tries = 0;
            let prefix = loop {
                // Where there is no more room, a little longer.
                let length = length.saturating_add(u8::try_from(tries / TRIES).unwrap_or(A::BITS));
                let length = length.min(A::BITS);
                let address = if within {
                    let outer = made[random.index(shorter)];
                    outer.with_host(any(random))
                } else {
                    anywhere(random)
                };
                tries += 1;
                let Ok(prefix) = Prefix::containing(address, length) else {
                    continue;
                };
                let free = known.get(prefix).is_none();
                let as_wanted = within || tries > TRIES / 2 || known.parent(prefix).is_none();
                if free && as_wanted {
                    break prefix;
                }
            };
            if let Some(hop) = hop {
                known.insert(prefix, hop);
            }
            made.push(prefix);
        }
    }
    made
}

/// How many prefixes of each length add up to `count`: the largest remainders are rounded up.
fn shares(count: u32, lengths: &[Count]) -> Vec<Count> {
    let all: u64 = lengths.iter().map(|(_, of)| u64::from(*of)).sum();
    let exact = |of: u32| u64::from(of) * u64::from(count);
    let whole = |of: u32| u32::try_from(exact(of) / all).unwrap_or(u32::MAX);
    let mut shares: Vec<Count> = lengths.iter().map(|(len, of)| (*len, whole(*of))).collect();
    let given: u32 = shares.iter().map(|(_, share)| share).sum();
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(exact(lengths[*at].1) % all));
    for at in order.into_iter().take((count - given) as usize) {
        shares[at].1 += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_nesting_are_the_internets() {
        let made = prefixes4(20_000, 1);
        assert_eq!(made, prefixes4(20_000, 1));
        assert_ne!(made, prefixes4(20_000, 2));
        let long = made.iter().filter(|prefix| prefix.len() == 24).count();
        assert_eq!(long, 11_924, "537698 of 901899");
        let hop = NextHop::new(1).unwrap();
        let rib: Rib<u32> = made.iter().map(|prefix| (*prefix, hop)).collect();
        assert_eq!(rib.len(), 20_000);
        let nested = made.iter().filter(|prefix| rib.parent(**prefix).is_some());
        let nested = nested.count();
        assert!((9_500..10_800).contains(&nested), "{nested}");
        let made = prefixes6(20_000, 1);
        let rib: Rib<u128> = made.iter().map(|prefix| (*prefix, hop)).collect();
        let nested = made.iter().filter(|prefix| rib.parent(**prefix).is_some());
        let nested = nested.count();
        assert!((10_800..12_200).contains(&nested), "{nested}");
        assert_eq!(
            made.iter().filter(|prefix| prefix.len() == 48).count(),
            9_427
        );
    }

    #[test]
    fn a_few_and_none_can_be_had() {
        assert!(prefixes4(0, 1).is_empty());
        assert_eq!(prefixes6(7, 1).len(), 7);
    }
}
