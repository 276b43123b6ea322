//! Maps of verdicts.

use acl::Action;
use serde_json::Value;

use super::parts::{hits, misses, too_many};
use super::rule::{Reader, verdict};
use super::{selector, sets};
use crate::rules::compile::Then;

impl<'a> Reader<'a> {
    /// A map of verdicts; false, with nothing done, if it cannot be said.
    pub(super) fn map(&mut self, body: &'a Value) -> Result<bool, String> {
        let (Some(key), Some(data)) = (body.get("key"), body.get("data")) else {
            return Err("a vmap without key or data".into());
        };
        let Some(selectors) = selector::key(key) else {
            return Ok(false);
        };
        let Some(elements) = sets::elements(data, self.table)? else {
            return Ok(false);
        };
        let (mut back, mut decided, mut rest) = (Vec::new(), Vec::new(), None);
        for element in elements {
            let Some([values, target]) = element.as_array().map(Vec::as_slice) else {
                return Ok(false);
            };
            let Some(then) = verdict(target, self.table)? else {
                return Ok(false);
            };
            if sets::plain(values).is_some_and(|values| values == "*") {
                rest = Some(then);
                continue;
            }
            let Some(packets) = sets::packets([values], &selectors)? else {
                return Ok(false);
            };
            // What comes back must not meet the element for all others; the rest is decided by then.
            if matches!(then, Then::Jump(_) | Then::Continue) {
                back.push(values);
            }
            decided.push((packets, then));
        }
        let before = self.parts.clone();
        let vague = self.guard(&selectors);
        let others = match (rest, sets::packets(back, &selectors)?) {
            (Some(then), Some(back)) => misses(&self.parts, &back).map(|others| (others, then)),
            _ => None,
        };
        if rest.is_some() && others.is_none() {
            self.parts = before;
            return Ok(false);
        }
        for (packets, then) in decided {
            let met = hits(&self.parts, &packets).ok_or_else(too_many)?;
            self.decide(met, then);
        }
        if let Some((others, then)) = others {
            self.decide(others, then);
        }
        self.decide(vague, Then::Decide(Action::Punt));
        Ok(true)
    }
}

pub(super) fn describe(body: &Value) -> String {
    let key = body.get("key").map_or_else(String::new, selector::describe);
    format!("{key} vmap")
}
