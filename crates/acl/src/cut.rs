//! How a crowded bucket is divided: by chosen bits of the key while that pays, then by bounds in one
//! lane, and what neither divides becomes a leaf.

#![expect(
    clippy::cast_possible_truncation,
    reason = "indices into arrays shorter than 2^32, bits of a word"
)]

use crate::address::Address;
use crate::build_budget::{BuildBudget, Shares};
use crate::count::{Counts, MAX_KEY_BITS};
use crate::error::Error;
use crate::line::lines_of;
use crate::region::{Region, lane, set_lane, widened};
use crate::split::{Division, MIN_RULES, SEARCH_COST, clip};
use crate::table::{
    BOUND_WORDS, FANOUT, LINE_BITS, MAX_LEAF_LINES, NODE, Node, Table, entry, filter, kind,
};

/// Maximum number of bits that one node chooses.
const MAX_CHOSEN_BITS: usize = 10;
/// A bit is worth a level if at most this share of the expected bucket remains.
const MAX_REMAINING_SHARE: f64 = 0.97;
/// The expected number of rules in a bucket at which no more bits are chosen.
const TARGET_RULES: f64 = 3.0;
/// The same where most packets only pass through: one line, mostly.
const PASSAGE_TARGET_RULES: f64 = 1.2;
/// Copies of a rule that each further cut may make there.
const PASSAGE_COPIES: f64 = 3.0;
/// Rules in a leaf there: as many as one IPv4 line holds.
const PASSAGE_LEAF: usize = 2;
/// Maximum number of levels of nodes.
const MAX_DEPTH: usize = 48;

/// Builds entries of a table.
#[derive(Debug)]
pub(crate) struct Cutter<'a, A: Address> {
    pub(crate) table: &'a mut Table<A>,
    pub(crate) leaf: usize,
    /// Whether rules that can never come first are left out.
    pub(crate) shadows: bool,
    pub(crate) build_budget: BuildBudget,
    lines: Vec<A::Line>,
    counts: Box<Counts>,
    /// Packets from anywhere.
    packets: Vec<A::Words>,
    through: Box<Counts>,
}

/// Regions of a bucket by index, in order of priority, and the values that its keys can have.
#[derive(Debug)]
pub(crate) struct Bucket<'a, A: Address> {
    pub(crate) regions: &'a [Region<A>],
    pub(crate) list: &'a [u32],
    pub(crate) bounds: (A::Words, A::Words),
    /// Copies of rules that cuts may make.
    pub(crate) budget: f64,
    /// The share of packets from anywhere, beside those drawn from the rules, of all that come here.
    pub(crate) foreign: f64,
    /// Some of them, by their place in [`Cutter::packets`].
    pub(crate) passing: &'a [u32],
    pub(crate) depth: usize,
}

impl<A: Address> Bucket<'_, A> {
    /// Whether most packets only pass through, on their way to the widest rules.
    fn is_passage(&self) -> bool {
        self.foreign > 0.5 && !self.passing.is_empty()
    }
}

/// Lists of regions, one for each combination of the bits chosen so far, the share of packets drawn
/// from rules that each gets, and packets from anywhere.
#[derive(Debug, Default)]
struct Parts {
    items: Vec<u32>,
    ends: Vec<usize>,
    mass: Vec<f64>,
    passing: Vec<Vec<u32>>,
}

/// Bits, in the order of their choice, and what they make of a bucket.
#[derive(Debug)]
struct Choice {
    bits: Vec<usize>,
    parts: Parts,
    /// Rules that the mean packet meets.
    expected: f64,
    /// Rules in all parts.
    total: f64,
}

impl Parts {
    fn get(&self, part: usize) -> &[u32] {
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        &self.items[start..self.ends[part]]
    }

    /// [`Bucket::foreign`] of a part, if it is this for all of them.
    fn foreign(&self, part: usize, foreign: f64) -> f64 {
        let all: usize = self.passing.iter().map(Vec::len).sum();
        let within = (1.0 - foreign) * self.mass[part];
        let foreign = foreign * self.passing[part].len() as f64 / all.max(1) as f64;
        foreign / (within + foreign).max(f64::MIN_POSITIVE)
    }
}

impl<'a, A: Address> Cutter<'a, A> {
    pub(crate) fn new(
        table: &'a mut Table<A>,
        leaf: usize,
        packets: Vec<A::Words>,
        build_budget: BuildBudget,
    ) -> Self {
        Self {
            table,
            leaf,
            shadows: true,
            build_budget,
            lines: Vec::new(),
            counts: Box::new(Counts::new()),
            packets,
            through: Box::new(Counts::new()),
        }
    }

