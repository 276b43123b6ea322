//! Sets of packets: products of ranges, which can be cut and subtracted without loss and written
//! as rules of prefixes and port ranges.

use acl::{Action, Address, Prefix, Protocol, Rule};

use super::RuleSet;
use crate::budget::{Budget, Exhaustion};

/// Numbers, as ranges in order that do not touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    pub(super) fn new(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        Self(joined)
    }

    pub(super) fn one(low: u128, high: u128) -> Self {
        Self(vec![(low, high)])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The lowest and the highest.
    pub(super) fn hull(&self) -> Option<(u128, u128)> {
        Some((self.0.first()?.0, self.0.last()?.1))
    }

    /// The numbers up to `most` that are not in it.
    pub(super) fn complement(&self, most: u128) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for (low, high) in &self.0 {
            if let Some(from) = next.filter(|from| from < low) {
                rest.push((from, low - 1));
            }
            next = high.checked_add(1).filter(|next| *next <= most);
        }
        rest.extend(next.map(|from| (from, most)));
        Self(rest)
    }

    pub(super) fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(&&x), Some(&&y)) = (a.peek(), b.peek()) {
            let (low, high) = (x.0.max(y.0), x.1.min(y.1));
            if low <= high {
                both.push((low, high));
            }
            if x.1 <= y.1 {
                a.next()
            } else {
                b.next()
            };
        }
        Self(both)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.1 < y.0 {
                a.next();
            } else if y.1 < x.0 {
                b.next();
            } else {
                return true;
            }
        }
        false
    }

    /// Whether all of `other` is in it.
    fn covers(&self, other: &Self) -> bool {
        let mut ranges = self.0.iter().peekable();
        other.0.iter().all(|(low, high)| {
            while ranges.next_if(|range| range.1 < *low).is_some() {}
            ranges
                .peek()
                .is_some_and(|range| range.0 <= *low && *high <= range.1)
        })
    }

    /// As few aligned blocks as cover it.
    fn blocks(&self, bits: u8) -> Blocks<'_> {
        Blocks {
            ranges: self.0.iter(),
            left: None,
            bits,
        }
    }
}

/// Aligned blocks of ranges: the first number and the bits that count, of `bits`.
struct Blocks<'a> {
    ranges: std::slice::Iter<'a, (u128, u128)>,
    left: Option<(u128, u128)>,
    bits: u8,
}

impl Iterator for Blocks<'_> {
    type Item = (u128, u8);

    fn next(&mut self) -> Option<(u128, u8)> {
        let left = self.left.take().or_else(|| self.ranges.next().copied());
        let (from, high) = left?;
        let mut free = from.trailing_zeros().min(u32::from(self.bits));
        let end = |free: u32| from | u128::MAX.checked_shr(128 - free).unwrap_or(0);
        while end(free) > high {
            free -= 1;
        }
        let next = end(free).checked_add(1).filter(|next| *next <= high);
        self.left = next.map(|next| (next, high));
        Some((from, self.bits - u8::try_from(free).unwrap_or(self.bits)))
    }
}

/// What a five-tuple is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    Protocol,
}

/// The product of a set of values of each field, of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) v6: bool,
    fields: [Ranges; 5],
}

impl Region {
    pub(super) fn all(v6: bool) -> Self {
        let most = [0, 1, 2, 3, 4].map(|field| Ranges::one(0, most(field, v6)));
        Self { v6, fields: most }
    }

    /// Keeps what has these values, or has not.
    pub(super) fn keep(
        &mut self,
        field: Field,
        values: &Ranges,
        negated: bool,
        budget: &Budget,
    ) -> Result<(), Exhaustion> {
        let at = field as usize;
        budget.work(values.len() + self.fields[at].len())?;
        let values = if negated {
            &values.complement(most(at, self.v6))
        } else {
            values
        };
        self.fields[at] = self.fields[at].intersect(values);
        budget.room(self.bytes())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.iter().any(Ranges::is_empty)
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.ranges() * size_of::<(u128, u128)>()
    }

    /// Whether all of `other` is in it.
    pub(super) fn covers(&self, other: &Self, budget: &Budget) -> Result<bool, Exhaustion> {
        budget.work((self.ranges() + other.ranges()) / 4)?;
        let mut fields = self.fields.iter().zip(&other.fields);
        Ok(self.v6 == other.v6 && fields.all(|(own, other)| own.covers(other)))
    }

    /// Adds the rules of prefixes and port ranges that it comes to.
    pub(super) fn emit(
        &self,
        action: Action,
        origin: u32,
        rules: &mut RuleSet,
        budget: &Budget,
    ) -> Result<(), Exhaustion> {
        if self.v6 {
            self.rules(action, origin, &mut rules.v6, budget)
        } else {
            self.rules(action, origin, &mut rules.v4, budget)
        }
    }

