//! What lookups read: a table, and the rules that came and went since it was built.

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

/// A list as it was, with the deaths of its rules since.
#[derive(Debug)]
pub(super) struct Base<A: Address> {
    table: Table<A>,
    pub(super) rules: Vec<Rule<A>>,
    /// Ascending.
    pub(super) numbers: Vec<u32>,
    /// For each rule the update that took it away, else 0.
    deaths: Vec<AtomicU64>,
    any_death: AtomicBool,
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
        let deaths = rules.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            table,
            rules,
            numbers,
            deaths,
            any_death: AtomicBool::new(false),
            report,
        })
    }

    /// Whether a rule is there after update `time`.
    pub(super) fn alive(&self, index: u32, time: u64) -> bool {
        let death = self.deaths[index as usize].load(Ordering::Acquire);
        death == 0 || death > time
    }

    /// Takes a rule away from lookups of update `time` and later; nothing if it was never here.
    pub(super) fn erase(&self, number: u32, time: u64) {
        if let Ok(index) = self.numbers.binary_search(&number) {
            self.deaths[index].store(time, Ordering::Release);
            self.any_death.store(true, Ordering::Release);
        }
    }

    /// Writes the number of each key's first rule after update `time`, or [`NONE`].
    fn classify(&self, simd: Simd, keys: &[Key<A>], time: u64, found: &mut [u32]) {
        lookup::classify(&self.table, simd, keys, found);
        let deaths = self.any_death.load(Ordering::Acquire);
        for (key, found) in keys.iter().zip(found) {
            if *found == NONE {
                continue;
            }
            if deaths && !self.alive(*found, time) {
                let alive = |index| self.alive(index, time);
                *found = lookup::first_alive(&self.table, key, alive);
            }
            *found = self.numbers.get(*found as usize).copied().unwrap_or(NONE);
        }
    }
}

/// All that one lookup needs. A newer one replaces it when a merge begins and when it ends.
#[derive(Debug)]
pub(super) struct Version<A: Address> {
    pub(super) base: Arc<Base<A>>,
    /// What is being merged into the next base.
    pub(super) frozen: Option<Arc<Delta<A>>>,
    /// Where rules come in.
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
