//! What an experiment file may say of the router: tables, traffic, and which of them go together.

use std::fmt;

use serde::Deserialize;

use super::arms::{self, Looks};
use super::{forwarding, story};
use crate::plan::{Link, Load, LoadSource, Measure};

/// What is looked up in. The size is part of the load's name; where a table comes from is not:
/// every record says that.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
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
pub struct RuleList {
    pub name: String,
    pub size: String,
    /// As the size says: 100k is 100,000.
    pub count: usize,
}

/// What is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
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

/// `uniform 901899-prefixes`, `fw1 100k uniform`.
pub(crate) fn label(load: &Load) -> Vec<String> {
    let table = load.table.iter().map(Table::to_string);
    let traffic = load.traffic.iter().map(Traffic::to_string);
    let hops = load.next_hops.iter().map(|hops| format!("hops={hops}"));
    match &load.table {
        Some(Table::Rules(_)) => table
            .chain(traffic.filter(|traffic| traffic != "rules"))
            .collect(),
        _ => traffic.chain(table).chain(hops).collect(),
    }
}

/// Whether the router can be offered the load, and measured so under it.
pub(crate) fn check_stated(load: &Load, measure: Measure) -> Result<(), String> {
    let Some(table) = &load.table else {
        return Err("a router needs a table: ipv4, ipv6 or rules".to_owned());
    };
    let own = load.subscribers == 0
        && load.payload.is_none()
        && load.rate.is_none()
        && (load.flows.is_none() || measure == Measure::Forward)
        && load.packets.is_none()
        && load.from == LoadSource::Generator
        && load.link == Link::Direct
        && load.jitter.is_none();
    if !own {
        return Err("a router has a table, traffic and options, and nothing of packets".to_owned());
    }
    if let Table::Ipv4(0) | Table::Ipv6(0) = table {
        return Err("a table of no prefixes".to_owned());
    }
    if load
        .next_hops
        .is_some_and(|hops| !(1..=32_767).contains(&hops))
    {
        return Err("there are 1 to 32767 next hops".to_owned());
    }
    if load.next_hops.is_some() && arms::looks(table) == Looks::Rules {
        return Err("rules have no next hops".to_owned());
    }
    match measure {
        Measure::Lookup => check_traffic(table, load.traffic),
        Measure::Updates => check_updates(load),
        Measure::Forward => check_forwarding(table, load),
        Measure::Process => story::check_stated(load),
        Measure::Build if load.traffic.is_some() || !load.options.is_empty() => {
            Err("a build has no traffic and no options".to_owned())
        }
        Measure::Build => Ok(()),
        _ => Err("a router is measured by lookup, updates, build, forward and process".to_owned()),
    }
}

fn check_traffic(table: &Table, traffic: Option<Traffic>) -> Result<(), String> {
    use Traffic::{In32, Pcap, PerPrefix, Rules, Sequential, Uniform, UniformPrefix, Zipf};
    let known: &[Traffic] = match table {
        Table::Ipv4(_) => &[Uniform, PerPrefix, Zipf, Sequential],
        Table::Ipv6(_) => &[UniformPrefix, In32, Zipf],
        Table::Rules(_) => &[Rules, Uniform, Pcap],
    };
    if traffic.is_some_and(|traffic| known.contains(&traffic)) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(Traffic::to_string).collect();
    Err(format!("traffic of {table} is {}", known.join(", ")))
}

/// Flows that a load of forwarding may have: each has a frame of its own.
const MOST_FLOWS: usize = 1 << 20;

fn check_forwarding(table: &Table, load: &Load) -> Result<(), String> {
    let Table::Ipv4(_) = table else {
        return Err("forwarding is measured with an ipv4 table".to_owned());
    };
    if !load
        .flows
        .is_some_and(|flows| (1..=MOST_FLOWS).contains(&flows))
    {
        return Err(format!("forwarding needs flows, 1 to {MOST_FLOWS}"));
    }
    if load
        .next_hops
        .is_some_and(|hops| hops > forwarding::MOST_HOPS)
    {
        let most = forwarding::MOST_HOPS;
        return Err(format!("there is one link: at most {most} next hops"));
    }
    check_traffic(table, load.traffic)?;
    forwarding::check_options(load)
}

/// Updates may come at a rate; else one follows the other.
pub(super) const OFFERED: &str = "offered";

fn check_updates(load: &Load) -> Result<(), String> {
    if load.traffic.is_some() {
        return Err("updates have no traffic".to_owned());
    }
    for (name, value) in &load.options {
        if name != OFFERED || value.as_integer().is_none_or(|rate| rate <= 0) {
            return Err("the one option of updates is offered, how many a second".to_owned());
        }
    }
    Ok(())
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
