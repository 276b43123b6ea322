//! Sets of packets: products of ranges, which can be cut and subtracted without loss and written
//! as rules of prefixes and port ranges.

use acl::{Action, Address, Prefix, Protocol, Rule};

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

    /// As few aligned blocks as cover it: first number and bits that count of `bits`.
    fn blocks(&self, bits: u8) -> Vec<(u128, u8)> {
        let mut blocks = Vec::new();
        for &(low, high) in &self.0 {
            let mut from = low;
            loop {
                let mut free = from.trailing_zeros().min(u32::from(bits));
                let end = |free: u32| from | u128::MAX.checked_shr(128 - free).unwrap_or(0);
                while end(free) > high {
                    free -= 1;
                }
                blocks.push((from, bits - u8::try_from(free).unwrap_or(bits)));
                match end(free).checked_add(1) {
                    Some(next) if next <= high => from = next,
                    _ => break,
                }
            }
        }
        blocks
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
    pub(super) fn keep(&mut self, field: Field, values: &Ranges, negated: bool) {
        let at = field as usize;
        let values = if negated {
            &values.complement(most(at, self.v6))
        } else {
            values
        };
        self.fields[at] = self.fields[at].intersect(values);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.iter().any(Ranges::is_empty)
    }

    pub(super) fn intersect(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for (field, other) in both.fields.iter_mut().zip(&other.fields) {
            *field = field.intersect(other);
        }
        (self.v6 == other.v6 && !both.is_empty()).then_some(both)
    }

    /// What is not in `other`, as regions that do not overlap.
    pub(super) fn subtract(&self, other: &Self) -> Vec<Self> {
        if self.intersect(other).is_none() {
            return vec![self.clone()];
        }
        let mut rest = Vec::new();
        let mut left = self.clone();
        for field in 0..5 {
            let outside = other.fields[field].complement(most(field, self.v6));
            let mut piece = left.clone();
            piece.fields[field] = piece.fields[field].intersect(&outside);
            if !piece.is_empty() {
                rest.push(piece);
            }
            left.fields[field] = left.fields[field].intersect(&other.fields[field]);
        }
        rest
    }

    /// How many rules `rules` makes of it.
    pub(super) fn count(&self) -> usize {
        let bits = if self.v6 { 128 } else { 32 };
        let blocks = |field: usize, bits| self.fields[field].blocks(bits).len();
        let ports = self.fields[2]
            .0
            .len()
            .saturating_mul(self.fields[3].0.len());
        blocks(0, bits)
            .saturating_mul(blocks(1, bits))
            .saturating_mul(blocks(4, 8))
            .saturating_mul(ports)
    }

    pub(super) fn rules<A: Address>(&self, action: Action, id: u32, into: &mut Vec<Rule<A>>) {
        let [
            sources,
            destinations,
            source_ports,
            destination_ports,
            protocols,
        ] = &self.fields;
        let (sources, destinations) = (prefixes::<A>(sources), prefixes::<A>(destinations));
        for &(value, length) in &protocols.blocks(8) {
            let protocol = Protocol {
                value: low_byte(value),
                mask: !u8::MAX.checked_shr(u32::from(length)).unwrap_or(0),
            };
            for source in &sources {
                for destination in &destinations {
                    for from in &source_ports.0 {
                        for to in &destination_ports.0 {
                            into.push(Rule {
                                source: *source,
                                destination: *destination,
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
    }
}

/// The largest value of a field.
fn most(field: usize, v6: bool) -> u128 {
    match field {
        0 | 1 if v6 => u128::MAX,
        0 | 1 => u128::from(u32::MAX),
        2 | 3 => u128::from(u16::MAX),
        _ => u128::from(u8::MAX),
    }
}

fn prefixes<A: Address>(ranges: &Ranges) -> Vec<Prefix<A>> {
    let blocks = ranges.blocks(A::BITS);
    let prefix = |(first, length)| Prefix::containing(A::narrow(first), length).ok();
    blocks.into_iter().filter_map(prefix).collect()
}

fn port(number: u128) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn low_byte(number: u128) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
