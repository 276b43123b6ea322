//! From rules to a table: regions, roots, entries. A few shapes are built and timed on packets made
//! from the rules, and the fastest is kept.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;

use crate::Simd;
use crate::address::Address;
use crate::build_budget::{Allowance, BuildBudget, Shares};
use crate::cut::{Bucket, Cutter, filter_of};
use crate::error::Error;
use crate::lookup;
use crate::plan::{Cell, Parameters, plan, root_bits, slot};
use crate::region::{Region, everything};
use crate::rule::Rule;
use crate::sample::{Sample, Samples, draw};
use crate::table::{LINE_MASK, Map, Root, Table};

/// Options of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time in which more than one shape may be tried; with none, the first is taken.
    pub tuning: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tuning: Duration::from_millis(400),
        }
    }
}

/// The result of a build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BuildReport {
    /// Reasons why lookups are slow, in words. Empty for ordinary lists.
    pub warnings: Vec<String>,
    /// The size of the structure.
    pub bytes: usize,
    pub seconds: f64,
    /// Hash tables.
    pub roots: usize,
    /// Rules in all leaves together; a rule in two leaves counts twice.
    pub copies: usize,
    /// Rules in the longest leaf.
    pub longest: usize,
    /// Rules that dividing has looked at, each time one: what the time goes with.
    pub work: usize,
}

/// Number of packets that shapes are timed on.
const TUNING_PACKETS: usize = 16 << 10;
/// Shapes, the usually best first.
const SHAPES: [Parameters; 5] = [
    shape(6, 27.0, 0.3),
    shape(6, 8.0, 0.3),
    shape(8, 3.5, 0.0),
    shape(6, 8.0, 0.0),
    shape(6, 27.0, 1.0),
];

const fn shape(leaf: usize, probe: f64, foreign: f64) -> Parameters {
    Parameters {
        leaf,
        probe,
        foreign,
    }
}

/// Number of foreign packets by which cuts on the way to the widest rules are chosen.
const FOREIGN_PACKETS: u32 = 256;

/// Number of packets of each sort that maps are tried with, and the share of them that may pass a map.
const MAP_SAMPLES: usize = 1024;
const MAX_MAP_HITS: f64 = 0.6;

/// A leaf with more rules than this is worth a warning: it is read from its first line on.
const LONG_LEAF: usize = 128;

/// Whether a table can hold these rules, without making one.
///
/// # Errors
/// More boxes than references can name.
pub fn fits<A: Address>(rules: &[Rule<A>]) -> Result<(), Error> {
    let most = LINE_MASK as usize / 64;
    let boxes = rules.iter().map(Region::count).sum();
    if boxes > most {
        return Err(Error::TooMany { boxes, most });
    }
    Ok(())
}

/// The table of rules with their orders, which ascend. With `shadows`, rules that never come first are
/// left out where that is seen: then no rule can be taken away later.
///
/// # Errors
/// More rules than references can name, or no memory.
pub(crate) fn build<A: Address>(
    rules: &[Rule<A>],
    orders: impl Iterator<Item = u32>,
    options: Options,
    shadows: bool,
) -> Result<(Table<A>, BuildReport), Error> {
    let started = Instant::now();
    fits(rules)?;
    let mut regions = Vec::with_capacity(rules.len());
    for (rule, order) in rules.iter().zip(orders) {
        Region::of_rule(rule, order, &mut regions);
    }
    if shadows {
        remove_duplicates(&mut regions);
    }
    if regions.is_empty() {
        return Ok((Table::reserve(0, 0)?, BuildReport::default()));
    }
    let samples = draw(&regions, TUNING_PACKETS);
    let mut built = Vec::new();
    for (tried, shape) in (0..).zip(SHAPES) {
        let spent = started.elapsed();
        if tried > 0 && spent * (tried + 1) / tried > options.tuning {
            break;
        }
        built.push(fill(
            &regions,
            &samples,
            &plan(&regions, &samples, shape),
            shape,
            shadows,
        )?);
    }
    let (table, budget) = built.swap_remove(fastest(&built, &samples));
    let report = BuildReport {
        warnings: warnings(&budget),
        bytes: table.bytes(),
        seconds: started.elapsed().as_secs_f64(),
        roots: table.roots.len(),
        copies: budget.written,
        longest: budget.longest,
        work: budget.work,
    };
    Ok((table, report))
}

