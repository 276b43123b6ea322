//! The entries of a listing, one after the other: those that rules are made of are kept.

use std::cell::Cell;
use std::fmt;
use std::io::Read;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::members::only;
use crate::budget::Budget;
use crate::error::{Fault, Place};
use crate::json::{self, Elements};

/// An object of one member, which names its kind.
pub(super) struct Entry {
    /// From 1.
    pub(super) number: u64,
    value: Value,
}

impl Entry {
    pub(super) fn parts(&self) -> (u64, &str, &Value) {
        let (kind, body) = only(&self.value).unwrap_or(("", &Value::Null));
        (self.number, kind, body)
    }
}

/// Tables, chains, rules, sets and maps.
pub(super) fn read(content: impl Read, budget: &Budget) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    let mut refusal = None;
    let mut take = |number, value: Value, memory: usize| {
        let kept = is_kept(&value);
        if kept.is_err() {
            refusal = Some(Place::Entry(number));
        }
        if kept? {
            budget.hold(2 * size_of::<Entry>() + memory)?;
            entries.push(Entry { number, value });
        }
        Ok(())
    };
    let read = json::read(content, budget, |json, number| {
        json.deserialize_map(Listing {
            budget,
            number,
            take: &mut take,
        })
    });
    match (read, refusal) {
        // A listing is one line, which says nothing.
        (Err(Fault::Input { what, .. }), Some(place)) => Err(Fault::new(place, what)),
        (read, _) => read.map(|()| entries),
    }
}

/// Whether rules are made of an entry.
fn is_kept(entry: &Value) -> Result<bool, String> {
    let (kind, body) = only(entry).ok_or("no entry of a listing: an object of one member")?;
    match kind {
        "table" | "chain" | "rule" | "set" | "map" => Ok(true),
        "metainfo" => match body.get("json_schema_version").and_then(Value::as_u64) {
            None | Some(1) => Ok(false),
            Some(version) => Err(format!("version {version} of the format: 1 is read")),
        },
        "flowtable" | "counter" | "quota" | "limit" | "ct helper" | "ct timeout"
        | "ct expectation" | "secmark" | "synproxy" | "tunnel" => Ok(false),
        other => Err(format!(
            "{other:?} is no entry of a listing: take what `nft -j list ruleset` writes"
        )),
    }
}

struct Listing<'a, F> {
    budget: &'a Budget,
    number: &'a Cell<u64>,
    take: &'a mut F,
}

impl<'de, F> Visitor<'de> for Listing<'_, F>
where
    F: FnMut(u64, Value, usize) -> Result<(), String>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the member \"nftables\"")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name != "nftables" {
                let what =
                    format!("{name:?} beside \"nftables\": take what `nft -j list ruleset` writes");
                return Err(M::Error::custom(what));
            }
            map.next_value_seed(Elements {
                budget: self.budget,
                number: self.number,
                take: &mut *self.take,
            })?;
        }
        Ok(())
    }
}
