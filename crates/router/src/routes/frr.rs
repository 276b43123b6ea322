//! What FRR's `show ip route json` and `show ipv6 route json` write: of each prefix, the route
//! that FRR selected.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::format::Importer;
use super::table::Builder;
use super::{Hop, Target, text};
use crate::error::{Fault, Place};

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| Ok(head.first == Some('{')),
    read: |content, _, table| read(content, table),
};

pub(super) fn read(content: impl Read, table: &mut Builder) -> Result<(), Fault> {
    let mut json = serde_json::Deserializer::from_reader(content);
    let prefixes = Prefixes { table, number: 0 };
    json.deserialize_map(prefixes).map_err(Fault::json)?;
    json.end().map_err(Fault::json)
}

/// An object whose keys are prefixes.
struct Prefixes<'a> {
    table: &'a mut Builder,
    number: u64,
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

impl<'de> Visitor<'de> for Prefixes<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of prefixes, as `show ip route json` writes it")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.number += 1;
            let prefix = text::prefix(&key).map_err(|_| {
                M::Error::custom(format!(
                    "{key:?} is not a prefix: give the routes of one VRF, as `show ip route json` writes them"
                ))
            })?;
            let routes: Vec<Route> = map.next_value()?;
            let at = Place::Entry(self.number);
            let mut selected = routes.iter().filter(|route| route.selected).count();
            for route in routes {
                if !route.selected {
                    self.table.leave_out("a route that is not selected", at);
                    continue;
                }
                selected -= 1;
                let target = route
                    .target()
                    .map_err(|what| M::Error::custom(format!("{key}: {what}")))?;
                match target {
                    Some(target) => {
                        let target = self.table.target(target);
                        self.table.add(prefix, u32::from(selected > 0), target, at);
                    }
                    None => self
                        .table
                        .leave_out("a route without an active next hop", at),
                }
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
