//! Decides which pairs of prefix lengths become roots.
//!
//! Rules start in the cells of a lattice of prefix lengths. The two cells whose union saves most are
//! united, until none saves. Costs are those of sample packets: a probe for each root that can still
//! beat the packet's match, and what the bucket costs if its best rule can.

use crate::address::Address;
use crate::region::Region;
use crate::sample::{Sample, Samples};
use crate::table::filter;

/// Packets of each sort that the costs of merges are computed from.
const COST_SAMPLES: usize = 1024;

/// The parameters of a table's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// Rules in a leaf before a cut is tried.
    pub(crate) leaf: usize,
    /// The cost of a probe of a root. A line costs 9.
    pub(crate) probe: f64,
    /// The weight of the mean foreign packet. The mean packet drawn from a rule has weight 1.
    pub(crate) foreign: f64,
}

const LINE: f64 = 9.0;
const LEAF: f64 = 9.0;
const NODE: f64 = 20.0;

/// Rules that share a root.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The shortest prefixes in it.
    pub(crate) lengths: (u8, u8),
    /// The first of the members.
    pub(crate) best: u32,
    /// Indices of regions, ascending.
    pub(crate) members: Vec<u32>,
    cost: f64,
}

/// log2 of a root's entries: at least two for a rule, unless its prefixes have fewer values.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm")]
pub(crate) fn root_bits(rules: usize, lengths: (u8, u8)) -> u8 {
    let bits = (2 * rules).next_power_of_two().trailing_zeros() as u8;
    bits.min(lengths.0.saturating_add(lengths.1)).min(26)
}

/// The entry that a hash belongs to.
#[inline(always)]
pub(crate) fn slot(hash: u32, bits: u8) -> usize {
    hash.checked_shr(32 - u32::from(bits)).unwrap_or(0) as usize
}

/// The inputs of the cost model for a bucket: its rules, and those with (almost) no bits beyond the
/// root's, of source and of destination, which no address bit separates.
#[derive(Clone, Copy)]
struct Bucket {
    rules: u16,
    wide: [u16; 2],
    best: u32,
    filter: u32,
}

struct Planner<'a, A: Address> {
    regions: &'a [Region<A>],
    samples: &'a Samples<A>,
    parameters: Parameters,
    buckets: Vec<Bucket>,
}

/// Divides the regions, which ascend by order, among roots.
pub(crate) fn plan<A: Address>(
    regions: &[Region<A>],
    samples: &Samples<A>,
    parameters: Parameters,
) -> Vec<Cell> {
    let mut planner = Planner {
        regions,
        samples,
        parameters,
        buckets: Vec::new(),
    };
    let mut cells = lattice(regions);
    for cell in &mut cells {
        cell.cost = planner.cost(cell, None);
    }
    planner.merge(&mut cells);
    cells.retain(|cell| !cell.members.is_empty());
    for cell in &mut cells {
        cell.members.sort_unstable();
    }
    cells
}

/// Cells by steps of prefix length.
fn lattice<A: Address>(regions: &[Region<A>]) -> Vec<Cell> {
    const STEPS4: [u8; 9] = [0, 8, 12, 16, 20, 24, 28, 30, 32];
    const STEPS6: [u8; 9] = [0, 16, 24, 32, 40, 48, 56, 64, 128];
    let steps = if A::BITS == 32 { STEPS4 } else { STEPS6 };
    let level = |length| steps.iter().filter(|&&step| step <= length).count() - 1;
    let mut places = [None; 81];
    let mut cells: Vec<Cell> = Vec::new();
    for (index, region) in (0..).zip(regions) {
        let place = &mut places[level(region.lengths.0) * 9 + level(region.lengths.1)];
        let at = *place.get_or_insert_with(|| {
            cells.push(Cell {
                lengths: region.lengths,
                best: index,
                members: Vec::new(),
                cost: 0.0,
            });
            cells.len() - 1
        });
        let cell = &mut cells[at];
        cell.lengths = least(cell.lengths, region.lengths);
        cell.members.push(index);
    }
    cells
}

fn least(a: (u8, u8), b: (u8, u8)) -> (u8, u8) {
    (a.0.min(b.0), a.1.min(b.1))
}

