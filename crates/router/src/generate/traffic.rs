//! Packets to the addresses of a table.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use lpm::{Address, Prefix, Rib};

use crate::check::Random;

/// Which addresses come, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Every address that has a route is as likely as any other.
    Uniform,
    /// Every prefix is as likely as any other, and every address of it.
    PerPrefix,
    /// Of prefixes in random order, the n-th comes 1/n times as often as the first: Zipf's law with
    /// exponent 1.
    Zipf,
    /// All addresses that have routes from the lowest to the highest, in equal steps.
    Sequential,
}

/// UDP packets without end, from anywhere to the addresses of one family of a table.
#[derive(Debug)]
pub struct Traffic<A: Address> {
    random: Random,
    kind: Kind<A>,
}

#[derive(Debug)]
enum Kind<A: Address> {
    /// Prefixes, and how many addresses or how much weight they have with those before.
    Weighted(Vec<Prefix<A>>, Vec<f64>),
    /// Outermost prefixes, addresses of those before, the next address and the step.
    Sequential(Vec<Prefix<A>>, Vec<u128>, u128, u128),
}

impl<A: Address + Wide> Traffic<A> {
    /// Nothing when there is no prefix. `packets` is how many `Sequential` goes through the table in.
    pub fn new(rib: &Rib<A>, order: Order, packets: u64, seed: u64) -> Option<Self> {
        if rib.is_empty() {
            return None;
        }
        let mut random = Random(seed);
        let all = || rib.iter().map(|(prefix, _)| prefix);
        let kind = match order {
            Order::PerPrefix => {
                let prefixes: Vec<_> = all().collect();
                weighted(prefixes, |_, _| 1.0)
            }
            Order::Zipf => {
                let mut prefixes: Vec<_> = all().collect();
                for at in (1..prefixes.len()).rev() {
                    let other = random.below(at as u64 + 1);
                    prefixes.swap(at, usize::try_from(other).unwrap_or(at));
                }
                weighted(prefixes, |at, _| 1.0 / (at + 1.0))
            }
            Order::Uniform => weighted(outermost(rib), |_, prefix| size(prefix)),
            Order::Sequential => sequential(outermost(rib), packets),
        };
        Some(Self { random, kind })
    }

    fn destination(&mut self) -> A {
        match &mut self.kind {
            Kind::Weighted(prefixes, sums) => {
                let last = sums.last().copied().unwrap_or(0.0);
                let point = unit(self.random.next()) * last;
                let at = sums.partition_point(|sum| *sum <= point);
                let prefix = prefixes[at.min(prefixes.len() - 1)];
                within(prefix, self.random.wide())
            }
            Kind::Sequential(prefixes, sums, next, step) => {
                let all = sums.last().copied().unwrap_or(1);
                let point = *next % all;
                *next = point + *step;
                let at = sums.partition_point(|sum| *sum <= point);
                let before = if at == 0 { 0 } else { sums[at - 1] };
                within(prefixes[at], point - before)
            }
        }
    }
}

impl<A: Address + Wide> Iterator for Traffic<A> {
    type Item = (SocketAddr, SocketAddr);

    /// Source and destination.
    fn next(&mut self) -> Option<Self::Item> {
        let to = self.destination();
        let ports = self.random.next().to_le_bytes();
        let [a, b, c, d, ..] = ports;
        let from = A::from_wide(self.random.wide());
        let port = |low, high| u16::from_le_bytes([low, high]).max(1);
        Some((from.socket(port(a, b)), to.socket(port(c, d))))
    }
}

/// Addresses as numbers of one width.
pub trait Wide: Sized {
    fn from_wide(wide: u128) -> Self;
    fn wide(self) -> u128;
    fn socket(self, port: u16) -> SocketAddr;
}

impl Wide for u32 {
    fn from_wide(wide: u128) -> Self {
        Self::try_from(wide & u128::from(Self::MAX)).unwrap_or(0)
    }

    fn wide(self) -> u128 {
        self.into()
    }

    fn socket(self, port: u16) -> SocketAddr {
        (Ipv4Addr::from_bits(self), port).into()
    }
}

impl Wide for u128 {
    fn from_wide(wide: u128) -> Self {
        wide
    }

