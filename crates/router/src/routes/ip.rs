//! What `ip route show` and `ip -6 route show` write, also with `table all`.

use std::io::BufRead;
use std::net::IpAddr;

use super::format::{Head, Importer};
use super::table::Builder;
use super::text::{self, AnyPrefix};
use super::{Hop, Target, bird};
use crate::error::{Fault, Place};
use crate::lines::Lines;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| Ok(recognizes(head)),
    read: |content, options, table| read(content, options.table.as_deref(), table),
};

/// Types of routes that a line may begin with, and the default route.
const BEGINNINGS: [&str; 10] = [
    "default",
    "local",
    "broadcast",
    "multicast",
    "anycast",
    "throw",
    "unreachable",
    "prohibit",
    "blackhole",
    "unicast",
];

fn recognizes(head: &Head<'_>) -> bool {
    // `default unicast [` begins a line of BIRD.
    if bird::recognizes(head) {
        return false;
    }
    match head.words.as_slice() {
        [first, ..] if BEGINNINGS.contains(first) => true,
        [_, "via", _, "dev" | "proto", ..] | [_, "dev", _, _, ..] => true,
        [_, second, ..] => ["nhid", "proto", "metric", "scope", "table", "encap"].contains(second),
        _ => false,
    }
}

pub(super) fn read(
    content: impl BufRead,
    wanted: Option<&str>,
    table: &mut Builder,
) -> Result<(), Fault> {
    let mut listing = Listing::new(wanted, table);
    let mut route: Option<(u64, Entry)> = None;
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        let mut words = line.split_whitespace();
        let fault = |what| Fault::line(number, what);
        match words.next() {
            None => {}
            Some("nexthop") if line.starts_with([' ', '\t']) => {
                let Some((_, route)) = &mut route else {
                    return Err(fault("a next hop before its route".into()));
                };
                route.next_hop(words).map_err(fault)?;
            }
            Some(first) => {
                if let Some((line, route)) = route.take() {
                    listing.add(route, Place::Line(line));
                }
                route = Some((number, Entry::parse(first, words).map_err(fault)?));
            }
        }
    }
    if let Some((line, route)) = route {
        listing.add(route, Place::Line(line));
    }
    listing.finish()
}

/// A route as the kernel has it.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// None: "default", of a family that is not written.
    pub(super) prefix: Option<AnyPrefix>,
    pub(super) kind: Kind,
    pub(super) metric: u32,
    pub(super) table: Option<String>,
    pub(super) hops: Vec<Hop>,
    /// What lookup by destination cannot hold, as "source-specific".
    pub(super) beyond: Option<&'static str>,
    /// Packets are wrapped: the kernel does it.
    pub(super) encapsulated: bool,
    /// It had next hops, and all were dead.
    pub(super) dead: bool,
    pub(super) v6: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Unicast,
    Blackhole,
    Unreachable,
    Prohibit,
    Kernel,
    /// Ends the search in this table.
    Throw,
}

impl Kind {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "unicast" => Self::Unicast,
            "blackhole" => Self::Blackhole,
            "unreachable" => Self::Unreachable,
            "prohibit" => Self::Prohibit,
            "local" | "broadcast" | "multicast" | "anycast" | "nat" => Self::Kernel,
            "throw" => Self::Throw,
            _ => return None,
        })
    }
}

/// Words that say nothing of where packets go: each with a value.
const WITH_VALUE: [&str; 26] = [
    "proto",
    "scope",
    "src",
    "preference",
    "pref",
    "realm",
    "realms",
    "mtu",
    "advmss",
    "rtt",
    "rttvar",
    "reordering",
    "window",
    "cwnd",
    "initcwnd",
    "initrwnd",
    "ssthresh",
    "hoplimit",
    "quickack",
    "congctl",
    "rto_min",
    "features",
    "nhid",
    "error",
    "expires",
    "uid",
];
/// The same without one. iproute2 writes some of them in brackets.
const ALONE: [&str; 12] = [
    "onlink",
    "linkdown",
    "pervasive",
    "offload",
    "trap",
    "notify",
    "unresolved",
    "rt_offload",
    "rt_trap",
    "offload_failed",
    "rt_offload_failed",
    "lock",
];

