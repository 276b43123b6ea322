//! The key of a flow: both endpoints, in an order that is the same for both directions.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

/// A flow's identity. The endpoints are ordered, so that both directions have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Key {
    /// In network order as one number. IPv4 addresses are mapped into IPv6.
    pub addresses: [u128; 2],
    pub ports: [u16; 2],
    /// The outermost VLAN id if it is part of the key, else 0.
    pub vlan: u16,
    pub protocol: u8,
    /// Of the IP header: 4 or 6.
    pub version: u8,
    /// The virtual network of the addresses: the identifier of VXLAN, Geneve or NVGRE, or 0 outside a virtual
    /// network. Both directions of a conversation have the same identifier.
    pub network: u32,
}

/// Which endpoint of the key sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    First,
    Second,
}

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: u128,
    pub port: u16,
}

impl Key {
    /// Returns the key of a packet between these endpoints and the endpoint that sent it. A packet from an
    /// endpoint to itself counts as sent by the first.
    pub fn of(
        source: Endpoint,
        destination: Endpoint,
        protocol: u8,
        version: u8,
    ) -> (Self, Sender) {
        let in_order = (source.address, source.port) <= (destination.address, destination.port);
        let (first, second, sender) = if in_order {
            (source, destination, Sender::First)
        } else {
            (destination, source, Sender::Second)
        };
        let key = Self {
            addresses: [first.address, second.address],
            ports: [first.port, second.port],
            vlan: 0,
            protocol,
            version,
            network: 0,
        };
        (key, sender)
    }

    pub fn endpoint(&self, sender: Sender) -> Endpoint {
        let index = match sender {
            Sender::First => 0,
            Sender::Second => 1,
        };
        Endpoint {
            address: self.addresses[index],
            port: self.ports[index],
        }
    }

    /// Everything but the addresses, as one number.
    fn rest(&self) -> u128 {
        u128::from(self.ports[0])
            | u128::from(self.ports[1]) << 16
            | u128::from(self.vlan) << 32
            | u128::from(self.protocol) << 48
            | u128::from(self.version) << 56
            | u128::from(self.network) << 64
    }

    /// A serialization that is the same on every machine and in every run. Flow ids are computed from it.
    pub(crate) fn bytes(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..16].copy_from_slice(&self.addresses[0].to_be_bytes());
        bytes[16..32].copy_from_slice(&self.addresses[1].to_be_bytes());
        bytes[32..].copy_from_slice(&self.rest().to_be_bytes());
        bytes
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.addresses[0]);
        state.write_u128(self.addresses[1]);
        state.write_u128(self.rest());
    }
}

impl Sender {
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

impl Endpoint {
    /// The address in the IP version of its packets.
    pub fn ip(&self, version: u8) -> IpAddr {
        let address = Ipv6Addr::from_bits(self.address);
        match address.to_ipv4_mapped() {
            Some(v4) if version == 4 => v4.into(),
            _ => address.into(),
        }
    }
}

/// An IPv4 address in the key's form.
pub(crate) fn mapped(address: [u8; 4]) -> u128 {
    0xffff_0000_0000 | u128::from(u32::from_be_bytes(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, port: u16) -> Endpoint {
        let address = mapped([10, 0, 0, last]);
        Endpoint { address, port }
    }

    #[test]
    fn both_directions_have_the_same_key() {
        let (there, first) = Key::of(endpoint(1, 9), endpoint(2, 5), 6, 4);
        let (back, second) = Key::of(endpoint(2, 5), endpoint(1, 9), 6, 4);
        assert_eq!(there, back);
        assert_eq!((first, second), (Sender::First, Sender::Second));
        assert_eq!(there.endpoint(first), endpoint(1, 9));
        assert_eq!(there.endpoint(first.other()), endpoint(2, 5));
    }

    #[test]
    fn one_host_talking_to_itself_is_ordered_by_port() {
        let (key, sender) = Key::of(endpoint(1, 9), endpoint(1, 5), 6, 4);
        assert_eq!((key.ports, sender), ([5, 9], Sender::Second));
    }

    #[test]
    fn addresses_are_written_in_their_own_version() {
        assert_eq!(endpoint(7, 0).ip(4).to_string(), "10.0.0.7");
        assert_eq!(endpoint(7, 0).ip(6).to_string(), "::ffff:10.0.0.7");
    }
}
