//! Prefixes and addresses as listings write them.

use std::net::IpAddr;

use lpm::{Address, Prefix, Prefix4, Prefix6};

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnyPrefix {
    V4(Prefix4),
    V6(Prefix6),
}

/// A prefix, or an address alone for the prefix of just this address.
pub(super) fn prefix(text: &str) -> Result<AnyPrefix, String> {
    let v6 = text.contains(':');
    if text.contains('/') {
        let any = if v6 {
            text.parse().map(AnyPrefix::V6)
        } else {
            text.parse().map(AnyPrefix::V4)
        };
        return any.map_err(|error| error.to_string());
    }
    match text.parse() {
        Ok(IpAddr::V4(address)) => host(address.to_bits()).map(AnyPrefix::V4),
        Ok(IpAddr::V6(address)) => host(address.to_bits()).map(AnyPrefix::V6),
        Err(_) => Err(format!("{text:?} is not a prefix: write ADDRESS/LENGTH")),
    }
}

/// The prefix of all addresses of the family that `gateway` is of.
pub(super) fn default_like(v6: bool) -> AnyPrefix {
    if v6 {
        AnyPrefix::V6(Prefix6::DEFAULT)
    } else {
        AnyPrefix::V4(Prefix4::DEFAULT)
    }
}

pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no address of a next hop"))
}

fn host<A: Address>(address: A) -> Result<Prefix<A>, String> {
    Prefix::new(address, A::BITS).map_err(|error| error.to_string())
}
