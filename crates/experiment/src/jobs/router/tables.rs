//! Tables that a router looks up in, and the traffic that it looks up, as experiment files state them.

use std::fmt;

use serde::Deserialize;

/// The table of a lookup. Its size is part of the load's name. Its source is not, but is in every
/// record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Table {
    /// So many prefixes: the corpus's table when it has as many, else generated ones.
    Ipv4(usize),
    /// As `Ipv4`.
    Ipv6(usize),
    /// A list of five-tuple rules: the corpus's of this name, else a generated one.
    Rules(RuleList),
}

/// A rule list's name and size: `fw1 100k`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct RuleList {
    pub(super) name: String,
    pub(super) size: String,
    /// As the size says: 100k is 100,000.
    pub(super) count: usize,
}

/// The keys of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Traffic {
    /// Addresses from anywhere: of prefixes, those that have a route.
    Uniform,
    /// A random address of a random prefix.
    PerPrefix,
    /// A random address of a prefix that is drawn in proportion to 1/rank.
    Zipf,
    /// Every 671st address that has a route.
    Sequential,
    /// `PerPrefix`, as it is called of IPv6.
    UniformPrefix,
    /// A random address of a random prefix that is not longer than /32.
    #[serde(rename = "in-32")]
    In32,
    /// Packets that the rules were written for.
    Rules,
    /// The packets of captures, in their order.
    Pcap,
    /// UDP datagrams from and to any address and port, whatever the tables have.
    Random,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(count) | Self::Ipv6(count) => write!(f, "{count}-prefixes"),
            Self::Rules(list) => write!(f, "{} {}", list.name, list.size),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::PerPrefix => "per-prefix",
            Self::Zipf => "zipf",
            Self::Sequential => "sequential",
            Self::UniformPrefix => "uniform-prefix",
            Self::In32 => "in-32",
            Self::Rules => "rules",
            Self::Pcap => "pcap",
            Self::Random => "random",
        })
    }
}

impl TryFrom<String> for RuleList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a list's name and size, such as \"fw1 100k\"");
        let (name, size) = text.split_once(' ').ok_or_else(wrong)?;
        let (digits, factor): (_, usize) = match size.strip_suffix('k') {
            Some(digits) => (digits, 1000),
            None => (size, 1),
        };
        let count = digits.parse::<usize>().ok();
        let count = count.filter(|count| (1..=1000).contains(count));
        let plain = |c: char| c.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Self {
            count: count.ok_or_else(wrong)? * factor,
            name: name.to_owned(),
            size: size.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_name_and_a_size() {
        let list = RuleList::try_from("fw1 100k".to_owned()).unwrap();
        assert_eq!((list.name.as_str(), list.count), ("fw1", 100_000));
        assert_eq!(
            RuleList::try_from("acl1 300".to_owned()).unwrap().count,
            300
        );
        for text in ["fw1", "fw1 ", "fw1 0", "fw1 k", "../x 1k", "fw1 9999k"] {
            assert!(RuleList::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
