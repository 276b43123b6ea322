//! What `ip route show` and `ip -6 route show` write, also with `table all`.

use std::io::BufRead;

use super::format::{Head, Importer};
use super::table::Builder;
use super::text::{self, AnyPrefix};
use super::{Hop, Target, bird};
use crate::budget::Exhaustion;
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
    table: &mut Builder<'_>,
) -> Result<(), Fault> {
    let budget = table.budget();
    let mut listing = Listing::new(wanted, None, table);
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
                let room = budget.room(route.hops.len() * Hop::BYTES);
                room.map_err(|exhausted| fault(exhausted.into()))?;
            }
            Some(first) => {
                if let Some((line, route)) = route.take() {
                    listing.line(route, line)?;
                }
                route = Some((number, Entry::parse(first, words).map_err(fault)?));
            }
        }
    }
    if let Some((line, route)) = route {
        listing.line(route, line)?;
    }
    listing.finish()
}

/// A route as the kernel has it.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// None: "default", of a family that is not written.
    pub(super) prefix: Option<AnyPrefix>,
    pub(super) kind: Kind,
    /// None: not listed, which is the smallest in IPv4. IPv6 routes are never listed without it.
    pub(super) metric: Option<u32>,
    pub(super) table: Option<String>,
    pub(super) hops: Vec<Hop>,
    /// What lookup by destination cannot hold, as "source-specific".
    pub(super) beyond: Option<&'static str>,
    /// Packets are wrapped: the kernel does it.
    pub(super) encapsulated: bool,
    /// It had next hops, and all were dead.
    pub(super) dead: bool,
    /// The family, where something beside the prefix says it.
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
    /// Ends the search in this table: the kernel goes on in others, by its policy rules.
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