    /// The entry of a bucket; its filter bits are set by `hashes`.
    ///
    /// # Errors
    /// [`Error::Full`] when the table has no room left.
    pub(crate) fn entry(&mut self, bucket: &Bucket<'_, A>, filter: u8) -> Result<u64, Error> {
        let &Bucket { regions, list, .. } = bucket;
        self.build_budget.spend(list.len());
        let (list, bounds) = needed(regions, list, &bucket.bounds, self.shadows);
        let list = &list[..];
        let Some(&first) = list.first() else {
            return Ok(0);
        };
        let bucket = &Bucket {
            list,
            bounds,
            ..*bucket
        };
        let leaf = if bucket.is_passage() {
            PASSAGE_LEAF
        } else {
            self.leaf
        };
        let reference = if list.len() <= leaf || bucket.depth >= MAX_DEPTH {
            self.leaf(regions, list)?
        } else {
            self.inner(bucket)?
        };
        let best = regions[first as usize].order;
        Ok(entry(best, self.table.shift, filter, reference))
    }

    /// A node, if some division pays: a good cut, else a split, else whatever cut there is.
    fn inner(&mut self, bucket: &Bucket<'_, A>) -> Result<u32, Error> {
        if self.table.is_nearly_full() {
            return self.leaf(bucket.regions, bucket.list);
        }
        let choice = self.choose(bucket);
        if choice.expected * 2.0 > bucket.list.len() as f64
            && let Some(node) = self.split(bucket)?
        {
            return Ok(node);
        }
        if choice.bits.is_empty() {
            return self.leaf(bucket.regions, bucket.list);
        }
        self.cut(bucket, &choice)
    }

    /// Writes a leaf and refers to it.
    fn leaf(&mut self, regions: &[Region<A>], list: &[u32]) -> Result<u32, Error> {
        self.lines.clear();
        lines_of(list.iter().map(|&i| &regions[i as usize]), &mut self.lines);
        self.build_budget.written += list.len();
        self.build_budget.longest = self.build_budget.longest.max(list.len());
        let count = self.lines.len();
        let at = self.table.lines.extend(count).ok_or_else(|| self.full())?;
        self.table.lines.as_mut_slice()[at..].copy_from_slice(&self.lines);
        if count <= MAX_LEAF_LINES {
            return Ok(at as u32 | (count as u32) << LINE_BITS);
        }
        self.node(Node {
            masks: [count as u64, 0],
            base: at as u32,
            kind: kind::LONG,
            words: [0; 2],
            shift: 0,
        })
    }

    pub(crate) fn node(&mut self, node: Node) -> Result<u32, Error> {
        let at = self.table.nodes.extend(1).ok_or_else(|| self.full())?;
        self.table.nodes.as_mut_slice()[at] = node;
        Ok(at as u32 | NODE)
    }

    pub(crate) fn full(&self) -> Error {
        Error::Full {
            bytes: self.table.bytes(),
        }
    }

    /// A node by chosen bits.
    fn cut(&mut self, bucket: &Bucket<'_, A>, choice: &Choice) -> Result<u32, Error> {
        let Choice {
            bits: chosen,
            parts,
            total,
            ..
        } = choice;
        let mut words: Vec<usize> = chosen.iter().map(|bit| bit / 64).collect();
        words.sort_unstable();
        words.dedup();
        let first = words[0];
        let second = *words.get(1).unwrap_or(&if first == 0 { 1 } else { 0 });
        let (first, second) = (first.min(second), first.max(second));
        let mask = |word| {
            let bits = chosen.iter().filter(|&bit| bit / 64 == word);
            bits.fold(0u64, |mask, bit| mask | 1 << (bit % 64))
        };
        let masks = [mask(first), mask(second)];
        let children = 1 << chosen.len();
        let base = self.table.entries.extend(children);
        let base = base.ok_or_else(|| self.full())?;
        // Children are numbered by the chosen bits in ascending order; parts by the order of choice.
        let mut turns: Vec<_> = chosen.iter().copied().zip(0..).collect();
        turns.sort_unstable();
        let least = if bucket.is_passage() {
            PASSAGE_COPIES
        } else {
            0.0
        };
        let lengths = (0..children).map(|part| parts.get(part).len());
        let mut shares = Shares::among(&self.build_budget, lengths.clone());
        for part in Shares::order(lengths) {
            let list = parts.get(part);
            shares.next(&mut self.build_budget, list.len());
            let mut child = 0;
            let mut bounds = bucket.bounds;
            for (place, &(bit, turn)) in turns.iter().enumerate().rev() {
                let set = part >> turn & 1;
                child |= set << place;
                narrow::<A>(&mut bounds, bit, set == 1);
            }
            let share = list.len() as f64 / *total;
            let made = self.entry(
                &Bucket {
                    regions: bucket.regions,
                    list,
                    bounds,
                    budget: (bucket.budget * share).max(least * list.len() as f64),
                    foreign: parts.foreign(part, bucket.foreign),
                    passing: &parts.passing[part],
                    depth: bucket.depth + 1,
                },
                u8::MAX,
            )?;
            self.table.entries.as_mut_slice()[base + child] = made;
        }
        shares.end(&mut self.build_budget);
        self.node(Node {
            masks,
            base: base as u32,
            kind: kind::CUT,
            words: [first as u8, second as u8],
            shift: masks[0].count_ones() as u8,
        })
    }

