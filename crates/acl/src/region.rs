//! A rule as a box: one range of 16-bit values for each lane of the five-tuple.
//!
//! A prefix is a product of such ranges, because all lanes but one are either fixed or free. A
//! protocol mask that is not a range becomes several boxes.

use crate::address::Address;
use crate::rule::Rule;

/// Part of a rule, packed like a key: four lanes to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region<A: Address> {
    pub(crate) low: A::Words,
    /// Inclusive.
    pub(crate) high: A::Words,
    /// Bits that every key of the region has in common, ...
    pub(crate) care: A::Words,
    /// ... and what they are.
    pub(crate) value: A::Words,
    pub(crate) source: A,
    pub(crate) destination: A,
    /// Bits of the source and the destination prefix.
    pub(crate) lengths: (u8, u8),
    /// Lower wins.
    pub(crate) order: u32,
}

pub(crate) fn lane(words: &[u64], lane: usize) -> u16 {
    (words[lane / 4] >> (16 * (lane % 4)) & 0xffff) as u16
}

pub(crate) fn set_lane(words: &mut [u64], lane: usize, value: u16) {
    let shift = 16 * (lane % 4);
    words[lane / 4] = words[lane / 4] & !(0xffff << shift) | u64::from(value) << shift;
}

/// The longest run of leading bits that all values of a range share.
fn common_bits(low: u16, high: u16) -> u16 {
    let differing = (low ^ high).leading_zeros();
    !u16::MAX.checked_shr(differing).unwrap_or(0)
}

/// Every value of every lane: the region of an undivided table.
pub(crate) fn everything<A: Address>() -> (A::Words, A::Words) {
    let mut high = A::Words::default();
    for at in 0..A::ALL_LANES {
        set_lane(high.as_mut(), at, u16::MAX);
    }
    set_lane(high.as_mut(), A::ALL_LANES - 1, 0xff);
    (A::Words::default(), high)
}

/// The bounds of two boxes together.
pub(crate) fn widened<A: Address>(
    a: &(A::Words, A::Words),
    b: &(A::Words, A::Words),
) -> (A::Words, A::Words) {
    let mut hull = *a;
    for at in 0..A::ALL_LANES {
        let low = lane(a.0.as_ref(), at).min(lane(b.0.as_ref(), at));
        let high = lane(a.1.as_ref(), at).max(lane(b.1.as_ref(), at));
        set_lane(hull.0.as_mut(), at, low);
        set_lane(hull.1.as_mut(), at, high);
    }
    hull
}

impl<A: Address> Region<A> {
    /// The number of boxes that `of_rule` appends.
    pub(crate) fn count(rule: &Rule<A>) -> usize {
        let ports = [&rule.source_ports, &rule.destination_ports];
        if ports.iter().any(|range| range.is_empty()) {
            return 0;
        }
        // A range of consecutive numbers is decided by its highest bits.
        if rule.protocol.mask.leading_ones() == rule.protocol.mask.count_ones() {
            return 1;
        }
        let begins = |number: u8| {
            let before = number.checked_sub(1);
            rule.protocol.contains(number)
                && before.is_none_or(|before| !rule.protocol.contains(before))
        };
        (0..=u8::MAX).filter(|&number| begins(number)).count()
    }

    /// Appends the boxes of a rule.
    pub(crate) fn of_rule(rule: &Rule<A>, order: u32, regions: &mut Vec<Self>) {
        let (source, destination) = (&rule.source, &rule.destination);
        let mut region = Self {
            low: A::words(source.first(), destination.first()),
            high: A::words(source.last(), destination.last()),
            care: A::Words::default(),
            value: A::Words::default(),
            source: source.first(),
            destination: destination.first(),
            lengths: (source.len(), destination.len()),
            order,
        };
        let ports = [&rule.source_ports, &rule.destination_ports];
        if ports.iter().any(|range| range.is_empty()) {
            return;
        }
        for (at, range) in (2 * A::LANES..).zip(ports) {
            region.set(at, *range.start(), *range.end());
        }
        let mut numbers = (0..=255).filter(|&p| rule.protocol.contains(p)).peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&last.wrapping_add(1)) {
                last = next;
            }
            region.set(A::ALL_LANES - 1, u16::from(first), u16::from(last));
            region.cover();
            regions.push(region);
        }
    }

    fn set(&mut self, at: usize, low: u16, high: u16) {
        set_lane(self.low.as_mut(), at, low);
        set_lane(self.high.as_mut(), at, high);
    }

    /// Finds the shared bits anew.
    pub(crate) fn cover(&mut self) {
        for at in 0..A::ALL_LANES {
            let (low, high) = (lane(self.low.as_ref(), at), lane(self.high.as_ref(), at));
            let mut care = common_bits(low, high);
            if at == A::ALL_LANES - 1 {
                care &= 0xff;
            }
            set_lane(self.care.as_mut(), at, care);
            set_lane(self.value.as_mut(), at, low & care);
        }
    }

    /// Whether every key between the bounds is in the region.
    pub(crate) fn contains(&self, bounds: &(A::Words, A::Words)) -> bool {
        (0..A::ALL_LANES).all(|at| {
            lane(self.low.as_ref(), at) <= lane(bounds.0.as_ref(), at)
                && lane(self.high.as_ref(), at) >= lane(bounds.1.as_ref(), at)
        })
    }

    /// The first and the last value of each lane that keys of the region have between the bounds.
    pub(crate) fn between(&self, bounds: &(A::Words, A::Words)) -> (A::Words, A::Words) {
        let mut met = *bounds;
        for at in 0..A::ALL_LANES {
            let low = lane(self.low.as_ref(), at).max(lane(bounds.0.as_ref(), at));
            let high = lane(self.high.as_ref(), at).min(lane(bounds.1.as_ref(), at));
            set_lane(met.0.as_mut(), at, low);
            set_lane(met.1.as_mut(), at, high);
        }
        met
    }

    /// Whether some key between the bounds is in the region.
    pub(crate) fn meets(&self, bounds: &(A::Words, A::Words)) -> bool {
        (0..A::ALL_LANES).all(|at| {
            lane(self.low.as_ref(), at) <= lane(bounds.1.as_ref(), at)
                && lane(self.high.as_ref(), at) >= lane(bounds.0.as_ref(), at)
        })
    }

    /// The part with a lane's value between two; `None` when there is none.
    pub(crate) fn clipped(&self, at: usize, low: u16, high: u16) -> Option<Self> {
        let low = low.max(lane(self.low.as_ref(), at));
        let high = high.min(lane(self.high.as_ref(), at));
        if low > high {
            return None;
        }
        let mut part = *self;
        part.set(at, low, high);
        let care = common_bits(low, high)
            & if at == A::ALL_LANES - 1 {
                0xff
            } else {
                u16::MAX
            };
        set_lane(part.care.as_mut(), at, care);
        set_lane(part.value.as_mut(), at, low & care);
        Some(part)
    }
}
