//! Counts what passed, failed and was skipped, and prints the closing line.

use std::collections::BTreeMap;
use std::time::Duration;

/// How one check or test ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// The failure, for the reader.
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
    stages: Vec<Stage>,
    slowest: Vec<(String, Duration)>,
}

/// A part of a run, for the table at its end.
#[derive(Debug)]
struct Stage {
    name: String,
    took: Duration,
    /// Ran at the same time as another stage, so that its time is not a share of the whole.
    concurrent: bool,
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

    /// Records how long a stage took and prints it.
    pub(crate) fn stage(&mut self, name: &str, took: Duration) {
        self.add_stage(name, took, false);
    }

    /// Records a stage that ran at the same time as the one recorded before it.
    pub(crate) fn concurrent_stage(&mut self, name: &str, took: Duration) {
        self.add_stage(name, took, true);
    }

    fn add_stage(&mut self, name: &str, took: Duration, concurrent: bool) {
        println!("== {name}: {:.1} s", took.as_secs_f64());
        self.stages.push(Stage {
            name: name.to_owned(),
            took,
            concurrent,
        });
    }

    /// Sets the tests that `close` prints as the slowest.
    pub(crate) fn set_slowest(&mut self, tests: Vec<(String, Duration)>) {
        self.slowest = tests;
    }

    /// Prints skips by class, failures by name, the slowest tests, the stages, and the closing line.
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
        if !self.slowest.is_empty() {
            println!("slowest tests:");
        }
        for (name, took) in &self.slowest {
            println!("{:>9.1} s          {name}", took.as_secs_f64());
        }
        print!("{}", stage_table(&self.stages));
        let skipped: usize = self.skipped.values().map(Vec::len).sum();
        println!(
            "{} passed, {} failed, {skipped} skipped",
            self.passed,
            self.failed.len()
        );
    }
}

/// One line for each stage: seconds, share of the run, name.
fn stage_table(stages: &[Stage]) -> String {
    let alone = stages.iter().filter(|stage| !stage.concurrent);
    let total: Duration = alone.map(|stage| stage.took).sum();
    let mut table = String::new();
    for stage in stages {
        let seconds = stage.took.as_secs_f64();
        let share = if stage.concurrent {
            "beside".to_owned()
        } else {
            format!("{:.0} %", 100.0 * seconds / total.as_secs_f64())
        };
        table.push_str(&format!("{seconds:>9.1} s {share:>7}  {}\n", stage.name));
    }
    if stages.len() > 1 {
        table.push_str(&format!("{:>9.1} s          in all\n", total.as_secs_f64()));
    }
    table
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

    #[test]
    fn concurrent_stages_are_no_share() {
        let stage = |name: &str, seconds, concurrent| Stage {
            name: name.to_owned(),
            took: Duration::from_secs(seconds),
            concurrent,
        };
        let stages = [
            stage("build", 25, false),
            stage("tests", 75, false),
            stage("guest", 60, true),
        ];
        let expected = "     25.0 s    25 %  build
     75.0 s    75 %  tests
     60.0 s  beside  guest
    100.0 s          in all
";
        assert_eq!(stage_table(&stages), expected);
    }
}