    fn ranges(&self) -> usize {
        self.fields.iter().map(Ranges::len).sum()
    }

    fn overlaps(&self, other: &Self) -> bool {
        let mut fields = self.fields.iter().zip(&other.fields);
        self.v6 == other.v6 && fields.all(|(own, other)| own.overlaps(other))
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            v6: self.v6,
            fields: std::array::from_fn(|at| self.fields[at].intersect(&other.fields[at])),
        })
    }

    /// What is not in `other`, which it overlaps, as regions that do not overlap.
    fn subtract(mut self, other: &Self) -> Vec<Self> {
        let mut rest = Vec::new();
        for field in 0..5 {
            let outside = other.fields[field].complement(most(field, self.v6));
            let outside = self.fields[field].intersect(&outside);
            if !outside.is_empty() {
                let mut piece = self.clone();
                piece.fields[field] = outside;
                rest.push(piece);
            }
            self.fields[field] = self.fields[field].intersect(&other.fields[field]);
        }
        rest
    }

    fn rules<A: Address>(
        &self,
        action: Action,
        id: u32,
        into: &mut Vec<Rule<A>>,
        budget: &Budget,
    ) -> Result<(), Exhaustion> {
        let [
            sources,
            destinations,
            source_ports,
            destination_ports,
            protocols,
        ] = &self.fields;
        let (from, to) = (&source_ports.0, &destination_ports.0);
        let prefixes = (
            sources.blocks(A::BITS).count(),
            destinations.blocks(A::BITS).count(),
        );
        budget.work(prefixes.0.saturating_add(prefixes.1))?;
        let count = [
            prefixes.1,
            protocols.blocks(8).count(),
            from.len(),
            to.len(),
        ]
        .into_iter()
        .fold(prefixes.0, usize::saturating_mul);
        budget.work(count)?;
        // A list that grows is in memory twice.
        budget.hold(count.saturating_mul(2 * size_of::<Rule<A>>()))?;
        for (value, length) in protocols.blocks(8) {
            let protocol = Protocol {
                value: low_byte(value),
                mask: !u8::MAX.checked_shr(u32::from(length)).unwrap_or(0),
            };
            for source in self::prefixes::<A>(sources) {
                for destination in self::prefixes::<A>(destinations) {
                    for from in from {
                        for to in to {
                            into.push(Rule {
                                source,
                                destination,
                                source_ports: port(from.0)..=port(from.1),
                                destination_ports: port(to.0)..=port(to.1),
                                protocol,
                                action,
                                id,
                            });
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is in a region of both lists.
pub(super) fn intersections(
    a: &[Region],
    b: &[Region],
    budget: &Budget,
) -> Result<Vec<Region>, Exhaustion> {
    let (mut both, mut bytes) = (Vec::new(), 0);
    for x in a {
        for y in b {
            budget.work((x.ranges() + y.ranges()) / 4)?;
            if let Some(region) = x.intersect(y) {
                budget.work(COPY + region.ranges())?;
                bytes += region.bytes();
                budget.room(bytes)?;
                both.push(region);
            }
        }
    }
    Ok(both)
}

/// What of the regions is in none of `cuts`.
pub(super) fn difference(
    mut regions: Vec<Region>,
    cuts: &[Region],
    budget: &Budget,
) -> Result<Vec<Region>, Exhaustion> {
    for cut in cuts {
        let (mut rest, mut bytes) = (Vec::with_capacity(regions.len()), 0);
        for region in regions {
            budget.work((region.ranges() + cut.ranges()) / 4)?;
            if !region.overlaps(cut) {
                bytes += region.bytes();
                rest.push(region);
                continue;
            }
            for piece in region.subtract(cut) {
                budget.work(2 * (COPY + piece.ranges()))?;
                bytes += piece.bytes();
                budget.room(bytes)?;
                rest.push(piece);
            }
        }
        regions = rest;
    }
    Ok(regions)
}

/// Steps of work that a new region takes beside its ranges.
const COPY: usize = 16;

/// The largest value of a field.
fn most(field: usize, v6: bool) -> u128 {
    match field {
        0 | 1 if v6 => u128::MAX,
        0 | 1 => u128::from(u32::MAX),
        2 | 3 => u128::from(u16::MAX),
        _ => u128::from(u8::MAX),
    }
}

fn prefixes<A: Address>(ranges: &Ranges) -> impl Iterator<Item = Prefix<A>> {
    let prefix = |(first, length)| Prefix::containing(A::narrow(first), length).ok();
    ranges.blocks(A::BITS).filter_map(prefix)
}

fn port(number: u128) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn low_byte(number: u128) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
