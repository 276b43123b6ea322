//! The left side of a match: what of a packet is compared.

use serde_json::Value;

use super::members::only;
use super::parts::Part;
use crate::budget::{Budget, Exhaustion};
use crate::rules::region::{Field, Ranges, Region};

/// A part of the five-tuple, and the packets that have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector {
    pub(super) of: Subject,
    /// Only packets of this family.
    pub(super) v6: Option<bool>,
    pub(super) protocols: Protocols,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Field(Field),
    Family,
}

/// Protocols of packets that a selector is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocols {
    All,
    One(u8),
    /// All of them have bytes where those with ports have ports; keys have only ports.
    Ports,
}

/// Protocols with ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

pub(super) fn with_ports() -> Ranges {
    Ranges::new(
        WITH_PORTS
            .map(|number| (number.into(), number.into()))
            .into(),
    )
}

impl Selector {
    /// Keeps the packets that have it for certain; whether there are any.
    pub(super) fn guard(self, region: &mut Region, budget: &Budget) -> Result<bool, Exhaustion> {
        if self.v6.is_some_and(|v6| v6 != region.v6) {
            return Ok(false);
        }
        let protocols = match self.protocols {
            Protocols::All => return Ok(!region.is_empty()),
            Protocols::One(number) => Ranges::one(number.into(), number.into()),
            Protocols::Ports => with_ports(),
        };
        region.keep(Field::Protocol, &protocols, false, budget)?;
        Ok(!region.is_empty())
    }

    /// Those of the parts that have it for certain.
    pub(super) fn guard_all(
        self,
        parts: Vec<Part>,
        budget: &Budget,
    ) -> Result<Vec<Part>, Exhaustion> {
        let mut kept = Vec::with_capacity(parts.len());
        for mut part in parts {
            if self.guard(&mut part.region, budget)? {
                kept.push(part);
            }
        }
        Ok(kept)
    }
}

/// The selectors of one or of a concatenation; nothing if one of them is beyond five-tuples.
pub(super) fn key(left: &Value) -> Option<Vec<Selector>> {
    match only(left)? {
        ("concat", parts) => {
            let parts = parts.as_array().filter(|parts| !parts.is_empty())?;
            parts.iter().map(selector).collect()
        }
        _ => Some(vec![selector(left)?]),
    }
}

fn selector(left: &Value) -> Option<Selector> {
    let (kind, body) = only(left)?;
    let word = |name: &str| body.get(name).and_then(Value::as_str);
    let new = |of, v6, protocols| Selector { of, v6, protocols };
    let field = |field, v6| new(Subject::Field(field), v6, Protocols::All);
    if kind == "meta" {
        return match word("key")? {
            "l4proto" => Some(field(Field::Protocol, None)),
            "nfproto" | "protocol" => Some(new(Subject::Family, None, Protocols::All)),
            _ => None,
        };
    }
    if kind != "payload" {
        return None;
    }
    let (header, name) = (word("protocol")?, word("field")?);
    match (header, name) {
        ("ip", "saddr") => Some(field(Field::Source, Some(false))),
        ("ip", "daddr") => Some(field(Field::Destination, Some(false))),
        ("ip", "protocol") => Some(field(Field::Protocol, Some(false))),
        ("ip6", "saddr") => Some(field(Field::Source, Some(true))),
        ("ip6", "daddr") => Some(field(Field::Destination, Some(true))),
        ("ip6", "nexthdr") => Some(field(Field::Protocol, Some(true))),
        (header, "sport" | "dport") => {
            let field = if name == "sport" {
                Field::SourcePort
            } else {
                Field::DestinationPort
            };
            let protocols = match header {
                "th" => Protocols::Ports,
                _ => Protocols::One(protocol(header)?),
            };
            Some(new(Subject::Field(field), None, protocols))
        }
        _ => None,
    }
}

/// What packets must be for a selector beyond five-tuples to be compared.
pub(super) fn implied(left: &Value) -> Option<Selector> {
    let (kind, body) = only(left)?;
    if kind == "&" {
        return implied(body.as_array()?.first()?);
    }
    if kind != "payload" {
        return None;
    }
    let header = body.get("protocol").and_then(Value::as_str)?;
    let (v6, protocols) = match header {
        "ip" => (Some(false), Protocols::All),
        "ip6" => (Some(true), Protocols::All),
        header => (None, Protocols::One(protocol(header)?)),
    };
    let of = Subject::Family;
    Some(Selector { of, v6, protocols })
}

fn protocol(header: &str) -> Option<u8> {
    Some(match header {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "dccp" => 33,
        "icmpv6" => 58,
        "sctp" => 132,
        "udplite" => 136,
        _ => return None,
    })
}

/// As rules write it, as far as a note needs.
pub(super) fn describe(left: &Value) -> String {
    let Some((kind, body)) = only(left) else {
        return "its match".to_owned();
    };
    let word = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    match (kind, body.as_array()) {
        ("payload", _) => format!("{} {}", word("protocol"), word("field")),
        ("meta" | "ct" | "rt" | "socket", _) => format!("{kind} {}", word("key")),
        ("concat", Some(parts)) => {
            let parts: Vec<_> = parts.iter().map(describe).collect();
            parts.join(" . ")
        }
        ("&" | "|" | "^" | "<<" | ">>", Some(parts)) => {
            parts.first().map_or_else(|| kind.to_owned(), describe)
        }
        _ => kind.to_owned(),
    }
}
