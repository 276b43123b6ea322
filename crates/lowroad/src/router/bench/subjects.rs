//! What is measured: every engine that holds the routes, and every one for the rules.

use std::mem;
use std::time::{Duration, Instant};

use acl::{Classifier, Key, NONE, Rule, Simd, generate, linear};
use anyhow::anyhow;
use lpm::{Address, Fib4, Fib6, Layout4, Layout6, NO_ROUTE, NextHop, Rib};
use router::engine::Contents;
use router::random::Random;
use router::traffic::{Destinations, Pattern};

use super::Keys;
use super::group::{Group, Subject};
use crate::exit::Failure;

/// Comparisons that checking rules one by one may take, for each pattern.
const PATIENCE: usize = 200_000_000;

/// Groups for what there is: IPv4 routes, IPv6 routes, rules of each.
pub(super) fn all(contents: &Contents, keys: Keys) -> Result<Vec<Group>, Failure> {
    let mut groups = Vec::new();
    if !contents.v4.is_empty() {
        groups.push(routes4(&contents.v4, keys)?);
    }
    if !contents.v6.is_empty() {
        groups.push(routes6(&contents.v6, keys)?);
    }
    if !contents.rules.v4.is_empty() {
        groups.push(rules("IPv4 rules", &contents.rules.v4, keys)?);
    }
    if !contents.rules.v6.is_empty() {
        groups.push(rules("IPv6 rules", &contents.rules.v6, keys)?);
    }
    if groups.is_empty() {
        return Err(Failure::Input(
            "there are neither routes nor rules to look up".to_owned(),
        ));
    }
    Ok(groups)
}

/// A table of one layout, which looks up by any instructions.
trait Fib: Sized {
    type Address: Address;
    type Octets: Copy;

    fn octets(address: Self::Address) -> Self::Octets;
    fn by(self, simd: Simd) -> Self;
    fn look_up(&self, keys: &[Self::Octets], hops: &mut [u16]);
}

impl Fib for Fib4 {
    type Address = u32;
    type Octets = [u8; 4];

    fn octets(address: u32) -> [u8; 4] {
        address.to_be_bytes()
    }

    fn by(self, simd: Simd) -> Self {
        self.with_simd(simd)
    }

    fn look_up(&self, keys: &[[u8; 4]], hops: &mut [u16]) {
        self.lookup_batch_be(keys, hops);
    }
}

impl Fib for Fib6 {
    type Address = u128;
    type Octets = [u8; 16];

    fn octets(address: u128) -> [u8; 16] {
        address.to_be_bytes()
    }

    fn by(self, simd: Simd) -> Self {
        self.with_simd(simd)
    }

    fn look_up(&self, keys: &[[u8; 16]], hops: &mut [u16]) {
        self.lookup_batch(keys, hops);
    }
}

fn routes4(rib: &Rib<u32>, keys: Keys) -> Result<Group, Failure> {
    let most = rib.iter().map(|(_, hop)| hop.get()).max().unwrap_or(0);
    let layouts = Layout4::ALL.into_iter().filter(|l| most <= l.limit());
    let tables = layouts.map(|layout| {
        let started = Instant::now();
        let fib = Fib4::build(rib.clone(), layout).map_err(|error| anyhow!(error))?;
        Ok((layout.name(), fib.bytes(), started.elapsed(), fib))
    });
    let tables = tables.collect::<Result<_, Failure>>()?;
    Ok(routes("IPv4", rib, tables, keys))
}

fn routes6(rib: &Rib<u128>, keys: Keys) -> Result<Group, Failure> {
    let tables = Layout6::ALL.into_iter().map(|layout| {
        let started = Instant::now();
        let fib = Fib6::build(rib.clone(), layout).map_err(|error| anyhow!(error))?;
        Ok((layout.name(), fib.bytes(), started.elapsed(), fib))
    });
    let tables = tables.collect::<Result<_, Failure>>()?;
    Ok(routes("IPv6", rib, tables, keys))
}

fn routes<F: Fib + 'static>(
    name: &'static str,
    rib: &Rib<F::Address>,
    tables: Vec<(&'static str, usize, Duration, F)>,
    keys: Keys,
) -> Group {
    let mut random = Random::new(keys.seed);
    let drawn = Pattern::ALL.map(|pattern| {
        let destinations = Destinations::new(rib, pattern, Random::new(random.bits()));
        destinations.take(keys.count).collect()
    });
    let oracle = |addresses: &Vec<F::Address>| {
        let hop =
            |address: &F::Address| rib.lookup(*address).map_or(NO_ROUTE, |(_, hop)| hop.get());
        addresses.iter().map(hop).collect()
    };
    let hops = rib.iter().map(|(_, hop)| hop).max().map_or(0, NextHop::get);
    let about = format!("{} prefixes, {hops} next hops", rib.len());
    let (mut engines, mut arms, mut fibs) = (Vec::new(), Vec::new(), Vec::new());
    for (layout, bytes, took, fib) in tables {
        for simd in Simd::available() {
            engines.push((
                format!("{layout} {}", simd.name()),
                bytes,
                took.as_secs_f64(),
            ));
            arms.push((fibs.len(), simd));
        }
        fibs.push(Some(fib));
    }
    let subject = Routes {
        fibs,
        arms,
        batch: keys.batch,
        answers: drawn.iter().map(oracle).collect(),
        keys: drawn
            .map(|all| all.into_iter().map(F::octets).collect())
            .into(),
        hops: vec![NO_ROUTE; keys.count],
    };
    let patterns = Pattern::ALL.map(Pattern::name).into();
    let counts = (keys.count, keys.count);
    Group::new(name, about, patterns, counts, engines, Box::new(subject))
}

