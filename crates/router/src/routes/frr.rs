//! What FRR's `show ip route json` and `show ipv6 route json` write: of each prefix, the route
//! that FRR selected.

use std::cell::Cell;
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::format::Importer;
use super::table::Builder;
use super::{Hop, Target, text};
use crate::budget::Budget;
use crate::error::{Fault, Place};
use crate::json::{self, Elements};

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| Ok(head.first == Some('{')),
    read: |content, _, table| read(content, table),
};

pub(super) fn read(content: impl Read, table: &mut Builder<'_>) -> Result<(), Fault> {
    let budget = table.budget();
    json::read(content, budget, |json, number| {
        json.deserialize_map(Prefixes {
            table,
            budget,
            number,
        })
    })
}

/// An object whose keys are prefixes.
struct Prefixes<'a, 'b> {
    table: &'a mut Builder<'b>,
    budget: &'b Budget,
    number: &'a Cell<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Route {
    #[serde(default)]
    selected: bool,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NextHop {
    ip: Option<String>,
    interface_name: Option<String>,
    weight: Option<u32>,
    #[serde(default)]
    active: bool,
    /// Resolved by others of the list.
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    duplicate: bool,
    #[serde(default)]
    blackhole: bool,
    #[serde(default)]
    reject: bool,
    #[serde(default, rename = "adminProhibited")]
    prohibited: bool,
    #[serde(default)]
    labels: Vec<u32>,
}

impl<'de> Visitor<'de> for Prefixes<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of prefixes, as `show ip route json` writes it")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.number.set(self.number.get() + 1);
            let prefix = text::prefix(&key).map_err(|_| {
                M::Error::custom(format!(
                    "{key:?} is not a prefix: give the routes of one VRF, as `show ip route json` writes them"
                ))
            })?;
            let at = Place::Entry(self.number.get());
            let mut last: Option<Target> = None;
            let mut take = |_: u64, route: Value, _: usize| {
                let route: Route =
                    serde_json::from_value(route).map_err(|error| error.to_string())?;
                if !route.selected {
                    self.table.leave_out("a route that is not selected", at);
                    return Ok(());
                }
                let target = route.target().map_err(|what| format!("{key}: {what}"))?;
                let Some(target) = target else {
                    let why = "a route without an active next hop";
                    self.table.leave_out(why, at);
                    return Ok(());
                };
                // The last that is selected counts.
                if let Some(before) = last.replace(target) {
                    self.table.route(prefix, 1, before, at)?;
                }
                Ok(())
            };
            map.next_value_seed(Elements {
                budget: self.budget,
                number: &Cell::new(0),
                take: &mut take,
            })?;
            if let Some(target) = last {
                let added = self.table.route(prefix, 0, target, at);
                added.map_err(M::Error::custom)?;
            }
        }
        Ok(())
    }
}

impl Route {
    fn target(self) -> Result<Option<Target>, String> {
        let mut hops = Vec::new();
        for hop in self.nexthops {
            if !hop.active || hop.recursive || hop.duplicate {
                continue;
            }
            if hop.prohibited {
                return Ok(Some(Target::Prohibit));
            }
            if hop.reject {
                return Ok(Some(Target::Unreachable));
            }
            if hop.blackhole {
                return Ok(Some(Target::Blackhole));
            }
            if !hop.labels.is_empty() {
                return Ok(Some(Target::Kernel));
            }
            let gateway = hop.ip.as_deref().map(text::address).transpose()?;
            if gateway.is_none() && hop.interface_name.is_none() {
                return Err("a next hop that leads nowhere".into());
            }
            let weight = hop.weight.unwrap_or(1).max(1);
            hops.push(Hop {
                gateway,
                interface: hop.interface_name.map(Into::into),
                weight: u16::try_from(weight).unwrap_or(u16::MAX),
            });
        }
        Ok((!hops.is_empty()).then_some(Target::Hops(hops)))
    }
}
