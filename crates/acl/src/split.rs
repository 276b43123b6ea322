//! Division by bounds in one lane, for what chosen bits do not divide: ranges and prefixes that nest.
//!
//! Each part keeps only what of a rule lies between its bounds, and nothing after a rule that fills
//! it. That is what ends endless nesting: of all rules that reach over a part, one remains.

#![expect(
    clippy::cast_possible_truncation,
    reason = "indices into arrays shorter than 2^32, numbers of lanes"
)]

use crate::address::Address;
use crate::build_budget::Shares;
use crate::cut::{Bucket, Cutter};
use crate::error::Error;
use crate::region::{Region, lane, set_lane};
use crate::table::{BOUND_WORDS, FANOUT, Node, kind};

/// Shorter lists stay leaves.
const MIN_RULES: usize = 24;
/// Number of lanes that are tried.
const CANDIDATE_LANES: usize = 3;
/// Work of the search for a split, for each rule. Counting a rule's bits costs 1.
const SEARCH_COST: usize = 8;

/// Parts of a bucket between bounds of a lane.
struct Division {
    lane: usize,
    /// The starts of the parts, ascending.
    starts: Vec<u16>,
    /// Rules of each part, and of all of them.
    sizes: Vec<usize>,
    total: usize,
}

impl Division {
    /// First and last value of a part.
    fn range(&self, part: usize) -> (u16, u16) {
        let next = self.starts.get(part + 1);
        (self.starts[part], next.map_or(u16::MAX, |next| next - 1))
    }

    fn mean(&self) -> usize {
        self.total / self.sizes.len()
    }
}

impl<A: Address> Cutter<'_, A> {
    /// A node by bounds of the lane that divides best; none when none does, or copies are used up.
    pub(crate) fn split(&mut self, bucket: &Bucket<'_, A>) -> Result<Option<u32>, Error> {
        let rules = bucket.list.len();
        if rules < MIN_RULES || !self.build_budget.try_spend(SEARCH_COST * rules, 0) {
            return Ok(None);
        }
        let divisions = candidate_lanes(bucket).into_iter();
        let divisions =
            divisions.filter_map(|at| Some(self.divide(bucket, at, &ends(bucket, at)?)));
        let Some(division) = divisions.min_by_key(Division::mean) else {
            return Ok(None);
        };
        let copies = division.total.saturating_sub(rules);
        if division.mean() * 8 > rules * 7 || !self.build_budget.try_copy(copies) {
            return Ok(None);
        }
        self.write_split(bucket, &division).map(Some)
    }

    /// Divides so that about as many ends of ranges fall into each part.
    fn divide(&self, bucket: &Bucket<'_, A>, at: usize, ends: &[u16]) -> Division {
        let mut starts = vec![0];
        for number in 0..FANOUT - 1 {
            let end = ends[number * ends.len() / (FANOUT - 1)];
            if starts.last() != Some(&end) {
                starts.push(end);
            }
        }
        let mut division = Division {
            lane: at,
            starts,
            sizes: Vec::new(),
            total: 0,
        };
        let ranges: Vec<_> = bucket
            .list
            .iter()
            .map(|&index| lane_range(bucket, index, at))
            .collect();
        for part in 0..division.starts.len() {
            let (low, high) = division.range(part);
            let high = high.min(lane(bucket.bounds.1.as_ref(), at));
            let low = low.max(lane(bucket.bounds.0.as_ref(), at));
            let mut size = 0;
            for range in ranges
                .iter()
                .filter(|range| range.low <= high && range.high >= low)
            {
                size += 1;
                if self.shadows && range.fills && range.low <= low && range.high >= high {
                    break;
                }
            }
            division.total += size;
            division.sizes.push(size);
        }
        division
    }

    fn write_split(&mut self, bucket: &Bucket<'_, A>, division: &Division) -> Result<u32, Error> {
        let base = self.table.entries.extend(BOUND_WORDS + FANOUT);
        let base = base.ok_or_else(|| self.full())?;
        let mut shares = Shares::among(&self.build_budget, division.sizes.iter().copied());
        for part in Shares::order(division.sizes.iter().copied()) {
            shares.next(&mut self.build_budget, division.sizes[part]);
            let regions = cut_out(bucket, division, part);
            let list: Vec<u32> = (0..regions.len() as u32).collect();
            let mut bounds = bucket.bounds;
            let (low, high) = division.range(part);
            clip::<A>(&mut bounds, division.lane, low, high);
            let child = Bucket {
                regions: &regions,
                list: &list,
                bounds,
                budget: regions.len() as f64 * 2.0,
                foreign: 0.0,
                passing: &[],
                depth: bucket.depth + 1,
            };
            let checkpoint = self.build_budget.checkpoint();
            let made = self.entry(&child, u8::MAX)?;
            self.build_budget.refund(checkpoint, regions.len());
            self.table.entries.as_mut_slice()[base + BOUND_WORDS + part] = made;
        }
        shares.end(&mut self.build_budget);
        let entries = &mut self.table.entries.as_mut_slice()[base..];
        let parts = division.starts.len();
        for part in 0..FANOUT {
            let start = *division.starts.get(part).unwrap_or(&u16::MAX);
            entries[part / 4] |= u64::from(start) << (16 * (part % 4));
            entries[BOUND_WORDS + part] = entries[BOUND_WORDS + part.min(parts - 1)];
        }
        self.node(Node {
            masks: [0; 2],
            base: base as u32,
            kind: kind::SPLIT,
            words: [division.lane as u8, 0],
            shift: 0,
        })
    }
}

