//! The data that lookups read: a table, and the rules that were inserted and erased since it was built.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Simd;
use crate::address::Address;
use crate::build::{BuildReport, Options, build};
use crate::error::Error;
use crate::lookup;
use crate::rule::{Key, NONE, Rule};
use crate::table::Table;

use super::delta::Delta;

/// A list as it was when its table was built, and the erasures since.
#[derive(Debug)]
pub(super) struct Base<A: Address> {
    table: Table<A>,
    pub(super) rules: Vec<Rule<A>>,
    /// Ascending.
    pub(super) numbers: Vec<u32>,
    /// For each rule the update that erased it, or 0.
    erasures: Vec<AtomicU64>,
    any_erasure: AtomicBool,
    pub(super) report: BuildReport,
}

impl<A: Address> Base<A> {
    /// The table of rules in ascending order of number.
    pub(super) fn build(
        rules: Vec<Rule<A>>,
        numbers: Vec<u32>,
        options: Options,
    ) -> Result<Self, Error> {
        let (table, report) = build(&rules, 0.., options, false)?;
        let erasures = rules.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            table,
            rules,
            numbers,
            erasures,
            any_erasure: AtomicBool::new(false),
            report,
        })
    }

    /// Whether a rule is there after update `time`.
    pub(super) fn is_live(&self, index: u32, time: u64) -> bool {
        let erased_at = self.erasures[index as usize].load(Ordering::Acquire);
        erased_at == 0 || erased_at > time
    }

    /// Erases a rule for lookups of update `time` and later. Does nothing if the rule was never here.
    pub(super) fn erase(&self, number: u32, time: u64) {
        if let Ok(index) = self.numbers.binary_search(&number) {
            self.erasures[index].store(time, Ordering::Release);
            self.any_erasure.store(true, Ordering::Release);
        }
    }

    /// Writes the number of each key's first rule after update `time`, or [`NONE`].
    fn classify(&self, simd: Simd, keys: &[Key<A>], time: u64, found: &mut [u32]) {
        lookup::classify(&self.table, simd, keys, found);
        let erasures = self.any_erasure.load(Ordering::Acquire);
        for (key, found) in keys.iter().zip(found) {
            if *found == NONE {
                continue;
            }
            if erasures && !self.is_live(*found, time) {
                let is_live = |index| self.is_live(index, time);
                *found = lookup::first_live(&self.table, key, is_live);
            }
            *found = self.numbers.get(*found as usize).copied().unwrap_or(NONE);
        }
    }
}

/// All that one lookup needs. A newer one replaces it when a merge begins and when it ends.
#[derive(Debug)]
pub(super) struct Version<A: Address> {
    pub(super) base: Arc<Base<A>>,
    /// The delta that is being merged into the next base.
    pub(super) frozen: Option<Arc<Delta<A>>>,
    /// The delta that new rules go into.
    pub(super) active: Arc<Delta<A>>,
}

impl<A: Address> Version<A> {
    pub(super) fn classify(&self, simd: Simd, keys: &[Key<A>], time: u64, found: &mut [u32]) {
        self.base.classify(simd, keys, time, found);
        for delta in self.frozen.iter().chain([&self.active]) {
            delta.improve(simd, keys, time, found);
        }
    }
}
