//! A list of rules that does not change, ready for lookups.

use crate::Simd;
use crate::address::Address;
use crate::build::{BuildReport, Options, build};
use crate::error::Error;
use crate::lookup;
use crate::rule::{Key, Rule};
use crate::table::Table;

/// Finds the first rule of a list that matches, in batches.
#[derive(Debug)]
pub struct Classifier<A: Address> {
    table: Table<A>,
    report: BuildReport,
    simd: Simd,
}

impl<A: Address> Classifier<A> {
    /// The classifier of a list, in which earlier rules come first.
    ///
    /// # Errors
    /// A list too long, or no memory.
    pub fn build(rules: &[Rule<A>], options: Options) -> Result<Self, Error> {
        let (table, report) = build(rules, 0.., options, true)?;
        let simd = Simd::widest();
        Ok(Self {
            table,
            report,
            simd,
        })
    }

    /// The same with these instructions, if the machine has them; else nothing changes.
    #[must_use]
    pub fn with_simd(mut self, simd: Simd) -> Self {
        if simd.is_available() {
            self.simd = simd;
        }
        self
    }

    /// Writes the index of each key's first matching rule, or [`NONE`](crate::NONE). Fastest with
    /// multiples of [`BATCH`](crate::BATCH) keys.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn classify(&self, keys: &[Key<A>], found: &mut [u32]) {
        lookup::classify(&self.table, self.simd, keys, found);
    }

    /// The report of the build.
    pub fn report(&self) -> &BuildReport {
        &self.report
    }
}