impl Entry {
    fn parse<'a>(first: &'a str, mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut entry = Self::default();
        let destination = match Kind::named(first) {
            Some(kind) => {
                entry.kind = kind;
                words.next().ok_or("no destination")?
            }
            None => first,
        };
        if destination != "default" {
            entry.prefix = Some(text::prefix(destination)?);
        }
        let hop = entry.attributes(words)?;
        entry.hops.extend(hop);
        Ok(entry)
    }

    fn next_hop<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let hop = self.attributes(words)?;
        self.hops.extend(hop);
        Ok(())
    }

    /// Takes what stands behind a destination or "nexthop"; returns the next hop, if it is alive.
    fn attributes<'a>(
        &mut self,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Hop>, String> {
        let (mut gateway, mut interface, mut weight, mut dead) = (None, None, 1, false);
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("nothing behind {word:?}"))
            };
            match word {
                "via" => {
                    let mut address = value()?;
                    if matches!(address, "inet" | "inet6") {
                        address = value()?;
                    }
                    gateway = Some(text::address(address)?);
                }
                "dev" => interface = Some(value()?.into()),
                "weight" => weight = number(value()?)?,
                "metric" => self.metric = number(value()?)?,
                "table" => self.table = Some(value()?.to_owned()),
                "tos" | "dsfield" => {
                    value()?;
                    self.beyond = Some("a route for one type of service");
                }
                "from" => {
                    if value()? != "default" {
                        self.beyond = Some("a route for some sources only");
                    }
                }
                "encap" => {
                    self.encapsulated = true;
                    // How many words follow depends on the kind; the device is the last of interest.
                    interface = words
                        .by_ref()
                        .skip_while(|word| *word != "dev")
                        .nth(1)
                        .map(Into::into);
                }
                "dead" => dead = true,
                "pref" => {
                    value()?;
                    self.v6 = Some(true);
                }
                "cache" => return Err("a route of the cache: list without it".into()),
                _ if WITH_VALUE.contains(&word) => {
                    value()?;
                }
                _ if ALONE.contains(&word) => {}
                _ => return Err(format!("{word:?} is no word of a route")),
            }
        }
        if dead {
            self.dead = true;
            return Ok(None);
        }
        let weight = weight.min(u32::from(u16::MAX)).max(1);
        let somewhere = gateway.is_some() || interface.is_some();
        Ok(somewhere.then_some(Hop {
            gateway,
            interface,
            weight: u16::try_from(weight).unwrap_or(u16::MAX),
        }))
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// Routes of the tables wanted. A default route does not say its family: its own words do, or the
/// rest of the listing, which is of one.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    wanted: Option<&'a str>,
    table: &'a mut Builder,
    seen: [bool; 2],
    unclear: Vec<(Entry, Place)>,
}

impl<'a> Listing<'a> {
    pub(super) fn new(wanted: Option<&'a str>, table: &'a mut Builder) -> Self {
        Self {
            wanted,
            table,
            seen: [false; 2],
            unclear: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, entry: Entry, at: Place) {
        match entry.family() {
            Some(v6) => {
                self.seen[usize::from(v6)] = true;
                self.place(entry, v6, at);
            }
            None => self.unclear.push((entry, at)),
        }
    }

    pub(super) fn finish(mut self) -> Result<(), Fault> {
        for (entry, at) in std::mem::take(&mut self.unclear) {
            let v6 = match self.seen {
                [true, false] => false,
                [false, true] => true,
                _ => {
                    let what =
                        "a default route of which nothing says the family: write 0.0.0.0/0 or ::/0";
                    return Err(Fault::new(at, what));
                }
            };
            self.place(entry, v6, at);
        }
        Ok(())
    }

    fn place(&mut self, entry: Entry, v6: bool, at: Place) {
        let usual = match (self.wanted, entry.table.as_deref()) {
            (None, None | Some("main" | "local" | "254" | "255")) => true,
            (Some(wanted), table) => table.unwrap_or("main") == wanted,
            (None, Some(_)) => false,
        };
        let why = match entry.kind {
            _ if !usual => "a route of another table",
            Kind::Throw => "a route that ends the search in a table",
            _ if entry.beyond.is_some() => entry.beyond.unwrap_or_default(),
            Kind::Unicast if entry.hops.is_empty() && entry.dead => "a route whose device is down",
            _ => "",
        };
        if !why.is_empty() {
            return self.table.leave_out(why, at);
        }
        let prefix = entry.prefix.unwrap_or_else(|| text::default_like(v6));
        let target = match entry.kind {
            Kind::Unicast if !entry.encapsulated && !entry.hops.is_empty() => {
                Target::Hops(entry.hops)
            }
            Kind::Blackhole => Target::Blackhole,
            Kind::Unreachable => Target::Unreachable,
            Kind::Prohibit => Target::Prohibit,
            Kind::Unicast | Kind::Kernel | Kind::Throw => Target::Kernel,
        };
        let target = self.table.target(target);
        self.table.add(prefix, entry.metric, target, at);
    }
}

impl Entry {
    fn family(&self) -> Option<bool> {
        match self.prefix {
            Some(AnyPrefix::V4(_)) => return Some(false),
            Some(AnyPrefix::V6(_)) => return Some(true),
            None => {}
        }
        let mut gateways = self.hops.iter().filter_map(|hop| hop.gateway);
        // An IPv4 route may have an IPv6 gateway, so that one alone says nothing where others do.
        match gateways.next() {
            Some(IpAddr::V4(_)) => Some(false),
            _ => self.v6,
        }
    }
}