impl<A: Address> Planner<'_, A> {
    /// Unites cells while it saves. A gain computed before one side grew is computed again only when
    /// it comes first: most shrink.
    fn merge(&mut self, cells: &mut [Cell]) {
        let count = cells.len();
        let place = |i: usize, j: usize| i.max(j) * count + i.min(j);
        let mut gains = vec![f64::NEG_INFINITY; count * count];
        let mut stale = vec![false; count * count];
        for i in 0..count {
            for j in 0..i {
                gains[place(i, j)] = self.gain(&cells[i], &cells[j]);
            }
        }
        loop {
            let best = (0..gains.len()).max_by(|&a, &b| gains[a].total_cmp(&gains[b]));
            let Some(at) = best.filter(|&at| gains[at] > 0.0) else {
                return;
            };
            let (i, j) = (at / count, at % count);
            if std::mem::take(&mut stale[at]) {
                gains[at] = self.gain(&cells[i], &cells[j]);
                continue;
            }
            let gone = std::mem::take(&mut cells[i].members);
            cells[j].cost += cells[i].cost - gains[at];
            cells[j].lengths = least(cells[i].lengths, cells[j].lengths);
            cells[j].best = cells[i].best.min(cells[j].best);
            cells[j].members.extend(gone);
            for k in (0..count).filter(|&k| k != i) {
                let old = std::mem::replace(&mut gains[place(i, k)], f64::NEG_INFINITY);
                if k != j && !cells[k].members.is_empty() {
                    let kept = &mut gains[place(j, k)];
                    *kept = kept.max(old);
                    stale[place(j, k)] = true;
                }
            }
        }
    }

    fn gain(&mut self, a: &Cell, b: &Cell) -> f64 {
        a.cost + b.cost - self.cost(a, Some(b))
    }

    /// Mean costs of the samples at the root that the cells would share.
    #[expect(clippy::cast_precision_loss, reason = "counts of samples")]
    fn cost(&mut self, a: &Cell, b: Option<&Cell>) -> f64 {
        let lengths = b.map_or(a.lengths, |b| least(a.lengths, b.lengths));
        let best = b.map_or(a.best, |b| a.best.min(b.best));
        let cells = || std::iter::once(a).chain(b);
        let bits = root_bits(cells().map(|c| c.members.len()).sum(), lengths);
        self.buckets.clear();
        let empty = Bucket {
            rules: 0,
            wide: [0; 2],
            best: u32::MAX,
            filter: 0,
        };
        self.buckets.resize(1 << bits, empty);
        for &index in cells().flat_map(|cell| &cell.members) {
            let region = &self.regions[index as usize];
            let hash = A::mix(region.source, region.destination, lengths);
            let bucket = &mut self.buckets[slot(hash, bits)];
            if bucket.rules < u16::MAX {
                bucket.rules += 1;
                bucket.wide[0] += u16::from(region.lengths.0 < lengths.0.saturating_add(3));
                bucket.wide[1] += u16::from(region.lengths.1 < lengths.1.saturating_add(3));
                bucket.best = bucket.best.min(index);
                bucket.filter |= filter(hash);
            }
        }
        let mean = |samples: &[Sample<A>]| {
            let samples = &samples[..samples.len().min(COST_SAMPLES)];
            let mut total = 0.0;
            for sample in samples.iter().filter(|sample| best <= sample.rank) {
                let hash = A::mix(sample.source, sample.destination, lengths);
                let bucket = self.buckets[slot(hash, bits)];
                total += self.parameters.probe;
                if bucket.best <= sample.rank && bucket.filter & filter(hash) != 0 {
                    total += self.bucket_cost(bucket);
                }
            }
            total / samples.len().max(1) as f64
        };
        let foreign = if self.parameters.foreign > 0.0 {
            self.parameters.foreign * mean(&self.samples.foreign)
        } else {
            0.0
        };
        mean(&self.samples.within) + foreign
    }

    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn bucket_cost(&self, bucket: Bucket) -> f64 {
        let leaf = self.parameters.leaf;
        let rules = usize::from(bucket.rules);
        if rules <= leaf {
            return LEAF + LINE * (rules.div_ceil(2) + 1) as f64 * 0.5;
        }
        let levels = f64::from((rules / leaf).ilog2());
        let wide = f64::from(bucket.wide[0].min(bucket.wide[1]));
        LEAF + NODE * (1.0 + levels / 8.0) + LINE * (leaf as f64 * 0.25 + wide / 16.0 + 1.0)
    }
}
