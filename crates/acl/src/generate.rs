//! Rule lists to measure with: like those of real firewalls, and hostile ones.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the lowest bits of random numbers"
)]

use std::ops::RangeInclusive;

use prefix::Prefix;

use crate::address::Address;
use crate::rule::{ANY_PORT, Key, Protocol, Rule};
use crate::sample::Random;

/// The kind of a list: what makes it hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Rovniagin and Wool's distribution of fields ("The Geometric Efficient Matching Algorithm for
    /// Firewalls", TDSC 8(1), 2011), as transcribed in the CUDA router of Naylor, Mukerjee and Vavala.
    Firewall,
    /// Every rule matches every packet.
    Wildcards,
    /// No addresses; each range of destination ports lies in the next.
    NestedPorts,
    /// No addresses; short ranges of both ports anywhere.
    RandomPorts,
    /// Chains of prefixes within prefixes, of source and destination.
    NestedPrefixes,
    /// Half of the rules have only a source, half only a destination.
    Crossed,
    /// One pair of addresses, one destination port each.
    OnePair,
    /// Each rule has its own pair of hosts.
    HostPairs,
    /// Nested prefixes and, without addresses, ranges of both ports, in turn.
    NestedAndRanges,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Firewall,
        Self::Wildcards,
        Self::NestedPorts,
        Self::RandomPorts,
        Self::NestedPrefixes,
        Self::Crossed,
        Self::OnePair,
        Self::HostPairs,
        Self::NestedAndRanges,
    ];
}

/// `count` rules, the same for the same seed.
pub fn rules<A: Address>(kind: Kind, count: usize, seed: u64) -> Vec<Rule<A>> {
    let random = &mut Random::new(seed);
    let mut rules: Vec<Rule<A>> = (0..count)
        .map(|number| match kind {
            Kind::Firewall => firewall(random),
            Kind::Wildcards => Rule::default(),
            Kind::NestedPorts => nested_ports(number),
            Kind::RandomPorts => random_ports(random),
            Kind::NestedPrefixes => nested_prefixes(random),
            Kind::Crossed => crossed(random, number),
            Kind::OnePair => one_pair(random),
            Kind::HostPairs => host_pair(random),
            Kind::NestedAndRanges if number % 2 == 0 => nested_prefixes(random),
            Kind::NestedAndRanges => Rule {
                source_ports: range(random),
                destination_ports: range(random),
                ..Rule::default()
            },
        })
        .collect();
    match kind {
        Kind::NestedPorts => rules.sort_by_key(|rule| rule.destination_ports.len()),
        Kind::NestedPrefixes => rules.sort_by_key(|rule| {
            let bits = |prefix: &Prefix<A>| u16::from(prefix.len());
            u16::MAX - bits(&rule.source) - bits(&rule.destination)
        }),
        _ => {}
    }
    for (id, rule) in (1..).zip(&mut rules) {
        rule.id = id;
    }
    rules
}

/// `count` keys, each within a rule picked at random.
pub fn keys_within<A: Address>(rules: &[Rule<A>], count: usize, seed: u64) -> Vec<Key<A>> {
    let random = &mut Random::new(seed);
    if rules.is_empty() {
        return keys_anywhere(count, seed);
    }
    let mut key = |_| {
        let rule = &rules[random.below(rules.len() as u64) as usize];
        let source = rule.source.with_host(random.address());
        let destination = rule.destination.with_host(random.address());
        let port = |range: &RangeInclusive<u16>, random: &mut Random| {
            random.between(*range.start(), *range.end())
        };
        let ports = (
            port(&rule.source_ports, random),
            port(&rule.destination_ports, random),
        );
        let protocol = rule.protocol.value | random.next() as u8 & !rule.protocol.mask;
        Key::new(source, destination, ports, protocol)
    };
    (0..count).map(&mut key).collect()
}

/// `count` keys of uniform addresses and ports, by TCP or UDP.
pub fn keys_anywhere<A: Address>(count: usize, seed: u64) -> Vec<Key<A>> {
    let random = &mut Random::new(seed);
    let mut key = |_| {
        let (source, destination) = (random.address(), random.address());
        let ports = (random.next() as u16, random.next() as u16);
        let protocol = if random.below(2) == 0 { 6 } else { 17 };
        Key::new(source, destination, ports, protocol)
    };
    (0..count).map(&mut key).collect()
}

fn prefix<A: Address>(address: A, length: u8) -> Prefix<A> {
    Prefix::cut(address, length.min(A::BITS))
}

