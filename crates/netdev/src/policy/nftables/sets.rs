//! Looking partly known keys up in sets and maps.

use super::ruleset::{Element, Mapped, Set};
use crate::policy::packet::{Bits, Truth};

/// The elements that may hold the key, each with whether it surely does. Where one surely does, it is the only one.
pub(super) fn lookup<'a>(set: &'a Set, key: &Bits) -> Vec<(Truth, Option<&'a Mapped>)> {
    let mut found = Vec::new();
    let mut catch_all = None;
    let ends = if set.is_interval() && set.parts.is_empty() {
        intervals(set)
    } else {
        let elements = set.elements.iter();
        elements.map(|element| (element, None)).collect()
    };
    for (element, end) in ends {
        if element.is_catch_all() {
            catch_all = Some(element);
            continue;
        }
        let truth = match (&element.last, end) {
            (Some(last), _) => within(&set.parts, key, &element.key, last),
            (None, _) if !set.is_interval() || !set.parts.is_empty() => key.equals(&element.key),
            (None, Some(end)) => {
                let reached = key.is_at_least(end).negate_if(true);
                key.is_at_least(&element.key).and(reached)
            }
            (None, None) => key.is_at_least(&element.key),
        };
        match truth {
            Truth::True => return vec![(Truth::True, element.value.as_ref())],
            Truth::Unknown => found.push((Truth::Unknown, element.value.as_ref())),
            Truth::False => {}
        }
    }
    if let Some(element) = catch_all {
        let truth = if found.is_empty() {
            Truth::True
        } else {
            Truth::Unknown
        };
        found.push((truth, element.value.as_ref()));
    }
    found
}

/// The elements at which intervals start, with the key at which each ends, exclusively; none where it is open.
fn intervals(set: &Set) -> Vec<(&Element, Option<&[u8]>)> {
    let mut sorted: Vec<&Element> = set.elements.iter().collect();
    // Where one interval ends and the next starts at the same key, the start counts.
    sorted.sort_by(|one, other| {
        let keys = one.key.cmp(&other.key);
        keys.then(other.is_interval_end().cmp(&one.is_interval_end()))
    });
    let mut intervals = Vec::new();
    for (at, element) in sorted.iter().enumerate() {
        if element.is_catch_all() {
            intervals.push((*element, None));
        } else if !element.is_interval_end() {
            let end = sorted.get(at + 1).map(|next| next.key.as_slice());
            intervals.push((*element, end));
        }
    }
    intervals
}

/// Whether every part of the key is within the same part of `first` and `last`.
fn within(parts: &[usize], key: &Bits, first: &[u8], last: &[u8]) -> Truth {
    let whole = [first.len()];
    let parts = if parts.is_empty() { &whole[..] } else { parts };
    let mut truth = Truth::True;
    let mut at = 0;
    for length in parts {
        let (Some(first), Some(last)) = (first.get(at..at + length), last.get(at..at + length))
        else {
            return Truth::Unknown;
        };
        let part = key.slice(at, *length);
        truth = truth.and(part.is_at_least(first).and(part.is_at_most(last)));
        at += length.next_multiple_of(4);
    }
    truth
}
