//! Lookups by themselves: every engine that holds the routes, and every one for the rules.

use std::mem;
use std::time::{Duration, Instant};

use acl::{Classifier, Key, NONE, Rule, Simd, generate, linear};
use lpm::{Address, Fib4, Fib6, Layout4, Layout6, NO_ROUTE, NextHop, Rib};
use process::shutdown::Shutdown;
use router::engine::Contents;
use router::random::Random;
use router::traffic::{Destinations, Pattern};

use super::group::{self, Engine, Group, Progress, Runner, Workload};
use crate::Error;

/// The comparisons that checking rules one by one may take, for each pattern.
const MAX_COMPARISONS: usize = 200_000_000;

/// How keys are drawn and looked up.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Of each pattern.
    pub count: usize,
    /// Keys that are looked up together.
    pub batch: usize,
    pub seed: u64,
}

/// Measures every engine with the same keys, on one CPU: a group for each family's routes and rules. Some
/// groups may be unmeasured if shutdown was requested.
///
/// # Errors
/// There is nothing to look up, or nothing was measured before shutdown was requested.
pub fn run(
    contents: &Contents,
    keys: Keys,
    rounds: u16,
    shutdown: &Shutdown,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Group>, Error> {
    // Times of a thread that moves between CPUs cannot be compared.
    let cpus = sys::sched::allowed_cpus().map_err(|error| Error::attempt("CPUs", error))?;
    let cpu = cpus.last().copied().unwrap_or(0);
    let measured = sys::sched::on_cpu(cpu, || {
        let mut runners = runners(contents, keys)?;
        group::measure(&mut runners, rounds, keys.seed, shutdown, progress);
        Ok::<_, Error>(runners)
    });
    let pinned = |error| Error::attempt(format!("staying on CPU {cpu}"), error);
    let runners = measured.map_err(pinned)??;
    let groups: Vec<Group> = runners.into_iter().map(|runner| runner.group).collect();
    if groups.iter().all(Group::is_unmeasured) {
        return Err(Error::failed("stopped before anything was measured"));
    }
    Ok(groups)
}

/// A group each for IPv4 routes, IPv6 routes, IPv4 rules and IPv6 rules, where there are any.
fn runners(contents: &Contents, keys: Keys) -> Result<Vec<Runner>, Error> {
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
        return Err(Error::Input(
            "there are neither routes nor rules to look up".to_owned(),
        ));
    }
    Ok(groups)
}

/// A table of one layout, which looks up with any instruction set.
trait Fib: Sized {
    type Address: Address;
    type Octets: Copy;

    fn octets(address: Self::Address) -> Self::Octets;
    fn with(self, simd: Simd) -> Self;
    fn look_up(&self, keys: &[Self::Octets], hops: &mut [u16]);
}

impl Fib for Fib4 {
    type Address = u32;
    type Octets = [u8; 4];

    fn octets(address: u32) -> [u8; 4] {
        address.to_be_bytes()
    }

    fn with(self, simd: Simd) -> Self {
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

    fn with(self, simd: Simd) -> Self {
        self.with_simd(simd)
    }

    fn look_up(&self, keys: &[[u8; 16]], hops: &mut [u16]) {
        self.lookup_batch(keys, hops);
    }
}

fn routes4(rib: &Rib<u32>, keys: Keys) -> Result<Runner, Error> {
    let most = rib.iter().map(|(_, hop)| hop.get()).max().unwrap_or(0);
    let layouts = Layout4::ALL.into_iter().filter(|l| most <= l.limit());
    let tables = layouts.map(|layout| {
        let started = Instant::now();
        let fib = Fib4::build(rib.clone(), layout).map_err(Error::failed)?;
        Ok((layout.name(), fib.bytes(), started.elapsed(), fib))
    });
    let tables = tables.collect::<Result<_, Error>>()?;
    Ok(routes("IPv4", rib, tables, keys))
}

fn routes6(rib: &Rib<u128>, keys: Keys) -> Result<Runner, Error> {
    let tables = Layout6::ALL.into_iter().map(|layout| {
        let started = Instant::now();
        let fib = Fib6::build(rib.clone(), layout).map_err(Error::failed)?;
        Ok((layout.name(), fib.bytes(), started.elapsed(), fib))
    });
    let tables = tables.collect::<Result<_, Error>>()?;
    Ok(routes("IPv6", rib, tables, keys))
}

fn routes<F: Fib + 'static>(
    name: &'static str,
    rib: &Rib<F::Address>,
    tables: Vec<(&'static str, usize, Duration, F)>,
    keys: Keys,
) -> Runner {
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
            engines.push(Engine {
                name: format!("{layout} {}", simd.name()),
                bytes,
                build_s: took.as_secs_f64(),
            });
            arms.push((fibs.len(), simd));
        }
        fibs.push(Some(fib));
    }
    let workload = Routes {
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
    Runner::new((name, about), patterns, counts, engines, Box::new(workload))
}

struct Routes<F: Fib> {
    fibs: Vec<Option<F>>,
    /// A table's index and the instruction set.
    arms: Vec<(usize, Simd)>,
    batch: usize,
    /// For each pattern.
    keys: Vec<Vec<F::Octets>>,
    answers: Vec<Vec<u16>>,
    hops: Vec<u16>,
}

impl<F: Fib> Workload for Routes<F> {
    fn pass(&mut self, arm: usize, pattern: usize) -> Duration {
        let (at, simd) = self.arms[arm];
        let fib = self.fibs[at].take().map(|fib| fib.with(simd));
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
        // Another arm's answers must not remain.
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
) -> Result<Runner, Error> {
    let drawn = vec![
        generate::keys_within(rules, keys.count, keys.seed),
        generate::keys_anywhere(keys.count, keys.seed),
    ];
    let checked = (MAX_COMPARISONS / rules.len()).clamp(1, keys.count);
    let oracle = |all: &Vec<Key<A>>| {
        let first = |key| linear(rules, key).and_then(|rule| u32::try_from(rule).ok());
        let checked = all[..checked].iter();
        checked.map(|key| first(key).unwrap_or(NONE)).collect()
    };
    let started = Instant::now();
    let table = Classifier::build(rules, acl::Options::default()).map_err(Error::failed)?;
    let took = started.elapsed().as_secs_f64();
    let simds: Vec<Simd> = Simd::available().collect();
    let engine = |simd: &Simd| Engine {
        name: format!("hashcut {}", simd.name()),
        bytes: table.report().bytes,
        build_s: took,
    };
    let engines = simds.iter().map(engine).collect();
    let workload = Rules {
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
    Ok(Runner::new(
        (name, about),
        patterns,
        counts,
        engines,
        Box::new(workload),
    ))
}

struct Rules<A: acl::Address> {
    table: Option<Classifier<A>>,
    simds: Vec<Simd>,
    batch: usize,
    keys: Vec<Vec<Key<A>>>,
    /// The oracle's answers to the first keys.
    answers: Vec<Vec<u32>>,
    found: Vec<u32>,
}

impl<A: acl::Address> Workload for Rules<A> {
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
