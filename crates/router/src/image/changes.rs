//! What differs between two images: routes by prefix, rules by what they match and in which order.

use std::cmp::Ordering;
use std::collections::HashMap;

use acl::{Action, Rule};
use foldhash::fast::RandomState;
use lpm::{Prefix, Rib};

use super::Image;
use crate::routes::Target;
use crate::rules::{RuleText, action};

/// What has to be done to the old one.
#[derive(Debug, Default)]
pub struct Changes {
    /// Prefixes, and what they lead to.
    pub routes: Vec<Change>,
    /// What rules match, and their actions.
    pub rules: Vec<Change>,
    /// Rules of both that another order has brought before or behind others.
    pub moved: usize,
}

/// Something that came (nothing before), went (nothing after) or became something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub what: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.rules.is_empty() && self.moved == 0
    }
}

/// What differs between `old` and `new`.
pub fn changes(old: &Image, new: &Image) -> Changes {
    let mut changes = Changes::default();
    routes(targets4(old), targets4(new), &mut changes.routes);
    routes(targets6(old), targets6(new), &mut changes.routes);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let (mut before6, mut after6) = (Vec::new(), Vec::new());
    for (image, v4, v6) in [
        (old, &mut before, &mut before6),
        (new, &mut after, &mut after6),
    ] {
        if let Some(rules) = &image.rules {
            v4.extend(&rules.v4);
            v6.extend(&rules.v6);
        }
    }
    rules(&before, &after, &mut changes);
    rules(&before6, &after6, &mut changes);
    changes
}

/// Prefixes in order, with what they lead to.
type RouteTargets<'a, A> = Vec<(Prefix<A>, &'a Target)>;

fn targets4(image: &Image) -> RouteTargets<'_, u32> {
    let tables = image.tables.as_ref();
    tables.map_or_else(Vec::new, |tables| targets(tables.fib4.rib(), &tables.hops4))
}

fn targets6(image: &Image) -> RouteTargets<'_, u128> {
    let tables = image.tables.as_ref();
    tables.map_or_else(Vec::new, |tables| targets(tables.fib6.rib(), &tables.hops6))
}

fn targets<'a, A: lpm::Address>(rib: &Rib<A>, hops: &'a [Target]) -> RouteTargets<'a, A> {
    let target = |hop: lpm::NextHop| hops.get(usize::from(hop.get()) - 1);
    rib.iter()
        .filter_map(|(prefix, hop)| Some((prefix, target(hop)?)))
        .collect()
}

fn routes<A: lpm::Address>(
    old: RouteTargets<'_, A>,
    new: RouteTargets<'_, A>,
    changes: &mut Vec<Change>,
) {
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((before, _)), Some((after, _))) => before.cmp(after),
        };
        let before = (order != Ordering::Greater).then(|| old.next()).flatten();
        let after = (order != Ordering::Less).then(|| new.next()).flatten();
        let Some((prefix, _)) = before.or(after) else {
            return;
        };
        let (before, after) = (before.map(|(_, to)| to), after.map(|(_, to)| to));
        if before != after {
            changes.push(Change {
                what: prefix.to_string(),
                before: before.map(Target::to_string),
                after: after.map(Target::to_string),
            });
        }
    }
}

/// What a rule matches; the how manieth of those that match the same.
type Match<A> = (Rule<A>, u32);

fn rules<A: acl::Address>(old: &[&Rule<A>], new: &[&Rule<A>], changes: &mut Changes)
where
    Rule<A>: std::hash::Hash,
{
    let after: HashMap<Match<A>, usize, RandomState> = matches(new).into_iter().zip(0..).collect();
    let mut stayed = vec![false; new.len()];
    let mut places = Vec::with_capacity(old.len());
    for (rule, matched) in old.iter().zip(matches(old)) {
        let found = after.get(&matched).copied();
        if let Some(place) = found {
            stayed[place] = true;
            places.push(place);
        }
        let action = found.map(|place| new[place].action);
        if action != Some(rule.action) {
            changes.rules.push(change(rule, Some(rule.action), action));
        }
    }
    for (rule, _) in new.iter().zip(stayed).filter(|(_, stayed)| !stayed) {
        changes.rules.push(change(rule, None, Some(rule.action)));
    }
    changes.moved += places.len() - longest_ascending(&places);
}

fn change<A: acl::Address>(
    rule: &Rule<A>,
    before: Option<Action>,
    after: Option<Action>,
) -> Change {
    let shown = RuleText(rule).to_string();
    let what = shown
        .rsplit_once(' ')
        .map_or(shown.as_str(), |(what, _)| what);
    Change {
        what: what.to_owned(),
        before: before.map(|before| action(before).to_owned()),
        after: after.map(|after| action(after).to_owned()),
    }
}

fn matches<A: acl::Address>(rules: &[&Rule<A>]) -> Vec<Match<A>>
where
    Rule<A>: std::hash::Hash,
{
    let mut seen: HashMap<Rule<A>, u32, RandomState> = HashMap::default();
    let mut all = Vec::with_capacity(rules.len());
    for rule in rules {
        let bare = Rule {
            action: Action::Accept,
            id: 0,
            ..(*rule).clone()
        };
        let count = seen.entry(bare.clone()).or_insert(0);
        all.push((bare, *count));
        *count += 1;
    }
    all
}

/// How many numbers the longest ascending selection has: patience sorting.
fn longest_ascending(numbers: &[usize]) -> usize {
    let mut tops: Vec<usize> = Vec::new();
    for &number in numbers {
        let pile = tops.partition_point(|&top| top < number);
        match tops.get_mut(pile) {
            Some(top) => *top = number,
            None => tops.push(number),
        }
    }
    tops.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_can_stay() {
        assert_eq!(longest_ascending(&[]), 0);
        assert_eq!(longest_ascending(&[0, 1, 2]), 3);
        assert_eq!(longest_ascending(&[2, 0, 1, 3]), 3);
        assert_eq!(longest_ascending(&[3, 2, 1]), 1);
    }
}
