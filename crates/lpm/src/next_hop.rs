//! Next hops are numbers here; what they stand for (a neighbour, a device, a drop) is the caller's.

use std::num::NonZeroU16;

/// The value that a batch lookup writes for an address that no prefix covers.
pub const NO_ROUTE: u16 = 0;

/// The number of a next hop, 1..=32767. Low numbers are the cheap ones (see `Layout4`): give them to
/// the next hops used most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop(NonZeroU16);

impl NextHop {
    /// The largest number.
    pub const MAX: u16 = 0x7fff;

    /// Nothing for 0, which means no route, and beyond [`NextHop::MAX`].
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The number as a table holds it, [`NO_ROUTE`] for none.
    pub(crate) fn code(hop: Option<Self>) -> u16 {
        hop.map_or(NO_ROUTE, Self::get)
    }
}
