//! Ports, addresses, networks and numbers as people write them.

use std::net::{IpAddr, Ipv4Addr};

use super::expression::{Network, Ports};
use crate::key::mapped;

/// A port or a range of them.
pub(super) fn ports(text: &str) -> Result<Ports, String> {
    let expected = || expected("a port (0 to 65535) or a range of ports as 6000-6008", text);
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low = digits(low).ok_or_else(expected)?;
    let high = digits(high).ok_or_else(expected)?;
    if low > high {
        return Err(format!("{text} is no range: it ends before it begins"));
    }
    Ok(Ports { low, high })
}

/// One address.
pub(super) fn host(text: &str) -> Result<Network, String> {
    if text.contains('/') {
        return Err(format!("{} is a network: write net", quoted(text)));
    }
    let address = text.parse().map_err(|_| expected("an address", text))?;
    Ok(whole(address))
}

/// A network, IPv4 also with its last bytes left out as in tcpdump: 10, 10/8 and 10.0.0.0/8 are the same.
pub(super) fn network(text: &str) -> Result<Network, String> {
    let none = || expected("a network as 10.0.0.0/8 or 2001:db8::/32", text);
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let (network, bytes) = match address.parse::<IpAddr>() {
        Ok(address) => (whole(address), 4),
        Err(_) => short(address).ok_or_else(none)?,
    };
    let most = if network.version == 4 { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => digits(bits)
            .filter(|&bits| bits <= most)
            .ok_or_else(|| expected(&format!("0 to {most} bits"), bits))?,
        None if network.version == 4 => bytes * 8,
        None => 128,
    };
    let network = Network {
        prefix: 128 - most + bits,
        ..network
    };
    if network.address & !network.mask() != 0 {
        return Err(format!("{text} has bits set behind its first {bits}"));
    }
    Ok(network)
}

/// A number in decimal digits.
pub(super) fn number<N: std::str::FromStr>(what: &str, text: &str) -> Result<N, String> {
    digits(text).ok_or_else(|| expected(what, text))
}

pub(super) fn expected(what: &str, found: &str) -> String {
    match found {
        "" => format!("expected {what}, found the end"),
        _ => format!("expected {what}, found {}", quoted(found)),
    }
}

/// As much of a text as a line of an error has room for.
fn quoted(text: &str) -> String {
    const MAX_QUOTE: usize = 50;
    let short: String = text.chars().take(MAX_QUOTE).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{more}")
}

fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    // parse() would take a sign.
    let all = text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

fn whole(address: IpAddr) -> Network {
    let (version, address) = match address {
        IpAddr::V4(address) => (4, mapped(address.octets())),
        IpAddr::V6(address) => (6, address.to_bits()),
    };
    Network {
        version,
        address,
        prefix: 128,
    }
}

/// The first one to three bytes of an IPv4 address, and how many there are.
fn short(text: &str) -> Option<(Network, u8)> {
    let mut bytes = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        *bytes.get_mut(usize::from(count)).filter(|_| count < 3)? = digits(part)?;
        count += 1;
    }
    Some((whole(Ipv4Addr::from(bytes).into()), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_may_leave_out_their_last_bytes() {
        for same in ["10", "10/8", "10.0/8", "10.0.0/8", "10.0.0.0/8"] {
            assert_eq!(network(same), network("10.0.0.0/8"), "{same}");
        }
        assert_eq!(network("192.168").map(|net| net.prefix), Ok(96 + 16));
        assert_eq!(network("192.0.2.1").map(|net| net.prefix), Ok(128));
        assert_eq!(network("2001:db8::").map(|net| net.prefix), Ok(128));
        assert_eq!(network("0.0.0.0/0").map(|net| net.prefix), Ok(96));
        assert_eq!(network("::/0").map(|net| net.prefix), Ok(0));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for wrong in [
            "",
            "10.0.0.1/8",
            "10/33",
            "10/",
            "/8",
            "1.2.3.4.5",
            "256",
            "10.",
            "::1/64",
            "+1",
            "x",
        ] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        assert_eq!(ports("0-65535").map(|p| (p.low, p.high)), Ok((0, 65535)));
        for wrong in ["", "-", "65536", "2-1", "1-", "-1", "+1", "http"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
