//! The right side of a match: values, sets and maps of them.

use serde_json::Value;

use super::Table;
use super::members::{list, only, text};
use super::selector::{Selector, Subject};
use crate::budget::{Budget, Exhaustion};
use crate::rules::region::{Field, Ranges, Region};
use crate::rules::values;

/// Steps of work that an element takes.
const ELEMENT: usize = 16;

/// A named set or map.
pub(super) struct Set<'a> {
    elements: &'a [Value],
    /// The kernel puts elements in and takes them out.
    pub(super) changes: bool,
}

impl<'a> Set<'a> {
    pub(super) fn new(body: &'a Value) -> Self {
        let changing = |flag: &Value| matches!(flag.as_str(), Some("dynamic" | "timeout"));
        let flagged = list(body, "flags").iter().any(changing);
        let timed = body.get("timeout").is_some();
        // Counters count; other statements are conditions.
        let counts = |statement: &Value| only(statement).is_some_and(|(name, _)| name == "counter");
        let conditional = !list(body, "stmt").iter().all(counts);
        Self {
            elements: list(body, "elem"),
            changes: flagged || timed || conditional,
        }
    }
}

/// The set or map that a statement changes.
pub(super) fn changed(statement: &Value) -> Option<&str> {
    let (kind, body) = only(statement)?;
    let set = match kind {
        "set" | "map" => body.get(kind)?,
        _ => return None,
    };
    set.as_str()?.strip_prefix('@')
}

/// Elements of `@name`, of an anonymous set, or the one value; nothing of sets that change.
pub(super) fn elements<'a>(
    right: &'a Value,
    table: &Table<'a>,
) -> Result<Option<&'a [Value]>, String> {
    if let Some(name) = right.as_str().and_then(|word| word.strip_prefix('@')) {
        let set = table.sets.get(name);
        let set = set.ok_or_else(|| format!("no set or map {name} in the table"))?;
        return Ok((!set.changes).then_some(set.elements));
    }
    if let Some(elements) = right.get("set") {
        return Ok(elements.as_array().map(Vec::as_slice));
    }
    Ok(Some(std::slice::from_ref(right)))
}

/// The packets whose selected parts are in one of the elements; nothing if one cannot be said.
pub(super) fn packets<'a>(
    elements: impl IntoIterator<Item = &'a Value>,
    selectors: &[Selector],
    budget: &Budget,
) -> Result<Option<Vec<Region>>, String> {
    if let [selector] = selectors {
        let mut all = Vec::new();
        for element in elements {
            budget.work(ELEMENT)?;
            let Some(found) = plain(element).map(|value| values(value, *selector)) else {
                return Ok(None);
            };
            let Some(bounds) = found? else {
                return Ok(None);
            };
            all.push(bounds);
        }
        budget.room(all.len() * size_of::<(u128, u128)>())?;
        return Ok(Some(regions(&[(*selector, Ranges::new(all))], budget)?));
    }
    let (mut all, mut bytes) = (Vec::new(), 0);
    for element in elements {
        budget.work(ELEMENT)?;
        let Some(value) = plain(element) else {
            return Ok(None);
        };
        let parts = if value == "*" {
            vec![value; selectors.len()]
        } else {
            match value.get("concat").and_then(Value::as_array) {
                Some(parts) if parts.len() == selectors.len() => parts.iter().collect(),
                _ => return Ok(None),
            }
        };
        let mut tuple = Vec::with_capacity(parts.len());
        for (part, selector) in parts.into_iter().zip(selectors) {
            let Some((low, high)) = values(part, *selector)? else {
                return Ok(None);
            };
            tuple.push((*selector, Ranges::one(low, high)));
        }
        let regions = regions(&tuple, budget)?;
        bytes += regions.iter().map(Region::bytes).sum::<usize>();
        budget.room(bytes)?;
        all.extend(regions);
    }
    Ok(Some(all))
}

/// An element without its comment and counter; nothing if it is more than its value.
pub(super) fn plain(element: &Value) -> Option<&Value> {
    match only(element) {
        Some(("elem", body)) => {
            let members = body.as_object()?;
            let harmless = |name: &String| matches!(name.as_str(), "val" | "comment" | "counter");
            members.get("val").filter(|_| members.keys().all(harmless))
        }
        _ => Some(element),
    }
}

/// Packets that have all of these.
pub(super) fn regions(
    tuple: &[(Selector, Ranges)],
    budget: &Budget,
) -> Result<Vec<Region>, Exhaustion> {
    let mut regions = Vec::with_capacity(2);
    for v6 in [false, true] {
        let is_other = |(selector, values): &(Selector, Ranges)| match selector.of {
            Subject::Field(Field::Source | Field::Destination) => {
                selector.v6.is_some_and(|family| family != v6)
            }
            Subject::Field(_) => false,
            Subject::Family => {
                let this = Ranges::one(family(v6), family(v6));
                values.intersect(&this).is_empty()
            }
        };
        if tuple.iter().any(is_other) {
            continue;
        }
        let mut region = Region::all(v6);
        for (selector, values) in tuple {
            if let Subject::Field(field) = selector.of {
                region.keep(field, values, false, budget)?;
            }
        }
        if !region.is_empty() {
            regions.push(region);
        }
    }
    Ok(regions)
}

/// Its number among families of addresses.
fn family(v6: bool) -> u128 {
    if v6 { 10 } else { 2 }
}

/// The first and the last of a value, a prefix or a range; nothing if it is another thing.
pub(super) fn values(value: &Value, selector: Selector) -> Result<Option<(u128, u128)>, String> {
    if value == "*" {
        return Ok(Some((0, u128::MAX)));
    }
    if let Some(range) = value.get("range").and_then(Value::as_array) {
        let [low, high] = range.as_slice() else {
            return Err(format!("{value}: no range of two"));
        };
        let (Some(low), Some(high)) = (single(low, selector)?, single(high, selector)?) else {
            return Ok(None);
        };
        if low.0 > high.1 {
            return Err(format!("{value}: the first is above the last"));
        }
        return Ok(Some((low.0, high.1)));
    }
    if let Some(prefix) = value.get("prefix") {
        let length = prefix.get("len").and_then(Value::as_u64);
        let length = length.ok_or_else(|| format!("{value}: no length of a prefix"))?;
        let prefix = format!("{}/{length}", text(prefix, "addr")?);
        return single(&Value::String(prefix), selector);
    }
    single(value, selector)
}

fn single(value: &Value, selector: Selector) -> Result<Option<(u128, u128)>, String> {
    let word = match value {
        Value::String(word) => word.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Ok(None),
    };
    let ranges = match selector.of {
        Subject::Field(Field::Source | Field::Destination) => {
            let (v6, ranges) = values::addresses(&word)?;
            if selector.v6 != Some(v6) {
                return Err(format!("{word} is of the other family"));
            }
            ranges
        }
        Subject::Field(Field::SourcePort | Field::DestinationPort) => values::ports(&word, '-')?,
        // What /etc/protocols calls 0.
        Subject::Field(Field::Protocol) => match word.as_str() {
            "ip" | "hopopt" => Ranges::one(0, 0),
            word => values::protocol(word)?,
        },
        Subject::Family => match word.as_str() {
            "ipv4" | "ip" | "2" => Ranges::one(family(false), family(false)),
            "ipv6" | "ip6" | "10" => Ranges::one(family(true), family(true)),
            _ => return Ok(None),
        },
    };
    Ok(ranges.hull())
}