struct Routes<F: Fib> {
    fibs: Vec<Option<F>>,
    /// A table and the instructions.
    arms: Vec<(usize, Simd)>,
    batch: usize,
    /// Of each pattern.
    keys: Vec<Vec<F::Octets>>,
    answers: Vec<Vec<u16>>,
    hops: Vec<u16>,
}

impl<F: Fib> Subject for Routes<F> {
    fn pass(&mut self, arm: usize, pattern: usize) -> Duration {
        let (at, simd) = self.arms[arm];
        let fib = self.fibs[at].take().map(|fib| fib.by(simd));
        let started = Instant::now();
        if let Some(fib) = &fib {
            let keys = self.keys[pattern].chunks(self.batch);
            for (keys, hops) in keys.zip(self.hops.chunks_mut(self.batch)) {
                fib.look_up(keys, hops);
            }
        }
        let took = started.elapsed();
        self.fibs[at] = fib;
        took
    }

    fn wrong(&mut self, arm: usize, pattern: usize) -> u64 {
        // Nothing is left of another arm's answers.
        self.hops.fill(u16::MAX);
        self.pass(arm, pattern);
        let both = self.hops.iter().zip(&self.answers[pattern]);
        both.filter(|(found, right)| found != right).count() as u64
    }
}

fn rules<A: acl::Address>(
    name: &'static str,
    rules: &[Rule<A>],
    keys: Keys,
) -> Result<Group, Failure> {
    let drawn = vec![
        generate::keys_within(rules, keys.count, keys.seed),
        generate::keys_anywhere(keys.count, keys.seed),
    ];
    let checked = (PATIENCE / rules.len()).clamp(1, keys.count);
    let oracle = |all: &Vec<Key<A>>| {
        let first = |key| linear(rules, key).and_then(|rule| u32::try_from(rule).ok());
        let checked = all[..checked].iter();
        checked.map(|key| first(key).unwrap_or(NONE)).collect()
    };
    let started = Instant::now();
    let table =
        Classifier::build(rules, acl::Options::default()).map_err(|error| anyhow!(error))?;
    let took = started.elapsed().as_secs_f64();
    let simds: Vec<Simd> = Simd::available().collect();
    let engine = |simd: &Simd| {
        (
            format!("hashcut {}", simd.name()),
            table.report().bytes,
            took,
        )
    };
    let engines = simds.iter().map(engine).collect();
    let subject = Rules {
        answers: drawn.iter().map(oracle).collect(),
        table: Some(table),
        simds,
        batch: keys.batch,
        keys: drawn,
        found: vec![NONE; keys.count],
    };
    let about = format!("{} rules", rules.len());
    let patterns = vec!["within-rules", "anywhere"];
    let counts = (keys.count, checked);
    Ok(Group::new(
        name,
        about,
        patterns,
        counts,
        engines,
        Box::new(subject),
    ))
}

struct Rules<A: acl::Address> {
    table: Option<Classifier<A>>,
    simds: Vec<Simd>,
    batch: usize,
    keys: Vec<Vec<Key<A>>>,
    /// Of the first keys.
    answers: Vec<Vec<u32>>,
    found: Vec<u32>,
}

impl<A: acl::Address> Subject for Rules<A> {
    fn pass(&mut self, arm: usize, pattern: usize) -> Duration {
        let simd = self.simds[arm];
        let table = mem::take(&mut self.table).map(|table| table.with_simd(simd));
        let started = Instant::now();
        if let Some(table) = &table {
            let keys = self.keys[pattern].chunks(self.batch);
            for (keys, found) in keys.zip(self.found.chunks_mut(self.batch)) {
                table.classify(keys, found);
            }
        }
        let took = started.elapsed();
        self.table = table;
        took
    }

    fn wrong(&mut self, arm: usize, pattern: usize) -> u64 {
        self.found.fill(NONE - 1);
        self.pass(arm, pattern);
        let both = self.found.iter().zip(&self.answers[pattern]);
        both.filter(|(found, right)| found != right).count() as u64
    }
}