/// A prefix that leaves this share of IPv4's 32 bits to hosts; of IPv6, of the upper 64.
fn network<A: Address>(random: &mut Random, host_bits: u8) -> Prefix<A> {
    let bits = if A::BITS == 32 { 32 } else { 64 };
    prefix(random.address(), bits - host_bits)
}

fn host<A: Address>(random: &mut Random) -> Prefix<A> {
    prefix(random.address(), A::BITS)
}

fn range(random: &mut Random) -> RangeInclusive<u16> {
    let (a, b) = (random.next() as u16, random.next() as u16);
    a.min(b)..=a.max(b)
}

/// The table of the paper, in hundredths of a per cent.
fn firewall<A: Address>(random: &mut Random) -> Rule<A> {
    let exactly = |port| port..=port;
    let protocol = match random.below(100) {
        0..75 => Protocol::exactly(6),
        75..89 => Protocol::exactly(17),
        89..93 => Protocol::exactly(1),
        93..99 => Protocol::ANY,
        _ => Protocol::exactly(random.next() as u8),
    };
    let source_ports = match random.below(100) {
        0..98 => ANY_PORT,
        98 => range(random),
        _ => exactly(random.next() as u16),
    };
    let destination_ports = match random.below(10_000) {
        0..400 => range(random),
        400..1_089 => exactly(80),
        1_089..1_654 => exactly(21),
        1_654..2_141 => exactly(23),
        2_141..2_531 => exactly(443),
        2_531..2_756 => exactly(8080),
        2_756..2_972 => exactly(139),
        _ => exactly(random.next() as u16),
    };
    let source = match random.below(100) {
        0..95 => Prefix::default(),
        _ => {
            let host_bits = 1 + random.below(16) as u8;
            network(random, host_bits)
        }
    };
    let destination = match random.below(100) {
        0..45 => host(random),
        45..60 => {
            let host_bits = 1 + random.below(16) as u8;
            network(random, host_bits)
        }
        60..70 => network(random, 16),
        _ => network(random, 8),
    };
    Rule {
        source,
        destination,
        source_ports,
        destination_ports,
        protocol,
        ..Rule::default()
    }
}

fn nested_ports<A: Address>(number: usize) -> Rule<A> {
    let reach = (number % 32768) as u16;
    Rule {
        destination_ports: 32767 - reach..=32768 + reach,
        protocol: Protocol::exactly(6),
        ..Rule::default()
    }
}

fn random_ports<A: Address>(random: &mut Random) -> Rule<A> {
    let mut short = || {
        let start = random.next() as u16;
        start..=start.saturating_add(random.below(2000) as u16)
    };
    let (source_ports, destination_ports) = (short(), short());
    let protocol = if random.below(2) == 0 { 6 } else { 17 };
    Rule {
        source_ports,
        destination_ports,
        protocol: Protocol::exactly(protocol),
        ..Rule::default()
    }
}

fn nested_prefixes<A: Address>(random: &mut Random) -> Rule<A> {
    let mut nested = |first: u128| {
        let address = first << (A::BITS - 8) | u128::from(random.below(1 << 12));
        let length = random.below(u64::from(A::BITS) + 1) as u8;
        prefix(A::narrow(address), length)
    };
    let (source, destination) = (nested(10), nested(11));
    let port = [22, 80, 443][random.below(3) as usize];
    Rule {
        source,
        destination,
        destination_ports: port..=u16::MAX,
        protocol: Protocol::exactly(6),
        ..Rule::default()
    }
}

fn crossed<A: Address>(random: &mut Random, number: usize) -> Rule<A> {
    let length = [8, 16, 24, 32][random.below(4) as usize];
    let one = prefix(random.address(), length);
    let (source, destination, port) = if number % 2 == 1 {
        (one, Prefix::default(), 80)
    } else {
        (Prefix::default(), one, 443)
    };
    Rule {
        source,
        destination,
        destination_ports: port..=port,
        protocol: Protocol::exactly(6),
        ..Rule::default()
    }
}

fn one_pair<A: Address>(random: &mut Random) -> Rule<A> {
    let port = random.next() as u16;
    Rule {
        source: prefix(A::narrow(0x0a00_0001), A::BITS),
        destination: prefix(A::narrow(0x0a00_0002), A::BITS),
        destination_ports: port..=port,
        protocol: Protocol::exactly(6),
        ..Rule::default()
    }
}

fn host_pair<A: Address>(random: &mut Random) -> Rule<A> {
    let (source, destination) = (host(random), host(random));
    Rule {
        source,
        destination,
        ..Rule::default()
    }
}