/// Words that say nothing of where packets go: each with a value, and `lock` before it where it is locked.
const WITH_VALUE: [&str; 26] = [
    "proto",
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
    "fastopen_no_cookie",
    "ttl-propagate",
    "mark",
    "nhid",
    "error",
    "expires",
    "uid",
];
/// The same without one. iproute2 writes some of them in brackets.
const FLAGS: [&str; 11] = [
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
];
/// What `features` is followed by: any number of them, and their bits.
const FEATURES: [&str; 2] = ["ecn", "tcp_usec_ts"];

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
        words: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Hop>, String> {
        let mut words = words.peekable();
        let (mut gateway, mut interface, mut weight, mut dead) = (None, None, 1, false);
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("nothing behind {word:?}"))
            };
            match word {
                "via" => {
                    let family = value()?;
                    let other = matches!(family, "inet" | "inet6");
                    let address = text::address(if other { value()? } else { family })?;
                    // A gateway of the other family comes with its family's name.
                    self.v6 = Some(address.is_ipv6() != other);
                    gateway = Some(address);
                }
                "dev" => interface = Some(value()?.into()),
                "weight" => weight = number(value()?)?,
                "metric" => self.metric = Some(number(value()?)?),
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
                "scope" => {
                    if !matches!(value()?, "global" | "0") {
                        self.narrow();
                    }
                }
                "src" => self.v6 = Some(text::address(value()?)?.is_ipv6()),
                "features" => {
                    let known = |word: &&str| FEATURES.contains(word) || word.starts_with("0x");
                    while words.next_if(known).is_some() {}
                }
                "pref" => {
                    value()?;
                    self.v6 = Some(true);
                }
                "cache" => return Err("a route of the cache: list without it".into()),
                _ if WITH_VALUE.contains(&word) => {
                    if value()? == "lock" {
                        value()?;
                    }
                }
                _ if FLAGS.contains(&word) => {}
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
/// rest of the listing.
#[derive(Debug)]
pub(super) struct Listing<'a, 'b> {
    wanted: Option<&'a str>,
    table: &'a mut Builder<'b>,
    /// That of all routes, where it is known.
    v6: Option<bool>,
    seen: [bool; 2],
    last: Option<bool>,
    defaults: Vec<DefaultRoute>,
}

/// A default route of either family, between others.
#[derive(Debug)]
struct DefaultRoute {
    entry: Entry,
    at: Place,
    before: Option<bool>,
    behind: Option<bool>,
}

impl<'a, 'b> Listing<'a, 'b> {
    pub(super) fn new(
        wanted: Option<&'a str>,
        v6: Option<bool>,
        table: &'a mut Builder<'b>,
    ) -> Self {
        Self {
            wanted,
            table,
            v6,
            seen: [false; 2],
            last: None,
            defaults: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, entry: Entry, at: Place) -> Result<(), Exhaustion> {
        let Some(v6) = self.v6.or_else(|| entry.family()) else {
            let memory = 2 * size_of::<DefaultRoute>() + entry.hops.len() * Hop::BYTES;
            self.table.budget().hold(memory)?;
            self.defaults.push(DefaultRoute {
                entry,
                at,
                before: self.last,
                behind: None,
            });
            return Ok(());
        };
        if self
            .defaults
            .last()
            .is_some_and(|route| route.behind.is_none())
        {
            let is_open = |route: &&mut DefaultRoute| route.behind.is_none();
            let open = self.defaults.iter_mut().rev().take_while(is_open);
            open.for_each(|route| route.behind = Some(v6));
        }
        self.seen[usize::from(v6)] = true;
        self.last = Some(v6);
        self.place(entry, v6, at)
    }

    fn line(&mut self, entry: Entry, line: u64) -> Result<(), Fault> {
        let added = self.add(entry, Place::Line(line));
        added.map_err(|exhausted| Fault::line(line, exhausted))
    }

    pub(super) fn finish(mut self) -> Result<(), Fault> {
        for route in std::mem::take(&mut self.defaults) {
            let Some(v6) = route.family(self.seen) else {
                let what =
                    "a default route of which nothing says the family: write 0.0.0.0/0 or ::/0";
                return Err(Fault::new(route.at, what));
            };
            let placed = self.place(route.entry, v6, route.at);
            placed.map_err(|exhausted| Fault::new(route.at, exhausted))?;
        }
        Ok(())
    }

    fn place(&mut self, entry: Entry, v6: bool, at: Place) -> Result<(), Exhaustion> {
        let table = entry.table.as_deref();
        let usual = match (self.wanted, table) {
            (None, None | Some("main" | "local" | "254" | "255")) => true,
            (Some(wanted), table) => table.unwrap_or("main") == wanted,
            (None, Some(_)) => false,
        };
        let why = match entry.kind {
            _ if !usual => "a route of another table",
            _ if entry.beyond.is_some() => entry.beyond.unwrap_or_default(),
            Kind::Unicast if entry.hops.is_empty() && entry.dead => "a route whose device is down",
            _ => "",
        };
        if !why.is_empty() {
            self.table.leave_out(why, at);
            return Ok(());
        }
        // The kernel looks into the table local first.
        let local = matches!(table, Some("local" | "255"));
        let metric = entry.metric.unwrap_or(0);
        let metric = u64::from(!local) << 32 | u64::from(metric);
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
        self.table.route(prefix, metric, target, at)
    }
}

impl DefaultRoute {
    /// The family, by those of all other routes and by the routes around it.
    fn family(&self, seen: [bool; 2]) -> Option<bool> {
        match seen {
            [true, false] => return Some(false),
            [false, true] => return Some(true),
            [false, false] => return None,
            [true, true] => {}
        }
        if self.entry.metric.is_none() {
            return Some(false);
        }
        match (self.before, self.behind) {
            (Some(before), Some(behind)) if before == behind => Some(before),
            // All IPv4 routes are listed before the others.
            (Some(true), None) => Some(true),
            (None, Some(false)) => Some(false),
            _ => None,
        }
    }
}

impl Entry {
    /// Notes a scope that is not global, as no route of IPv6 has.
    pub(super) fn narrow(&mut self) {
        self.v6.get_or_insert(false);
    }

    fn family(&self) -> Option<bool> {
        match self.prefix {
            Some(AnyPrefix::V4(_)) => Some(false),
            Some(AnyPrefix::V6(_)) => Some(true),
            None => self.v6,
        }
    }
}
