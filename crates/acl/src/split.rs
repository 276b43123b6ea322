//! Division by bounds in one lane, for what chosen bits do not divide: ranges and prefixes that nest.
//!
//! Each part keeps only what of a rule lies between its bounds, and nothing after a rule that fills
//! it. That is what ends endless nesting: of all rules that reach over a part, one remains.

use crate::address::Address;
use crate::cut::{Bucket, Cutter};
use crate::error::Error;
use crate::region::{Region, lane, set_lane};
use crate::table::{BOUND_WORDS, FANOUT, Node, kind};

/// Lists that are shorter stay leaves.
const SHORTEST: usize = 24;

/// Parts of a bucket between bounds of a lane.
struct Division<A: Address> {
    lane: usize,
    /// Where parts begin, ascending.
    starts: Vec<u16>,
    parts: Vec<Vec<Region<A>>>,
    /// Rules in all parts, and the mean of a part.
    total: usize,
}

impl<A: Address> Cutter<'_, A> {
    /// A node by bounds of the lane that divides best; none when none does, or copies are used up.
    pub(crate) fn split(&mut self, bucket: &Bucket<'_, A>) -> Result<Option<u32>, Error> {
        if bucket.list.len() < SHORTEST {
            return Ok(None);
        }
        let best = (0..A::ALL_LANES)
            .filter_map(|at| divide(bucket, at))
            .min_by_key(|division| division.total * (FANOUT + 1) / division.parts.len());
        let Some(division) = best else {
            return Ok(None);
        };
        let rules = bucket.list.len();
        let copies = division.total.saturating_sub(rules);
        let mean = division.total / division.parts.len();
        if copies > self.effort.spare || mean * 8 > rules * 7 {
            return Ok(None);
        }
        self.effort.spare -= copies;
        self.write_split(bucket, &division).map(Some)
    }

    fn write_split(
        &mut self,
        bucket: &Bucket<'_, A>,
        division: &Division<A>,
    ) -> Result<u32, Error> {
        let base = self.table.entries.extend(BOUND_WORDS + FANOUT);
        let base = base.ok_or_else(|| self.full())?;
        let mut last = 0;
        for part in 0..FANOUT {
            if let Some(regions) = division.parts.get(part) {
                let list: Vec<u32> = (0..regions.len() as u32).collect();
                last = self.entry(
                    &Bucket {
                        regions,
                        list: &list,
                        bounds: part_bounds(bucket, division, part),
                        budget: regions.len() as f64 * 2.0,
                        depth: bucket.depth + 1,
                    },
                    u8::MAX,
                )?;
            }
            let start = *division.starts.get(part).unwrap_or(&u16::MAX);
            let entries = &mut self.table.entries.as_mut_slice()[base..];
            entries[part / 4] |= u64::from(start) << (16 * (part % 4));
            entries[BOUND_WORDS + part] = last;
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

/// Values of the keys in a part.
fn part_bounds<A: Address>(
    bucket: &Bucket<'_, A>,
    division: &Division<A>,
    part: usize,
) -> (A::Words, A::Words) {
    let mut bounds = bucket.bounds;
    let low = lane(bounds.0.as_ref(), division.lane).max(division.starts[part]);
    set_lane(bounds.0.as_mut(), division.lane, low);
    if let Some(next) = division.starts.get(part + 1) {
        set_lane(bounds.1.as_mut(), division.lane, next - 1);
    }
    bounds
}

/// Divides at the ends of the rules' ranges, so that about as many ends fall into each part.
fn divide<A: Address>(bucket: &Bucket<'_, A>, at: usize) -> Option<Division<A>> {
    let regions = || bucket.list.iter().map(|&i| &bucket.regions[i as usize]);
    let low = lane(bucket.bounds.0.as_ref(), at);
    let high = lane(bucket.bounds.1.as_ref(), at);
    let mut ends: Vec<u16> = regions()
        .flat_map(|region| {
            let start = lane(region.low.as_ref(), at);
            let end = lane(region.high.as_ref(), at);
            [Some(start), end.checked_add(1)]
        })
        .flatten()
        .filter(|&end| end > low && end <= high)
        .collect();
    if ends.is_empty() {
        return None;
    }
    ends.sort_unstable();
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
        parts: Vec::new(),
        total: 0,
    };
    for part in 0..division.starts.len() {
        let bounds = part_bounds(bucket, &division, part);
        let (low, high) = (lane(bounds.0.as_ref(), at), lane(bounds.1.as_ref(), at));
        let mut clipped = Vec::new();
        for region in regions().filter_map(|region| region.clipped(at, low, high)) {
            clipped.push(region);
            if region.contains(&bounds) {
                break;
            }
        }
        division.total += clipped.len();
        division.parts.push(clipped);
    }
    Some(division)
}
