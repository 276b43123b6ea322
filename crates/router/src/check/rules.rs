//! Classifiers against the list read from its beginning.

use acl::generate::{keys_anywhere, keys_within};
use acl::live::Live;
use acl::{Address, Classifier, Key, NONE, Options, Rule, Simd, linear};

use super::{CheckResult, compare, engine_name};
use crate::explain::{self, Packet};
use crate::random::Random;
use crate::rules::RuleSet;

/// Comparisons of a key with a rule that the naive engine makes in about a second.
const WORK: usize = 400_000_000;

/// How many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// As many as the list read from its beginning answers in about a second.
    Usual,
    Exactly(usize),
}

/// Checks the classifiers of both lists, by all instructions of this machine, and the lists that change.
///
/// # Errors
/// A list too long, or no memory.
pub fn rule_set(rules: &RuleSet, keys: Keys, seed: u64) -> Result<Vec<CheckResult>, acl::Error> {
    let mut checked = Vec::new();
    check(
        "acl4",
        &rules.v4,
        &queries(&rules.v4, keys, seed),
        &mut checked,
    )?;
    check(
        "acl6",
        &rules.v6,
        &queries(&rules.v6, keys, seed),
        &mut checked,
    )?;
    Ok(checked)
}

/// As `rule_set`, of one packet only.
///
/// # Errors
/// As `rule_set`.
pub fn packet(rules: &RuleSet, packet: &Packet) -> Result<Vec<CheckResult>, acl::Error> {
    let mut checked = Vec::new();
    match packet {
        Packet::V4(key) => check("acl4", &rules.v4, &[*key], &mut checked),
        Packet::V6(key) => check("acl6", &rules.v6, &[*key], &mut checked),
    }?;
    Ok(checked)
}

fn check<A: Address>(
    name: &str,
    rules: &[Rule<A>],
    keys: &[Key<A>],
    checked: &mut Vec<CheckResult>,
) -> Result<(), acl::Error> {
    if rules.is_empty() {
        return Ok(());
    }
    let number = |place: usize| u32::try_from(place).unwrap_or(NONE);
    let right: Vec<u32> = keys
        .iter()
        .map(|key| linear(rules, key).map_or(NONE, number))
        .collect();
    let show = |rule: u32| match rule {
        NONE => "no rule".to_owned(),
        rule => format!("rule {}", rule + 1),
    };
    let mut answers = vec![NONE; keys.len()];
    let mut classifier = Classifier::build(rules, Options::default())?;
    for simd in Simd::available() {
        classifier = classifier.with_simd(simd);
        classifier.classify(keys, &mut answers);
        let engine = engine_name(&format!("{name} classifier"), simd.name());
        checked.push(compare(engine, keys, &answers, &right, key_text::<A>, show));
    }
    let live = Live::new(
        (0..).zip(rules.iter().cloned()).collect(),
        Options::default(),
    )?;
    live.reader().classify(keys, &mut answers);
    let engine = format!("{name} live");
    checked.push(compare(engine, keys, &answers, &right, key_text::<A>, show));
    Ok(())
}

/// A third of the keys at corners of rules and just outside, a third within rules, a third anywhere.
pub(super) fn queries<A: Address>(rules: &[Rule<A>], keys: Keys, seed: u64) -> Vec<Key<A>> {
    if rules.is_empty() {
        return Vec::new();
    }
    let count = match keys {
        Keys::Usual => (WORK / rules.len()).clamp(1 << 10, 1 << 16),
        Keys::Exactly(keys) => keys,
    };
    let third = count.div_ceil(3);
    let random = &mut Random::new(seed);
    let mut keys: Vec<Key<A>> = (0..third).map(|_| corner(rules, random)).collect();
    keys.extend(keys_within(rules, third, seed));
    keys.extend(keys_anywhere::<A>(count.saturating_sub(2 * third), seed));
    keys
}

/// Of each field, the lowest or the highest value of a rule, or the one beside it.
fn corner<A: Address>(rules: &[Rule<A>], random: &mut Random) -> Key<A> {
    let rule = &rules[random.index(rules.len())];
    let mut choice = random.bits();
    let mut choose = |low: u128, high: u128| {
        let (side, beside) = (choice & 1, choice & 0x0e == 0);
        choice >>= 4;
        match (side, beside) {
            (0, false) => low,
            (0, true) => low.wrapping_sub(1),
            (_, false) => high,
            (_, true) => high.wrapping_add(1),
        }
    };
    let mut address =
        |prefix: &acl::Prefix<A>| A::narrow(choose(prefix.first().widen(), prefix.last().widen()));
    let (source, destination) = (address(&rule.source), address(&rule.destination));
    let mut port = |ports: &std::ops::RangeInclusive<u16>| {
        let port = choose((*ports.start()).into(), (*ports.end()).into());
        u16::try_from(port & 0xffff).unwrap_or(0)
    };
    let ports = (port(&rule.source_ports), port(&rule.destination_ports));
    let protocol = rule.protocol.value;
    let protocol = if choose(0, 0) == 0 {
        protocol
    } else {
        protocol ^ 1
    };
    Key::new(source, destination, ports, protocol)
}

fn key_text<A: Address>(key: &Key<A>) -> String {
    explain::key_text(key)
}
