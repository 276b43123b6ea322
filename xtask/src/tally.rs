//! Counts what passed, failed and was skipped, and prints the closing line.

use std::collections::BTreeMap;
use std::time::Duration;

/// How one check or test ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// What went wrong, for the reader.
    Failed(String),
    Skipped(Skip),
}

/// A test that did not run: its class (see `sys::require`) and the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    pub(crate) class: String,
    pub(crate) reason: String,
}

impl Skip {
    pub(crate) fn new(class: &str, reason: impl Into<String>) -> Self {
        Self {
            class: class.to_owned(),
            reason: reason.into(),
        }
    }

    /// Reads the line that `sys::require::skip` prints.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (_, skip) = line.split_once("SKIP ")?;
        let (class, reason) = skip.split_once(": ")?;
        Some(Self::new(class, reason.trim_end()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeMap<Skip, Vec<String>>,
    stages: Vec<(String, Duration)>,
}

impl Tally {
    /// Adds one outcome. A core skip is a failure where `LOWROAD_REQUIRE=core`.
    pub(crate) fn add(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(why) => {
                println!("FAILED {name}\n{}", indent(&why));
                self.failed.push(name.to_owned());
            }
            Outcome::Skipped(skip) if skip.class == "core" && core_required() => {
                self.add(
                    name,
                    Outcome::Failed(format!("required here: {}", skip.reason)),
                );
            }
            Outcome::Skipped(skip) => self.skipped.entry(skip).or_default().push(name.to_owned()),
        }
    }

    /// Adds tests that were counted elsewhere and passed.
    pub(crate) fn add_passed(&mut self, tests: usize) {
        self.passed += tests;
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Notes how long a stage took, and says so.
    pub(crate) fn stage(&mut self, name: &str, took: Duration) {
        println!("== {name}: {:.1} s", took.as_secs_f64());
        self.stages.push((name.to_owned(), took));
    }

    /// Skips by class, failures by name, stage times, and the closing line.
    pub(crate) fn close(&self) {
        for (skip, tests) in &self.skipped {
            let names = match tests.as_slice() {
                [one] => one.clone(),
                many => format!("{} tests", many.len()),
            };
            println!("skipped ({}): {}: {names}", skip.class, skip.reason);
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        for (name, took) in &self.stages {
            println!("{:>7.1} s  {name}", took.as_secs_f64());
        }
        let skipped: usize = self.skipped.values().map(Vec::len).sum();
        println!(
            "{} passed, {} failed, {skipped} skipped",
            self.passed,
            self.failed.len()
        );
    }
}

fn core_required() -> bool {
    std::env::var("LOWROAD_REQUIRE").as_deref() == Ok("core")
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_a_skipped_test_prints_is_understood() {
        assert_eq!(
            Skip::parse("test x ... SKIP hardware: no GPU here"),
            Some(Skip::new("hardware", "no GPU here"))
        );
        assert_eq!(Skip::parse("skipping ahead: fine"), None);
    }
}
