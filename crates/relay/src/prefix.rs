//! Prefixes as users write them: of either family, with the bits beyond their length, and addresses without a length.
//! Which addresses they have, the crate `prefix` says.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use prefix::Address;

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    /// Whether it has this address; families never have each other's.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                contains(ours.to_bits(), self.length, theirs.to_bits())
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                contains(ours.to_bits(), self.length, theirs.to_bits())
            }
            _ => false,
        }
    }
}

fn contains<A: Address>(ours: A, length: u8, theirs: A) -> bool {
    prefix::Prefix::cut(ours, length.min(A::BITS)).contains(theirs)
}

impl From<IpAddr> for Prefix {
    /// This address alone.
    fn from(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a prefix; write 10.0.0.0/8 or 2001:db8::/32");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => width,
            Some(length) => length.parse().map_err(|_| wrong())?,
        };
        if length > width {
            return Err(wrong());
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["10.0.0.0/8", "2001:db8::/32"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert!("10.0.0.0/33".parse::<Prefix>().is_err());
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().length, 32);
    }

    #[test]
    fn a_prefix_covers_its_own_family_only() {
        let prefix = |address: &str, length| Prefix {
            address: address.parse().unwrap(),
            length,
        };
        let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(prefix("10.0.0.0", 8).contains(v4("10.255.1.2")));
        assert!(!prefix("10.0.0.0", 8).contains(v4("11.0.0.0")));
        assert!(prefix("0.0.0.0", 0).contains(v4("203.0.113.1")));
        assert!(!prefix("0.0.0.0", 0).contains(v4("2001:db8::1")));
        assert!(prefix("2001:db8::", 32).contains(v4("2001:db8:ffff::1")));
        assert!(!prefix("2001:db8::1", 128).contains(v4("2001:db8::2")));
        assert!(prefix("::", 0).contains(v4("2001:db8::2")));
    }
}
