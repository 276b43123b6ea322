//! What differs between IPv4 and IPv6 in following routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lpm::{Address, NextHop, Prefix};

use crate::forward::{Family, Plane};

pub(super) trait AddressFamily: Address {
    const FAMILY: Family;

    fn of(address: IpAddr) -> Option<Self>;
    /// Destinations that no router forwards to, regardless of its routes.
    fn reserved_prefixes() -> Vec<Prefix<Self>>;
    fn route<P: Plane>(
        plane: &mut P,
        prefix: Prefix<Self>,
        hop: Option<NextHop>,
    ) -> Result<(), P::Error>;

    /// Prefix lengths for which a plane most likely has room, longest first.
    const COARSE: &'static [u8];

    /// Whether packets to this address are routed: it is neither multicast nor, for IPv6, link-local.
    fn is_routed(self) -> bool;
}

impl AddressFamily for u32 {
    const FAMILY: Family = Family::V4;
    /// Lookup tables have an entry for each /24.
    const COARSE: &'static [u8] = &[24];

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    /// "This network" and loopback (RFC 6890), multicast, limited broadcast.
    fn reserved_prefixes() -> Vec<Prefix<Self>> {
        prefixes(&[
            "0.0.0.0/8",
            "127.0.0.0/8",
            "224.0.0.0/4",
            "255.255.255.255/32",
        ])
    }

    fn route<P: Plane>(
        plane: &mut P,
        prefix: Prefix<Self>,
        hop: Option<NextHop>,
    ) -> Result<(), P::Error> {
        plane.route4(prefix, hop)
    }

    fn is_routed(self) -> bool {
        !Ipv4Addr::from_bits(self).is_multicast()
    }
}

impl AddressFamily for u128 {
    const FAMILY: Family = Family::V6;
    const COARSE: &'static [u8] = &[48, 32, 16];

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits()),
        }
    }

    /// Unspecified, loopback, link-local and multicast (RFC 4291, 2.5 and 2.7).
    fn reserved_prefixes() -> Vec<Prefix<Self>> {
        prefixes(&["::/128", "::1/128", "fe80::/10", "ff00::/8"])
    }

    fn route<P: Plane>(
        plane: &mut P,
        prefix: Prefix<Self>,
        hop: Option<NextHop>,
    ) -> Result<(), P::Error> {
        plane.route6(prefix, hop)
    }

    fn is_routed(self) -> bool {
        let address = Ipv6Addr::from_bits(self);
        !address.is_multicast() && !address.is_unicast_link_local()
    }
}

fn prefixes<A: Address>(texts: &[&str]) -> Vec<Prefix<A>> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}