    fn wide(self) -> u128 {
        self
    }

    fn socket(self, port: u16) -> SocketAddr {
        (Ipv6Addr::from_bits(self), port).into()
    }
}

/// Prefixes that no other covers.
fn outermost<A: Address>(rib: &Rib<A>) -> Vec<Prefix<A>> {
    let mut outer: Vec<Prefix<A>> = Vec::new();
    for (prefix, _) in rib {
        if outer.last().is_none_or(|last| !last.covers(prefix)) {
            outer.push(prefix);
        }
    }
    outer
}

fn weighted<A: Address>(
    prefixes: Vec<Prefix<A>>,
    weight: impl Fn(f64, &Prefix<A>) -> f64,
) -> Kind<A> {
    let mut sum = 0.0;
    let mut at = 0.0;
    let sums = prefixes.iter().map(|prefix| {
        sum += weight(at, prefix);
        at += 1.0;
        sum
    });
    let sums = sums.collect();
    Kind::Weighted(prefixes, sums)
}

fn sequential<A: Address>(prefixes: Vec<Prefix<A>>, packets: u64) -> Kind<A> {
    let mut sum = 0_u128;
    let sums: Vec<u128> = prefixes
        .iter()
        .map(|prefix| {
            let addresses = 1_u128.checked_shl(u32::from(A::BITS - prefix.len()));
            sum = sum.saturating_add(addresses.unwrap_or(u128::MAX));
            sum
        })
        .collect();
    let step = (sum / u128::from(packets.max(1))).max(1);
    Kind::Sequential(prefixes, sums, 0, step)
}

fn size<A: Address>(prefix: &Prefix<A>) -> f64 {
    f64::from(A::BITS - prefix.len()).exp2()
}

fn within<A: Address + Wide>(prefix: Prefix<A>, host: u128) -> A {
    let mask = prefix.last().wide() ^ prefix.first().wide();
    A::from_wide(prefix.first().wide() | host & mask)
}

/// From 0 to below 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use lpm::NextHop;

    use super::*;

    fn rib() -> Rib<u32> {
        let hop = NextHop::new(1).unwrap();
        let prefixes = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"];
        let prefix = |text: &str| (text.parse().unwrap(), hop);
        prefixes.into_iter().map(prefix).collect()
    }

    /// Packets of 3000 to each longest prefix.
    fn shares(order: Order) -> HashMap<String, usize> {
        let rib = rib();
        let mut shares = HashMap::new();
        let traffic = Traffic::new(&rib, order, 3000, 7).unwrap();
        for (_, to) in traffic.take(3000) {
            let IpAddr::V4(to) = to.ip() else {
                panic!("{to}");
            };
            let (prefix, _) = rib.lookup(to.to_bits()).unwrap();
            *shares.entry(prefix.to_string()).or_insert(0) += 1;
        }
        shares
    }

    #[test]
    fn addresses_come_as_often_as_they_should() {
        let uniform = shares(Order::Uniform);
        assert!(uniform["10.0.0.0/8"] > 2950, "{uniform:?}");
        let each = shares(Order::PerPrefix);
        assert!(
            each.values().all(|share| (900..1100).contains(share)),
            "{each:?}"
        );
        let mut zipf: Vec<usize> = shares(Order::Zipf).into_values().collect();
        zipf.sort_unstable();
        // 6/11, 3/11 and 2/11.
        for (share, wanted) in zipf.iter().zip([545, 818, 1636]) {
            assert!(share.abs_diff(wanted) < 120, "{zipf:?}");
        }
    }

    #[test]
    fn a_sequence_goes_through_the_table_once() {
        let rib = rib();
        let traffic = Traffic::new(&rib, Order::Sequential, 1000, 7).unwrap();
        let to: Vec<_> = traffic.take(1002).map(|(_, to)| to.ip()).collect();
        assert!(to[..1000].is_sorted());
        let first: IpAddr = "10.0.0.0".parse().unwrap();
        assert_eq!(to[0], first);
        assert!(to[1001] < to[1000], "and begins again");
        assert!(Traffic::new(&Rib::<u32>::new(), Order::Uniform, 1, 1).is_none());
    }
}