    /// Greedily the bits that leave the fewest rules where packets land, while copies stay within
    /// the budget. Bits of at most two words.
    fn choose(&mut self, bucket: &Bucket<'_, A>) -> Choice {
        let &Bucket { regions, list, .. } = bucket;
        let mut parts = Parts {
            items: list.to_vec(),
            ends: vec![list.len()],
            mass: vec![1.0],
            passing: vec![if bucket.is_passage() {
                bucket.passing.to_vec()
            } else {
                Vec::new()
            }],
        };
        let mut next = Parts::default();
        let mut chosen: Vec<usize> = Vec::new();
        let mut expected = list.len() as f64;
        let mut total = expected;
        let (enough, room) = if bucket.is_passage() {
            (PASSAGE_TARGET_RULES, 64)
        } else {
            (TARGET_RULES, 4)
        };
        while chosen.len() < MAX_CHOSEN_BITS && 1 << chosen.len() < room * list.len() {
            let Some((bit, mean, sum)) = self.best_bit(bucket, &parts, &chosen) else {
                break;
            };
            if mean > MAX_REMAINING_SHARE * expected {
                break;
            }
            (expected, total) = (mean, sum);
            chosen.push(bit);
            divide(regions, &self.packets, &parts, bit, &mut next);
            std::mem::swap(&mut parts, &mut next);
            if expected <= enough {
                break;
            }
        }
        Choice {
            bits: chosen,
            parts,
            expected,
            total,
        }
    }

    /// The bit after which the mean packet meets the fewest rules; with it that mean and the rules
    /// in all parts together.
    fn best_bit(
        &mut self,
        bucket: &Bucket<'_, A>,
        parts: &Parts,
        chosen: &[usize],
    ) -> Option<(usize, f64, f64)> {
        if !self
            .build_budget
            .try_spend(parts.items.len(), parts.ends.len())
        {
            return None;
        }
        let bits = 64 * bucket.bounds.0.as_ref().len();
        let mut means = [0f32; MAX_KEY_BITS];
        let mut sums = [0f32; MAX_KEY_BITS];
        let all: usize = parts.passing.iter().map(Vec::len).sum();
        let foreign = if all == 0 { 0.0 } else { bucket.foreign as f32 };
        let within = 1.0 - foreign;
        let foreign = foreign / all.max(1) as f32;
        for part in 0..parts.ends.len() {
            let list = parts.get(part);
            if list.is_empty() {
                continue;
            }
            self.counts.count_rules(bucket.regions, list);
            let rules = list.len() as f32;
            let weight = within * parts.mass[part] as f32 / rules;
            let passing = &parts.passing[part];
            let passed = foreign * passing.len() as f32;
            self.through.count_packets::<A>(&self.packets, passing);
            for bit in 0..bits {
                let zeros = self.counts.zeros[bit] as f32;
                let ones = self.counts.ones[bit] as f32;
                let free = rules - zeros - ones;
                let half = free * 0.5;
                means[bit] +=
                    weight * ((zeros + half) * (zeros + free) + (ones + half) * (ones + free));
                let set = foreign * self.through.ones[bit] as f32;
                means[bit] += (passed - set) * (zeros + free) + set * (ones + free);

                sums[bit] += rules + free;
            }
        }
        let mut words = chosen.iter().map(|bit| bit / 64);
        let first = words.next();
        let second = words.find(|&word| Some(word) != first);
        let allowed = |bit: &usize| {
            f64::from(sums[*bit]) <= bucket.budget
                && !chosen.contains(bit)
                && (second.is_none() || [first, second].contains(&Some(bit / 64)))
        };
        let best = (0..bits)
            .filter(allowed)
            .min_by(|&a, &b| means[a].total_cmp(&means[b]))?;
        Some((best, f64::from(means[best]), f64::from(sums[best])))
    }

