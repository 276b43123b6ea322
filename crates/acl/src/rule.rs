//! Rules and keys: what a packet is compared with, and what is compared.

use std::ops::RangeInclusive;

use prefix::Prefix;

use crate::address::Address;

/// No rule matches.
pub const NONE: u32 = u32::MAX;

/// IP protocol numbers that agree with `value` in the bits of `mask`; mask 0 is any protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protocol {
    pub value: u8,
    pub mask: u8,
}

impl Protocol {
    /// Any protocol.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// Exactly this protocol.
    pub const fn exactly(value: u8) -> Self {
        Self { value, mask: 0xff }
    }

    /// Whether the number is one of them.
    pub fn contains(self, protocol: u8) -> bool {
        (protocol ^ self.value) & self.mask == 0
    }
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Action {
    #[default]
    Accept,
    Drop,
    /// The kernel decides.
    Punt,
}

/// One rule; its place in the list is its priority, the first match wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule<A: Address> {
    pub source: Prefix<A>,
    pub destination: Prefix<A>,
    pub source_ports: RangeInclusive<u16>,
    pub destination_ports: RangeInclusive<u16>,
    pub protocol: Protocol,
    pub action: Action,
    /// The owner's name for it: a line number, a handle.
    pub id: u32,
}

/// All of the ports.
pub const ANY_PORT: RangeInclusive<u16> = 0..=u16::MAX;

impl<A: Address> Default for Rule<A> {
    /// Matches everything and accepts it.
    fn default() -> Self {
        Self {
            source: Prefix::default(),
            destination: Prefix::default(),
            source_ports: ANY_PORT,
            destination_ports: ANY_PORT,
            protocol: Protocol::ANY,
            action: Action::Accept,
            id: 0,
        }
    }
}

impl<A: Address> Rule<A> {
    /// Whether a packet with this key falls under the rule.
    pub fn matches(&self, key: &Key<A>) -> bool {
        self.source.contains(key.source())
            && self.destination.contains(key.destination())
            && self.source_ports.contains(&key.source_port())
            && self.destination_ports.contains(&key.destination_port())
            && self.protocol.contains(key.protocol)
    }
}

/// The five-tuple of a packet, as its bytes lie in the packet (network order).
///
/// Ports are zero for protocols that have none. A packet whose ports cannot be seen has no key, and
/// must not get one with zeros: a rule for port 0..=1023 would match what it should not, and one for a
/// port would miss. Such are later fragments of IPv4 and IPv6, and IPv6 packets in which extension headers
/// hide the transport header: they are the kernel's ([`Action::Punt`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Key<A: Address> {
    pub protocol: u8,
    /// Means nothing.
    pub padding: [u8; 3],
    pub source: A::Octets,
    pub destination: A::Octets,
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
}

/// Sixteen bytes.
pub type Key4 = Key<u32>;
/// Forty bytes.
pub type Key6 = Key<u128>;
pub type Rule4 = Rule<u32>;
pub type Rule6 = Rule<u128>;

const _: () = assert!(size_of::<Key4>() == 16 && size_of::<Key6>() == 40);

impl<A: Address> Key<A> {
    /// Addresses and ports as numbers.
    pub fn new(source: A, destination: A, ports: (u16, u16), protocol: u8) -> Self {
        Self {
            protocol,
            padding: [0; 3],
            source: source.octets(),
            destination: destination.octets(),
            source_port: ports.0.to_be_bytes(),
            destination_port: ports.1.to_be_bytes(),
        }
    }

    pub fn source(&self) -> A {
        A::from_octets(self.source)
    }

    pub fn destination(&self) -> A {
        A::from_octets(self.destination)
    }

    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes(self.source_port)
    }

    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes(self.destination_port)
    }

    /// The lanes that lines compare.
    #[inline(always)]
    pub(crate) fn words(&self) -> A::Words {
        let mut words = A::words(self.source(), self.destination());
        let ports = u64::from(self.source_port()) | u64::from(self.destination_port()) << 16;
        words.as_mut()[A::LANES / 2] = ports | u64::from(self.protocol) << 32;
        words
    }
}

/// The first rule that matches, found one by one: what every other classifier must answer.
pub fn linear<A: Address>(rules: &[Rule<A>], key: &Key<A>) -> Option<usize> {
    rules.iter().position(|rule| rule.matches(key))
}
