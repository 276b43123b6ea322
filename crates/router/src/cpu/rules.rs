//! Rules of both families, ready to be matched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use acl::{Action, Address, Classifier, Key, NONE, Rule, Simd};

use crate::rules::{Hits, RuleSet};

/// A rule set's classifiers, what its rules say, and how often they did.
#[derive(Debug)]
pub struct Lists {
    pub(super) v4: List<u32>,
    pub(super) v6: List<u128>,
    /// Of each thread that there was.
    counts: Mutex<Vec<Arc<Counts>>>,
}

/// One thread's, which alone writes it: how often each rule was the first to match; last, how often none
/// was. Nothing where there are no rules.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) v4: Box<[AtomicU64]>,
    pub(super) v6: Box<[AtomicU64]>,
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
            counts: Mutex::default(),
        })
    }

    /// For another thread to count by.
    pub(super) fn count(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts {
            v4: self.v4.counts(),
            v6: self.v6.counts(),
        });
        self.counts().push(Arc::clone(&counts));
        counts
    }

    /// How often each rule matched, and how often none did, by all threads.
    pub(super) fn hits(&self) -> [Hits; 2] {
        let counts = self.counts();
        let v4 = sum(self.v4.actions.len(), counts.iter().map(|one| &*one.v4));
        [
            v4,
            sum(self.v6.actions.len(), counts.iter().map(|one| &*one.v6)),
        ]
    }

    fn counts(&self) -> MutexGuard<'_, Vec<Arc<Counts>>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn counts(&self) -> Box<[AtomicU64]> {
        let length = match self.actions.len() {
            0 => 0,
            rules => rules + 1,
        };
        (0..length).map(|_| AtomicU64::new(0)).collect()
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

/// Counts what was found for a batch of keys.
#[inline]
pub(super) fn count(counts: &[AtomicU64], found: &[u32]) {
    let Some(none) = counts.len().checked_sub(1) else {
        return;
    };
    for rule in found {
        let count = &counts[none.min(*rule as usize)];
        // Nobody else writes it.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

fn sum<'a>(rules: usize, counts: impl Iterator<Item = &'a [AtomicU64]>) -> Hits {
    let mut sums = vec![0; rules + 1];
    for counts in counts {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
    let none = sums.pop().unwrap_or_default();
    Hits { rules: sums, none }
}
