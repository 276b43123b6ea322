//! What `ip -json route show` writes.

use std::io::Read;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::format::Importer;
use super::ip::{Entry, Kind, Listing};
use super::table::Builder;
use super::{Hop, text};
use crate::error::{Fault, Place};
use crate::json;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| Ok(head.first == Some('[')),
    read: |content, options, table| read(content, None, options.table.as_deref(), table),
};

/// Reads a listing, of one family where it is known.
pub(super) fn read(
    content: impl Read,
    v6: Option<bool>,
    wanted: Option<&str>,
    table: &mut Builder<'_>,
) -> Result<(), Fault> {
    let budget = table.budget();
    let mut listing = Listing::new(wanted, v6, table);
    json::elements(content, budget, |number, route: Route| {
        Ok(listing.add(route.entry()?, Place::Entry(number))?)
    })?;
    listing.finish()
}

#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    metric: Option<u32>,
    table: Option<String>,
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    nexthops: Vec<NextHop>,
    tos: Option<IgnoredAny>,
    from: Option<String>,
    encap: Option<IgnoredAny>,
    pref: Option<IgnoredAny>,
    scope: Option<String>,
    prefsrc: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NextHop {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    weight: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
    encap: Option<IgnoredAny>,
}

/// A gateway of the other family.
#[derive(Debug, Deserialize)]
struct Via {
    host: String,
}

impl Route {
    fn entry(self) -> Result<Entry, String> {
        let kind = self.kind.as_deref().unwrap_or("unicast");
        let mut entry = Entry {
            kind: Kind::named(kind).ok_or_else(|| format!("{kind:?} is no type of a route"))?,
            metric: self.metric,
            table: self.table,
            encapsulated: self.encap.is_some(),
            v6: self.pref.map(|_| true),
            ..Entry::default()
        };
        if self.dst != "default" {
            entry.prefix = Some(text::prefix(&self.dst)?);
        }
        if let Some(source) = &self.prefsrc {
            entry.v6 = Some(text::address(source)?.is_ipv6());
        }
        if self
            .scope
            .is_some_and(|scope| scope != "global" && scope != "0")
        {
            entry.narrow();
        }
        if self.tos.is_some() {
            entry.beyond = Some("a route for one type of service");
        }
        if self.from.is_some_and(|from| from != "default") {
            entry.beyond = Some("a route for some sources only");
        }
        let own = NextHop {
            gateway: self.gateway,
            via: self.via,
            dev: self.dev,
            weight: None,
            flags: self.flags,
            encap: None,
        };
        for hop in std::iter::once(own).chain(self.nexthops) {
            entry.encapsulated |= hop.encap.is_some();
            entry.dead |= hop.dead();
            entry.v6 = hop.v6().or(entry.v6);
            entry.hops.extend(hop.hop()?);
        }
        Ok(entry)
    }
}

impl NextHop {
    fn dead(&self) -> bool {
        self.flags.iter().any(|flag| flag == "dead")
    }

    /// The family of its route: `via` has a gateway of the other one.
    fn v6(&self) -> Option<bool> {
        match (&self.gateway, &self.via) {
            (Some(gateway), _) => Some(gateway.contains(':')),
            (None, Some(via)) => Some(!via.host.contains(':')),
            (None, None) => None,
        }
    }

    fn hop(self) -> Result<Option<Hop>, String> {
        let dead = self.dead();
        let gateway = self.gateway.or_else(|| self.via.map(|via| via.host));
        let gateway = gateway.as_deref().map(text::address).transpose()?;
        if dead || (gateway.is_none() && self.dev.is_none()) {
            return Ok(None);
        }
        let weight = self.weight.unwrap_or(1).max(1);
        Ok(Some(Hop {
            gateway,
            interface: self.dev.map(Into::into),
            weight: u16::try_from(weight).unwrap_or(u16::MAX),
        }))
    }
}
