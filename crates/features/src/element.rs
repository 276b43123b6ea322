//! IPFIX information elements (RFC 7012): the element of each column and the encoding of its values.

use std::fmt;
use std::str::FromStr;

/// The enterprise number of reverse elements (RFC 5103).
const REVERSE: u32 = 29_305;

/// The encoding of a value (RFC 7011, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// In network byte order, in [`Element::length`] bytes.
    Unsigned,
    /// Milliseconds since 1970.
    Milliseconds,
    /// Seconds since 1900 and a binary fraction, as in NTP.
    Nanoseconds,
    Ipv4,
    Ipv6,
    Mac,
}

/// An information element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The enterprise that defines the element; 0 for IANA.
    pub enterprise: u32,
    pub id: u16,
    /// Bytes of a value.
    pub length: u16,
    pub encoding: Encoding,
}

const ENCODINGS: [(Encoding, &str); 6] = [
    (Encoding::Unsigned, "unsigned"),
    (Encoding::Milliseconds, "milliseconds"),
    (Encoding::Nanoseconds, "nanoseconds"),
    (Encoding::Ipv4, "ipv4"),
    (Encoding::Ipv6, "ipv6"),
    (Encoding::Mac, "mac"),
];

impl Element {
    /// An unsigned integer of `length` bytes from IANA's registry.
    pub const fn unsigned(id: u16, length: u16) -> Self {
        Self {
            enterprise: 0,
            id,
            length,
            encoding: Encoding::Unsigned,
        }
    }

    /// An element of IANA's registry with another encoding; the encoding determines the length.
    pub const fn new(id: u16, encoding: Encoding) -> Self {
        let length = match encoding {
            Encoding::Unsigned | Encoding::Milliseconds | Encoding::Nanoseconds => 8,
            Encoding::Ipv4 => 4,
            Encoding::Ipv6 => 16,
            Encoding::Mac => 6,
        };
        Self {
            enterprise: 0,
            id,
            length,
            encoding,
        }
    }

    /// The same element for the reverse direction.
    pub const fn reverse(mut self) -> Self {
        self.enterprise = REVERSE;
        self
    }
}

/// The form in the metadata of an Arrow field: enterprise, id, length and encoding.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = ENCODINGS.iter().find(|(known, _)| *known == self.encoding);
        let encoding = known.map_or("", |(_, name)| name);
        let Self {
            enterprise,
            id,
            length,
            ..
        } = self;
        write!(f, "{enterprise}/{id}/{length}/{encoding}")
    }
}

impl FromStr for Element {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(());
        let enterprise = next()?.parse().map_err(drop)?;
        let id = next()?.parse().map_err(drop)?;
        let length = next()?.parse().map_err(drop)?;
        let name = next()?;
        let known = ENCODINGS.iter().find(|(_, known)| *known == name);
        Ok(Self {
            enterprise,
            id,
            length,
            encoding: known.ok_or(())?.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_survives_its_text() {
        for element in [
            Element::unsigned(85, 8).reverse(),
            Element::new(8, Encoding::Ipv4),
            Element::new(156, Encoding::Nanoseconds),
        ] {
            assert_eq!(element.to_string().parse(), Ok(element));
        }
        assert_eq!("0/1/8".parse::<Element>(), Err(()));
    }
}
