//! The lines of a leaf: rules in cache lines, their ranges laid out for one vector comparison.
//!
//! A key `x` is in `low..=high` when `x >= low` and `!x >= !high`, so a line holds `low` and the
//! complement of `high`, and both are tested by the same instruction.

use std::fmt::Debug;

use crate::address::Address;
use crate::region::{Region, lane};
use crate::rule::NONE;

/// One or two rules, in order of priority.
pub trait Line<A: Address>: Copy + Debug + Send + Sync + 'static {
    /// Rules in a line.
    const RULES: usize;
    /// Places of a rule's lowest lane, of its highest bounds, and of its order's two halves.
    const PLACES: &[(usize, usize, usize)];
    /// No rule matches.
    const EMPTY: Self;

    fn lanes(&self) -> &[u16];
    fn lanes_mut(&mut self) -> &mut [u16];

    /// The order of a rule.
    #[inline(always)]
    fn order(&self, slot: usize) -> u32 {
        let at = Self::PLACES[slot].2;
        u32::from(self.lanes()[at]) | u32::from(self.lanes()[at + 1]) << 16
    }

    /// Whether a rule holds the key.
    #[inline(always)]
    fn holds(&self, slot: usize, key: &[u64]) -> bool {
        let (low, high, _) = Self::PLACES[slot];
        let lanes = self.lanes();
        let mut outside = 0;
        for at in 0..A::ALL_LANES {
            let x = lane(key, at);
            outside |= u16::from(x < lanes[low + at]) | u16::from(!x < lanes[high + at]);
        }
        outside == 0
    }

    /// The first of the rules that holds the key, by its order, else [`NONE`].
    #[inline(always)]
    fn first(&self, key: &[u64]) -> u32 {
        let mut slots = 0..Self::RULES;
        let slot = slots.find(|&slot| self.holds(slot, key));
        slot.map_or(NONE, |slot| self.order(slot))
    }
}

/// Two IPv4 rules: `low0[7] order0[2] low1[7] high0[7] order1[2] high1[7]`, orders lie where no lane is
/// compared.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line4(pub(crate) [u16; 32]);

/// One IPv6 rule: `low[19]`, its order at 20, `high[19]` at 32.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line6(pub(crate) [u16; 64]);

impl Line<u32> for Line4 {
    const RULES: usize = 2;
    const PLACES: &[(usize, usize, usize)] = &[(0, 16, 7), (9, 25, 23)];
    const EMPTY: Self = Self([u16::MAX; 32]);

    #[inline(always)]
    fn lanes(&self) -> &[u16] {
        &self.0
    }
    fn lanes_mut(&mut self) -> &mut [u16] {
        &mut self.0
    }
}

impl Line<u128> for Line6 {
    const RULES: usize = 1;
    const PLACES: &[(usize, usize, usize)] = &[(0, 32, 20)];
    const EMPTY: Self = Self([u16::MAX; 64]);

    #[inline(always)]
    fn lanes(&self) -> &[u16] {
        &self.0
    }
    fn lanes_mut(&mut self) -> &mut [u16] {
        &mut self.0
    }
}

/// Lines with these regions, the last one filled up with what matches nothing.
pub(crate) fn lines_of<'a, A: Address>(
    regions: impl Iterator<Item = &'a Region<A>>,
    lines: &mut Vec<A::Line>,
) {
    for (index, region) in regions.enumerate() {
        let slot = index % A::Line::RULES;
        if slot == 0 {
            lines.push(A::Line::EMPTY);
        }
        if let Some(line) = lines.last_mut() {
            write::<A>(line, slot, region);
        }
    }
}

fn write<A: Address>(line: &mut A::Line, slot: usize, region: &Region<A>) {
    let (low, high, order) = A::Line::PLACES[slot];
    let lanes = line.lanes_mut();
    for at in 0..A::ALL_LANES {
        lanes[low + at] = lane(region.low.as_ref(), at);
        lanes[high + at] = !lane(region.high.as_ref(), at);
    }
    lanes[order] = (region.order & 0xffff) as u16;
    lanes[order + 1] = (region.order >> 16) as u16;
}