/// Removes regions that equal an earlier one: they never come first.
fn remove_duplicates<A: Address>(regions: &mut Vec<Region<A>>) {
    let hasher = FixedState::default();
    let mut firsts: HashMap<u64, Region<A>, FixedState> = HashMap::default();
    regions.retain(|region| {
        let hash = hasher.hash_one((region.low.as_ref(), region.high.as_ref()));
        let first = firsts.entry(hash).or_insert(*region);
        first.order == region.order || (first.low, first.high) != (region.low, region.high)
    });
}

fn warnings(budget: &BuildBudget) -> Vec<String> {
    if budget.longest <= LONG_LEAF {
        return Vec::new();
    }
    vec![format!(
        "{} rules cannot be distinguished within the copies allowed: packets that fall among them are \
         compared with one after the other; put the more specific rules under distinct prefixes or ports",
        budget.longest
    )]
}

/// The budget of dividing, which bounds time and memory for any rules: prefixes nest 32 deep in IPv4, 128 deep in IPv6. A small list may use more for each rule.
fn allowance<A: Address>(rules: usize) -> Allowance {
    let (few, many) = if A::BITS == 32 { (64, 4) } else { (512, 4) };
    Allowance {
        work: (2048 * rules + (1 << 18)).min(256 * rules + (1 << 27)),
        // Under way; leaves end up with far fewer.
        copies: (few * rules + (1 << 16)).min(many * rules + (1 << 22)),
    }
}

/// A root whose entries are still empty, and its members by the entry that they belong to.
struct RootLayout<'a> {
    cell: &'a Cell,
    bits: u8,
    /// Its first entry.
    base: usize,
    /// Their hashes and indices.
    members: Vec<(u32, u32)>,
}

