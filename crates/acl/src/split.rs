//! Division by bounds in one lane, for what chosen bits do not divide: ranges and prefixes that nest.
//!
//! Each part keeps only what of a rule lies between its bounds, and nothing after a rule that fills
//! it. That is what ends endless nesting: of all rules that reach over a part, one remains.

use crate::address::Address;
use crate::cut::Bucket;
use crate::region::{Region, lane, set_lane};
use crate::table::FANOUT;

/// Shorter lists stay leaves.
pub(crate) const MIN_RULES: usize = 24;
/// Number of lanes that are tried.
const CANDIDATE_LANES: usize = 3;
/// Work of the search for a split, for each rule. Counting a rule's bits costs 1.
pub(crate) const SEARCH_COST: usize = 8;

/// Parts of a bucket between bounds of a lane.
pub(crate) struct Division {
    pub(crate) lane: usize,
    /// The starts of the parts, ascending.
    pub(crate) starts: Vec<u16>,
    /// Rules of each part, and of all of them.
    pub(crate) sizes: Vec<usize>,
    pub(crate) total: usize,
}

impl Division {
    /// First and last value of a part.
    pub(crate) fn range(&self, part: usize) -> (u16, u16) {
        let next = self.starts.get(part + 1);
        (self.starts[part], next.map_or(u16::MAX, |next| next - 1))
    }

    /// The division of the lane that divides best, if any does. With `shadows`, a rule that fills a part ends it.
    pub(crate) fn best<A: Address>(bucket: &Bucket<'_, A>, shadows: bool) -> Option<Self> {
        let lanes = candidate_lanes(bucket).into_iter();
        let divisions =
            lanes.filter_map(|at| Some(Self::of(bucket, at, &ends(bucket, at)?, shadows)));
        divisions.min_by_key(Self::mean)
    }

    /// Divides so that about as many ends of ranges fall into each part.
    fn of<A: Address>(bucket: &Bucket<'_, A>, at: usize, ends: &[u16], shadows: bool) -> Self {
        let mut starts = vec![0];
        for number in 0..FANOUT - 1 {
            let end = ends[number * ends.len() / (FANOUT - 1)];
            if starts.last() != Some(&end) {
                starts.push(end);
            }
        }
        let mut division = Self {
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
                if shadows && range.fills && range.low <= low && range.high >= high {
                    break;
                }
            }
            division.total += size;
            division.sizes.push(size);
        }
        division
    }

    pub(crate) fn mean(&self) -> usize {
        self.total / self.sizes.len()
    }

    /// The pieces of the rules that lie in a part, up to one that fills it.
    pub(crate) fn cut_out<A: Address>(
        &self,
        bucket: &Bucket<'_, A>,
        part: usize,
    ) -> Vec<Region<A>> {
        let (low, high) = self.range(part);
        let regions = bucket.list.iter().map(|&i| &bucket.regions[i as usize]);
        let clipped = regions.filter_map(|region| region.clipped(self.lane, low, high));
        clipped.take(self.sizes[part]).collect()
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

/// Moves the bounds of a lane closer together.
pub(crate) fn clip<A: Address>(bounds: &mut (A::Words, A::Words), at: usize, low: u16, high: u16) {
    let low = low.max(lane(bounds.0.as_ref(), at));
    let high = high.min(lane(bounds.1.as_ref(), at));
    set_lane(bounds.0.as_mut(), at, low);
    set_lane(bounds.1.as_mut(), at, high);
}