    /// A node by bounds of the lane that divides best; none when none does, or copies are used up.
    fn split(&mut self, bucket: &Bucket<'_, A>) -> Result<Option<u32>, Error> {
        let rules = bucket.list.len();
        if rules < MIN_RULES || !self.build_budget.try_spend(SEARCH_COST * rules, 0) {
            return Ok(None);
        }
        let Some(division) = Division::best(bucket, self.shadows) else {
            return Ok(None);
        };
        let copies = division.total.saturating_sub(rules);
        if division.mean() * 8 > rules * 7 || !self.build_budget.try_copy(copies) {
            return Ok(None);
        }
        self.write_split(bucket, &division).map(Some)
    }

    fn write_split(&mut self, bucket: &Bucket<'_, A>, division: &Division) -> Result<u32, Error> {
        let base = self.table.entries.extend(BOUND_WORDS + FANOUT);
        let base = base.ok_or_else(|| self.full())?;
        let mut shares = Shares::among(&self.build_budget, division.sizes.iter().copied());
        for part in Shares::order(division.sizes.iter().copied()) {
            shares.next(&mut self.build_budget, division.sizes[part]);
            let regions = division.cut_out(bucket, part);
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

/// The rules that some key between the bounds can match first, and the bounds of what they match:
/// none that lies elsewhere, and, with `shadows`, none after one that contains all that follow.
fn needed<A: Address>(
    regions: &[Region<A>],
    list: &[u32],
    bounds: &(A::Words, A::Words),
    shadows: bool,
) -> (Vec<u32>, (A::Words, A::Words)) {
    let region = |index: &u32| &regions[*index as usize];
    let mut list: Vec<u32> = list.to_vec();
    list.retain(|index| region(index).meets(bounds));
    let mut last = list.len();
    let mut hull: Option<(A::Words, A::Words)> = None;
    for (at, region) in list.iter().map(region).enumerate().rev() {
        let met = region.between(bounds);
        if shadows && hull.is_some_and(|hull| region.contains(&hull)) {
            last = at + 1;
            hull = Some(met);
        } else {
            hull = Some(hull.map_or(met, |hull| widened::<A>(&hull, &met)));
        }
    }
    list.truncate(last);
    (list, hull.unwrap_or(*bounds))
}

/// Divides each part by a bit: zeros stay at their number, ones go to the upper half. Rules that do
/// not fix the bit go both ways.
fn divide<A: Address>(
    regions: &[Region<A>],
    packets: &[A::Words],
    parts: &Parts,
    bit: usize,
    out: &mut Parts,
) {
    let (word, bit) = (bit / 64, bit % 64);
    let count = parts.ends.len();
    out.items.clear();
    out.ends.clear();
    out.mass.clear();
    out.mass.resize(2 * count, 0.0);
    out.passing.clear();
    for side in 0..2u64 {
        for part in 0..count {
            let mut share = 0.0;
            for &index in parts.get(part) {
                let region = &regions[index as usize];
                let fixed = region.care.as_ref()[word] >> bit & 1 == 1;
                let value = region.value.as_ref()[word] >> bit & 1;
                if !fixed || value == side {
                    out.items.push(index);
                    share += if fixed { 1.0 } else { 0.5 };
                }
            }
            out.ends.push(out.items.len());
            let rules = parts.get(part).len().max(1);
            out.mass[count * side as usize + part] = parts.mass[part] * share / rules as f64;
            let goes = |&&at: &&u32| packets[at as usize].as_ref()[word] >> bit & 1 == side;
            let passing = parts.passing[part].iter().filter(goes);
            out.passing.push(passing.copied().collect());
        }
    }
}

/// Bounds of the keys between `bounds` that have this bit. Below the highest bit that varies, a
/// fixed bit leaves gaps, and the bounds stay as they are.
fn narrow<A: Address>(bounds: &mut (A::Words, A::Words), bit: usize, set: bool) {
    let (at, bit) = (bit / 16, 1u16 << (bit % 16));
    let (low, high) = (lane(bounds.0.as_ref(), at), lane(bounds.1.as_ref(), at));
    let varying = low ^ high;
    if varying & bit == 0 || varying & !(bit | (bit - 1)) != 0 {
        return;
    }
    if set {
        set_lane(bounds.0.as_mut(), at, high & !(bit - 1));
    } else {
        set_lane(bounds.1.as_mut(), at, low | (bit - 1));
    }
}

/// The filter of the rules in a root's bucket.
pub(crate) fn filter_of(hashes: impl Iterator<Item = u32>) -> u8 {
    hashes.fold(0, |bits, hash| bits | filter(hash) as u8)
}
