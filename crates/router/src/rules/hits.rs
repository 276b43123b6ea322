//! Hit counts of rules, and rules with their counts for output.

use serde::Serialize;

use super::RuleSet;

/// How often each rule of a list was the first to match, in the list's order, and how often none was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub rules: Vec<u64>,
    pub none: u64,
}

impl Hits {
    /// Adds what was counted of the same list elsewhere.
    pub(crate) fn merge(&mut self, other: &Self) {
        let length = self.rules.len().max(other.rules.len());
        self.rules.resize(length, 0);
        for (hits, others) in self.rules.iter_mut().zip(&other.rules) {
            *hits += others;
        }
        self.none += other.none;
    }
}

/// A rule in force, and the packets that it decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleHits {
    /// 4 or 6.
    pub family: u8,
    /// Empty of what no rule decided about.
    pub place: String,
    pub text: String,
    /// None where they are not counted.
    pub packets: Option<u64>,
}

/// The rules of both families in order, each family's followed by what no rule of it matched.
pub fn rule_hits(set: &RuleSet, hits: Option<&[Hits; 2]>) -> Vec<RuleHits> {
    let v4 = set.v4.iter().map(|rule| rule.id);
    let v6 = set.v6.iter().map(|rule| rule.id);
    let mut all = of_family(set, 4, v4, hits.map(|hits| &hits[0]));
    all.extend(of_family(set, 6, v6, hits.map(|hits| &hits[1])));
    all
}

fn of_family(
    set: &RuleSet,
    family: u8,
    ids: impl Iterator<Item = u32>,
    hits: Option<&Hits>,
) -> Vec<RuleHits> {
    let rule = |(at, id): (usize, u32)| {
        let origin = set.origins.get(id as usize);
        RuleHits {
            family,
            place: origin.map_or_else(String::new, |origin| origin.place.to_string()),
            text: origin.map_or_else(String::new, |origin| origin.text.to_string()),
            packets: hits.and_then(|hits| hits.rules.get(at).copied()),
        }
    };
    let mut rule_hits: Vec<RuleHits> = ids.enumerate().map(rule).collect();
    if !rule_hits.is_empty() {
        rule_hits.push(RuleHits {
            family,
            place: String::new(),
            text: "no rule: accepted".to_owned(),
            packets: hits.map(|hits| hits.none),
        });
    }
    rule_hits
}
