//! Rules of both families, ready to be matched.

use std::time::Duration;

use acl::{Action, Address, Classifier, Key, NONE, Rule, Simd};

use crate::rules::RuleSet;

/// A rule set's classifiers, and what its rules say.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) v4: List<u32>,
    pub(super) v6: List<u128>,
}

#[derive(Debug)]
pub(super) struct List<A: Address> {
    /// None for no rules.
    classifier: Option<Classifier<A>>,
    actions: Vec<Action>,
}

impl Lists {
    pub(super) fn build(rules: &RuleSet, simd: Simd, tuning: Duration) -> Result<Self, acl::Error> {
        Ok(Self {
            v4: List::build(&rules.v4, simd, tuning)?,
            v6: List::build(&rules.v6, simd, tuning)?,
        })
    }

    /// Bytes of the structures.
    pub(super) fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// What makes lookups slow, in words.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &str> {
        let v4 = self.v4.classifier.iter().map(Classifier::report);
        let v6 = self.v6.classifier.iter().map(Classifier::report);
        v4.chain(v6)
            .flat_map(|report| report.warnings.iter().map(String::as_str))
    }
}

impl<A: Address> List<A> {
    fn build(rules: &[Rule<A>], simd: Simd, tuning: Duration) -> Result<Self, acl::Error> {
        let classifier = if rules.is_empty() {
            None
        } else {
            Some(Classifier::build(rules, acl::Options { tuning })?.with_simd(simd))
        };
        Ok(Self {
            classifier,
            actions: rules.iter().map(|rule| rule.action).collect(),
        })
    }

    /// Writes the number of each key's first matching rule.
    pub(super) fn classify(&self, keys: &[Key<A>], found: &mut [u32]) {
        match &self.classifier {
            Some(classifier) => classifier.classify(keys, found),
            None => found.fill(NONE),
        }
    }

    /// What a rule says; what no rule matches is accepted.
    #[inline]
    pub(super) fn action(&self, rule: u32) -> Action {
        self.actions.get(rule as usize).copied().unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        self.classifier
            .as_ref()
            .map_or(0, |classifier| classifier.report().bytes)
    }
}