/// The lanes in which the rules' ranges end at the most places.
fn candidate_lanes<A: Address>(bucket: &Bucket<'_, A>) -> Vec<usize> {
    let places = |at: usize| {
        let mut ends = ends(bucket, at)?;
        ends.dedup();
        Some((ends.len(), at))
    };
    let mut lanes: Vec<_> = (0..A::ALL_LANES).filter_map(places).collect();
    lanes.sort_unstable();
    lanes
        .into_iter()
        .rev()
        .take(CANDIDATE_LANES)
        .map(|(_, at)| at)
        .collect()
}

/// The values between the bounds of a lane at which ranges begin, or have just ended; ascending, if any.
fn ends<A: Address>(bucket: &Bucket<'_, A>, at: usize) -> Option<Vec<u16>> {
    let low = lane(bucket.bounds.0.as_ref(), at);
    let high = lane(bucket.bounds.1.as_ref(), at);
    let mut ends = Vec::new();
    for &index in bucket.list {
        let region = &bucket.regions[index as usize];
        let start = lane(region.low.as_ref(), at);
        let end = lane(region.high.as_ref(), at).checked_add(1);
        let inside = |end: &u16| *end > low && *end <= high;
        ends.extend([Some(start), end].into_iter().flatten().filter(inside));
    }
    ends.sort_unstable();
    (!ends.is_empty()).then_some(ends)
}

/// A rule's range in one lane, and whether it fills the bounds in all others.
struct LaneRange {
    low: u16,
    high: u16,
    fills: bool,
}

fn lane_range<A: Address>(bucket: &Bucket<'_, A>, index: u32, at: usize) -> LaneRange {
    let region = &bucket.regions[index as usize];
    let (low, high) = (
        lane(region.low.as_ref(), at),
        lane(region.high.as_ref(), at),
    );
    let mut others = bucket.bounds;
    clip::<A>(&mut others, at, low, high);
    LaneRange {
        low,
        high,
        fills: region.contains(&others),
    }
}

/// The pieces of the rules that lie in a part, up to one that fills it.
fn cut_out<A: Address>(bucket: &Bucket<'_, A>, division: &Division, part: usize) -> Vec<Region<A>> {
    let (low, high) = division.range(part);
    let regions = bucket.list.iter().map(|&i| &bucket.regions[i as usize]);
    let clipped = regions.filter_map(|region| region.clipped(division.lane, low, high));
    clipped.take(division.sizes[part]).collect()
}

/// Moves the bounds of a lane closer together.
fn clip<A: Address>(bounds: &mut (A::Words, A::Words), at: usize, low: u16, high: u16) {
    let low = low.max(lane(bounds.0.as_ref(), at));
    let high = high.min(lane(bounds.1.as_ref(), at));
    set_lane(bounds.0.as_mut(), at, low);
    set_lane(bounds.1.as_mut(), at, high);
}