impl<'a> RootLayout<'a> {
    fn of<A: Address>(
        regions: &[Region<A>],
        cell: &'a Cell,
        cutter: &mut Cutter<'_, A>,
    ) -> Result<Self, Error> {
        let bits = root_bits(cell.members.len(), cell.lengths);
        // Cache lines of eight entries.
        let base = cutter.table.entries.extend((1usize << bits).max(8));
        let base = base.ok_or_else(|| cutter.full())?;
        let hash = |index: u32| {
            let region = &regions[index as usize];
            A::mix(region.source, region.destination, cell.lengths)
        };
        let mut members: Vec<(u32, u32)> = cell.members.iter().map(|&m| (hash(m), m)).collect();
        members.sort_unstable_by_key(|&(hash, member)| (slot(hash, bits), member));
        Ok(Self {
            cell,
            bits,
            base,
            members,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "entries are fewer than 2^32"
    )]
    fn root<A: Address>(&self, regions: &[Region<A>], samples: &Samples<A>) -> Root {
        Root {
            lengths: self.cell.lengths,
            bits: self.bits,
            base: self.base as u32,
            best: regions[self.cell.best as usize].order,
            map: map(regions, self.cell, samples),
        }
    }

    /// The runs of each entry that has any.
    fn runs(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        let same = |a: &(u32, u32), b: &(u32, u32)| slot(a.0, self.bits) == slot(b.0, self.bits);
        self.members.chunk_by(same)
    }
}

/// Builds the roots of a plan.
fn fill<A: Address>(
    regions: &[Region<A>],
    samples: &Samples<A>,
    cells: &[Cell],
    shape: Parameters,
    shadows: bool,
) -> Result<(Table<A>, BuildBudget), Error> {
    let highest = regions.last().map_or(0, |region| region.order);
    let mut table = Table::reserve(regions.len(), highest)?;
    let allowance = allowance::<A>(regions.len());
    let budget = BuildBudget::new(allowance, 8 * regions.len() + (1 << 21));
    let passing = samples.foreign.iter().take(FOREIGN_PACKETS as usize);
    let passing = passing.map(|sample| sample.key.words()).collect();
    let mut cutter = Cutter::new(&mut table, shape.leaf, passing, budget);
    cutter.shadows = shadows;
    let layout = cells
        .iter()
        .map(|cell| RootLayout::of(regions, cell, &mut cutter));
    let layout: Vec<_> = layout.collect::<Result<_, _>>()?;
    let runs = layout
        .iter()
        .flat_map(|layout| layout.runs().map(move |run| (layout, run)));
    let mut runs: Vec<_> = runs.collect();
    runs.sort_by_key(|(_, run)| run.len());
    let mut shares = Shares::among(&cutter.build_budget, runs.iter().map(|(_, run)| run.len()));
    for (layout, run) in runs {
        shares.next(&mut cutter.build_budget, run.len());
        root_entry(regions, layout, run, &mut cutter)?;
    }
    let budget = std::mem::take(&mut cutter.build_budget);
    let roots = layout.iter().map(|layout| layout.root(regions, samples));
    table.roots = roots.collect();
    table.roots.sort_by_key(|root| root.best);
    Ok((table, budget))
}

/// The entry of a root for the members that share it.
fn root_entry<A: Address>(
    regions: &[Region<A>],
    layout: &RootLayout<'_>,
    run: &[(u32, u32)],
    cutter: &mut Cutter<'_, A>,
) -> Result<(), Error> {
    let RootLayout {
        cell, bits, base, ..
    } = *layout;
    // Few rules may be copied more often: it costs little memory and they are often the widest.
    let copies = (0.5 * regions.len() as f64 / cell.members.len() as f64).clamp(4.0, 64.0);
    let passing: Vec<u32> = (0..FOREIGN_PACKETS).collect();
    let list: Vec<u32> = run.iter().map(|&(_, member)| member).collect();
    let foreign = foreign_share(list.len(), regions.len(), bits, cell.lengths);
    let passage = if foreign > 0.5 { 64.0 } else { 0.0 };
    let bucket = Bucket {
        regions,
        list: &list,
        bounds: everything::<A>(),
        budget: list.len() as f64 * copies.max(passage) + 16.0,
        foreign,
        passing: &passing,
        depth: 0,
    };
    let made = cutter.entry(&bucket, filter_of(run.iter().map(|&(hash, _)| hash)))?;
    cutter.table.entries.as_mut_slice()[base + slot(run[0].0, bits)] = made;
    Ok(())
}

/// A map of a root's hashes, if it keeps enough of the packets out that come to the root.
fn map<A: Address>(regions: &[Region<A>], cell: &Cell, samples: &Samples<A>) -> Option<Box<Map>> {
    let hash = |source, destination| A::mix(source, destination, cell.lengths);
    let members = cell.members.iter().map(|&index| &regions[index as usize]);
    let map = Map::of(members.map(|region| hash(region.source, region.destination)));
    let passing = |samples: &[Sample<A>]| {
        let come = samples.iter().take(MAP_SAMPLES);
        let come = come.filter(|sample| sample.rank >= cell.best);
        let (mut all, mut pass) = (0, 0);
        for sample in come {
            all += 1;
            pass += u32::from(map.contains(hash(sample.source, sample.destination)));
        }
        f64::from(pass) / f64::from(all.max(1))
    };
    let share = 2.0 * passing(&samples.within) + passing(&samples.foreign);
    (share < 3.0 * MAX_MAP_HITS).then(|| Box::new(map))
}

/// [`Bucket::foreign`] below an entry of a root, if a packet from anywhere counts for half of one
/// drawn from a rule.
fn foreign_share(members: usize, rules: usize, bits: u8, lengths: (u8, u8)) -> f64 {
    // The filter of an entry tells eight values more apart.
    let told_apart = (bits + 3).min(lengths.0.saturating_add(lengths.1));
    let foreign = 0.5 * (-f64::from(told_apart)).exp2();
    let within = members as f64 / rules as f64;
    foreign / (within + foreign)
}

/// The table that classifies the samples in the least time: each is timed in turn, several times.
/// Two packets drawn from rules count as much as three from anywhere, in the logarithm of the time.
fn fastest<A: Address>(built: &[(Table<A>, BuildBudget)], samples: &Samples<A>) -> usize {
    if built.len() < 2 {
        return 0;
    }
    let keys = |samples: &[Sample<A>]| samples.iter().map(|sample| sample.key).collect();
    let sorts: [Vec<_>; 2] = [keys(&samples.within), keys(&samples.foreign)];
    let mut found = vec![0; TUNING_PACKETS];
    let mut least = vec![[f64::INFINITY; 2]; built.len()];
    for _ in 0..5 {
        for ((table, _), least) in built.iter().zip(&mut least) {
            for (keys, least) in sorts.iter().zip(least) {
                let started = Instant::now();
                lookup::classify(table, Simd::widest(), keys, &mut found);
                *least = started.elapsed().as_secs_f64().min(*least);
            }
        }
    }
    let score = |&at: &usize| 1.5 * least[at][0].ln() + least[at][1].ln();
    let best = (0..built.len()).min_by(|a, b| score(a).total_cmp(&score(b)));
    best.unwrap_or(0)
}
