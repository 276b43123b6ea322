//! What an expression says: tests of one packet, and how they are put together.

/// A condition on a packet. Nested no deeper than the parser allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Test(Test),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Of IP.
    Version(u8),
    Protocol(u8),
    Ports(Sides, Vec<Ports>),
    Networks(Sides, Vec<Network>),
    /// Networks in a file, named at this column.
    List(Sides, String, usize),
    /// Bytes on the wire, at least and at most.
    Length(u32, u32),
    /// The outermost tag's id, at least and at most.
    Vlan(u16, u16),
}

/// Which of a packet's two endpoints a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    Source,
    Destination,
    Either,
    Both,
}

/// A range of ports, its ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) low: u16,
    pub(super) high: u16,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network {
    /// Of IP: 4 or 6.
    pub(crate) version: u8,
    /// The first, as a key has it: IPv4 mapped into IPv6.
    pub(crate) address: u128,
    /// Bits of it that count: of an IPv4 address 96 more than people write.
    pub(crate) prefix: u8,
}

impl Network {
    pub(crate) fn mask(&self) -> u128 {
        let rest = 128 - u32::from(self.prefix);
        u128::MAX.checked_shl(rest).unwrap_or(0)
    }

    pub(crate) fn last(&self) -> u128 {
        self.address | !self.mask()
    }
}

impl Expression {
    pub(super) fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }

    pub(super) fn negated(self) -> Self {
        Self::Not(Box::new(self))
    }
}
