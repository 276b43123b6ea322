//! A prefix: an address of which the first `len` bits count, the others being zero. Whoever looks up
//! prefixes or compares with them uses this one.

use std::fmt::{self, Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address in host order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Debug + Hash + Ord + Send + Sync + sealed::Sealed + 'static {
    /// Bits of an address.
    const BITS: u8;
    /// The smallest address.
    const ZERO: Self;

    /// The first `len` bits set; `len` is at most `BITS`.
    fn mask(len: u8) -> Self;
    /// This address with the bits of `mask` only.
    fn masked(self, mask: Self) -> Self;
    /// This address and all bits outside `mask`.
    fn filled(self, mask: Self) -> Self;
    /// The number of leading bits that two addresses share.
    fn common(self, other: Self) -> u8;
    /// Bit `at`, counted from the first; `at` is below `BITS`.
    fn bit(self, at: u8) -> bool;
    /// As the standard library has it, which shows it as people write it.
    fn ip(self) -> IpAddr;
    /// Reads what people write.
    fn parse(text: &str) -> Option<Self>;
    /// As the lowest bits of a number that holds any address.
    fn widen(self) -> u128;
    /// The lowest bits of such a number.
    fn narrow(wide: u128) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

macro_rules! address {
    ($int:ty, $bits:literal, $text:ty) => {
        impl Address for $int {
            const BITS: u8 = $bits;
            const ZERO: Self = 0;

            fn mask(len: u8) -> Self {
                Self::MAX
                    .checked_shl(u32::from($bits - len))
                    .unwrap_or_default()
            }

            fn masked(self, mask: Self) -> Self {
                self & mask
            }

            fn filled(self, mask: Self) -> Self {
                self | !mask
            }

            #[expect(clippy::cast_possible_truncation, reason = "at most 128")]
            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            fn bit(self, at: u8) -> bool {
                self >> ($bits - 1 - at) & 1 == 1
            }

            fn ip(self) -> IpAddr {
                <$text>::from(self).into()
            }

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok().map(<$text>::to_bits)
            }

            fn widen(self) -> u128 {
                self.into()
            }

            #[allow(clippy::cast_possible_truncation, reason = "what it is for")]
            fn narrow(wide: u128) -> Self {
                wide as Self
            }
        }
    };
}

address!(u32, 32, Ipv4Addr);
address!(u128, 128, Ipv6Addr);

/// A prefix; ordered by its first address, then shorter before longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    len: u8,
}

pub type Prefix4 = Prefix<u32>;
pub type Prefix6 = Prefix<u128>;

/// Why a text or a pair of numbers is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error("{text:?} is not a prefix: write ADDRESS/LENGTH")]
    Text { text: String },
    #[error("a prefix of {len} bits, where addresses have {bits}")]
    Length { len: u8, bits: u8 },
    #[error("{address}/{len} has bits set beyond its length: write {first}/{len}")]
    HostBits {
        address: String,
        first: String,
        len: u8,
    },
}

impl<A: Address> Prefix<A> {
    /// The prefix of all addresses.
    pub const DEFAULT: Self = Self {
        address: A::ZERO,
        len: 0,
    };

    /// # Errors
    /// A length beyond the address's, or bits set beyond the length.
    pub fn new(address: A, len: u8) -> Result<Self, PrefixError> {
        let prefix = Self::containing(address, len)?;
        if prefix.address != address {
            return Err(PrefixError::HostBits {
                address: address.ip().to_string(),
                first: prefix.address.ip().to_string(),
                len,
            });
        }
        Ok(prefix)
    }

    /// The prefix of `len` bits that holds `address`.
    ///
    /// # Errors
    /// A length beyond the address's.
    pub fn containing(address: A, len: u8) -> Result<Self, PrefixError> {
        if len > A::BITS {
            return Err(PrefixError::Length { len, bits: A::BITS });
        }
        Ok(Self::cut(address, len))
    }

    /// As `containing`, of a length known to be at most the address's.
    pub fn cut(address: A, len: u8) -> Self {
        let address = address.masked(A::mask(len));
        Self { address, len }
    }

    /// The first address.
    pub fn first(self) -> A {
        self.address
    }

    /// The last address.
    pub fn last(self) -> A {
        self.address.filled(A::mask(self.len))
    }

    /// Bits that count.
    #[expect(clippy::len_without_is_empty, reason = "a length in bits")]
    pub fn len(self) -> u8 {
        self.len
    }

    pub fn contains(self, address: A) -> bool {
        address.masked(A::mask(self.len)) == self.address
    }

    /// The address of this prefix that has the bits of `host` beyond its length.
    pub fn with_host(self, host: A) -> A {
        let host = host.masked(A::ZERO.filled(A::mask(self.len)));
        A::narrow(self.address.widen() | host.widen())
    }

    /// Whether `other` is this prefix or lies within it.
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

impl<A: Address> Default for Prefix<A> {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl<A: Address> Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.ip(), self.len)
    }
}

impl<A: Address> Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let parts = text.split_once('/').and_then(|(address, len)| {
            let digits = len.bytes().all(|byte| byte.is_ascii_digit());
            Some((A::parse(address)?, len.parse().ok().filter(|_| digits)?))
        });
        let Some((address, len)) = parts else {
            return Err(PrefixError::Text { text: text.into() });
        };
        Self::new(address, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "255.255.255.255/32"] {
            assert_eq!(text.parse::<Prefix4>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "::1/128"] {
            assert_eq!(text.parse::<Prefix6>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_prefix() {
        for text in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/256",
            "::/8",
        ] {
            let error = text.parse::<Prefix4>().unwrap_err();
            assert_eq!(error, PrefixError::Text { text: text.into() });
        }
        let error = "10.0.0.0/33".parse::<Prefix4>().unwrap_err();
        assert_eq!(error, PrefixError::Length { len: 33, bits: 32 });
        let error = "10.1.2.3/8".parse::<Prefix4>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "10.1.2.3/8 has bits set beyond its length: write 10.0.0.0/8"
        );
    }

    #[test]
    fn knows_its_bounds() {
        let prefix: Prefix4 = "10.4.0.0/14".parse().unwrap();
        assert_eq!((prefix.first(), prefix.last()), (0x0a04_0000, 0x0a07_ffff));
        assert!(prefix.covers("10.7.255.0/24".parse().unwrap()));
        assert!(!prefix.covers("10.0.0.0/8".parse().unwrap()));
        assert_eq!(Prefix6::DEFAULT.last(), u128::MAX);
        assert_eq!(prefix.with_host(0xffff_0001), 0x0a07_0001);
        assert_eq!(Prefix6::DEFAULT.with_host(u128::MAX), u128::MAX);
    }
}
