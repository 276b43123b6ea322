//! Which format a file has.

use super::text;
use crate::error::{Fault, Place};
use crate::named::named;

/// Formats of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// MRT `TABLE_DUMP_V2` (RFC 6396, RFC 8050): RouteViews, RIPE RIS, `dump routes` of daemons.
    Mrt,
    /// CAIDA's prefix-to-AS lists.
    Pfx2as,
    /// `ip route show`.
    IpRoute,
    /// `ip -json route show`.
    IpRouteJson,
    /// `birdc show route`.
    Bird,
    /// `vtysh -c 'show ip route json'`.
    FrrJson,
    /// A prefix a line, optionally with a next hop.
    Plain,
}

/// A name that is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no format of routes: mrt, pfx2as, ip-route, ip-route-json, bird, frr-json or plain"
)]
pub struct UnknownFormat(String);

named! { Format or UnknownFormat:
    Mrt = "mrt",
    Pfx2as = "pfx2as",
    IpRoute = "ip-route",
    IpRouteJson = "ip-route-json",
    Bird = "bird",
    FrrJson = "frr-json",
    Plain = "plain",
}

/// The format of content that begins with `head`.
pub(super) fn detect(head: &[u8]) -> Result<Format, Fault> {
    let unknown = |what: &str| Err(Fault::new(Place::File, what));
    if head.is_empty() {
        return unknown("empty");
    }
    // Time, type, subtype, length: no text has zero bytes.
    if let [_, _, _, _, 0, kind, 0, _, ..] = head {
        return match kind {
            12 => unknown(
                "an MRT TABLE_DUMP, which has no 4-byte AS numbers: convert it to TABLE_DUMP_V2",
            ),
            13 => Ok(Format::Mrt),
            16 | 17 => unknown("an MRT log of BGP messages, not a table: give the RIB dump"),
            _ => unknown("an MRT record that is no TABLE_DUMP_V2"),
        };
    }
    if head.contains(&0) {
        return unknown("neither text nor MRT");
    }
    let head = String::from_utf8_lossy(head);
    match head.trim_start().chars().next() {
        Some('[') => return Ok(Format::IpRouteJson),
        Some('{') => return Ok(Format::FrrJson),
        _ => {}
    }
    let said = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    head.lines()
        .find(said)
        .map_or_else(|| unknown("no route in it"), |line| Ok(of_line(line)))
}

fn of_line(line: &str) -> Format {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_prefix = |word: &str| text::prefix(word).is_ok();
    let bird_kinds = ["unicast", "blackhole", "unreachable", "prohibited"];
    match words.as_slice() {
        ["BIRD", ..] | ["Table", _] => Format::Bird,
        [prefix, kind, rest, ..]
            if is_prefix(prefix) && bird_kinds.contains(kind) && rest.starts_with('[') =>
        {
            Format::Bird
        }
        [address, length, _]
            if is_prefix(address) && !address.contains('/') && length.parse::<u8>().is_ok() =>
        {
            Format::Pfx2as
        }
        [
            "default" | "local" | "broadcast" | "multicast" | "anycast" | "throw" | "unreachable"
            | "prohibit" | "blackhole" | "unicast",
            ..,
        ] => Format::IpRoute,
        [_, "via", _, "dev" | "proto", ..]
        | [_, "dev", _, _, ..]
        | [
            _,
            "nhid" | "proto" | "metric" | "scope" | "table" | "encap",
            ..,
        ] => Format::IpRoute,
        _ => Format::Plain,
    }
}
