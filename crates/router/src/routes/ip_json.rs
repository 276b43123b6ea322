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
    read: |content, options, table| read(content, options.table.as_deref(), table),
};

pub(super) fn read(
    content: impl Read,
    wanted: Option<&str>,
    table: &mut Builder,
) -> Result<(), Fault> {
    let mut listing = Listing::new(wanted, table);
    let mut number = 0;
    let mut add = |route: Route| {
        number += 1;
        listing.add(route.entry()?, Place::Entry(number));
        Ok(())
    };
    json::elements(content, &mut add)?;
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
            metric: self.metric.unwrap_or(0),
            table: self.table,
            encapsulated: self.encap.is_some(),
            v6: self.pref.map(|_| true),
            ..Entry::default()
        };
        if self.dst != "default" {
            entry.prefix = Some(text::prefix(&self.dst)?);
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
            entry.hops.extend(hop.hop()?);
        }
        Ok(entry)
    }
}

impl NextHop {
    fn dead(&self) -> bool {
        self.flags.iter().any(|flag| flag == "dead")
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
