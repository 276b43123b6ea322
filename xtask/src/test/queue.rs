//! The order in which tests run: the longest first, and one at a time those that need the machine.

use super::binaries::Binary;
use super::times::Times;

/// A module of this name holds tests of which one runs at a time: each measures, and another one
/// beside it would disturb it.
const EXCLUSIVE: &str = "exclusive";

#[derive(Debug)]
pub(super) struct Test<'a> {
    pub(super) binary: &'a Binary,
    /// The name that its program knows.
    pub(super) path: String,
    /// Marked `#[ignore]`: run by `--full` only.
    pub(super) opt_in: bool,
}

/// Tests that have not begun, the longest first.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    tests: Vec<Test<'a>>,
    exclusive_runs: bool,
}

impl Test<'_> {
    /// The name that people read: package, program and path.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.binary.name(), self.path)
    }

    fn is_exclusive(&self) -> bool {
        self.path.split("::").any(|part| part == EXCLUSIVE)
            || self.binary.target.as_deref() == Some(EXCLUSIVE)
    }
}

impl<'a> Queue<'a> {
    pub(super) fn new(mut tests: Vec<Test<'a>>, times: &Times) -> Self {
        let average = times.average(tests.len());
        let seconds = |test: &Test<'_>| {
            let name = test.binary.canonical(&test.path);
            times.seconds(&name).unwrap_or(average)
        };
        // The order of equals stays, so that tests of one program follow each other.
        tests.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
        Self {
            tests,
            exclusive_runs: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tests.len()
    }

    /// Takes an exclusive test if none runs, since no other worker can help with those that are left;
    /// else the longest of the others. `None`: the worker of the exclusive test that runs takes the rest.
    pub(super) fn next(&mut self) -> Option<Test<'a>> {
        let mut tests = self.tests.iter();
        let next = if self.exclusive_runs {
            tests.position(|test| !test.is_exclusive())?
        } else {
            let exclusive = tests.position(Test::is_exclusive);
            exclusive.or_else(|| (!self.tests.is_empty()).then_some(0))?
        };
        let test = self.tests.remove(next);
        self.exclusive_runs |= test.is_exclusive();
        Some(test)
    }

    pub(super) fn end(&mut self, test: &Test<'_>) {
        self.exclusive_runs &= !test.is_exclusive();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn binary(package: &str) -> Binary {
        Binary {
            package: package.to_owned(),
            target: Some("it".to_owned()),
            program: PathBuf::new(),
            folder: PathBuf::new(),
        }
    }

    fn test<'a>(binary: &'a Binary, path: &str) -> Test<'a> {
        Test {
            binary,
            path: path.to_owned(),
            opt_in: false,
        }
    }

    #[test]
    fn longest_tests_begin_first() {
        let relay = binary("relay");
        let times = Times::parse("9.0\trelay it a::slow\n1.5\trelay it a::medium\n").unwrap();
        let tests = ["a::new", "a::medium", "a::slow", "a::other"];
        let tests = tests.map(|path| test(&relay, path)).into();
        let mut queue = Queue::new(tests, &times);
        let order: Vec<_> = std::iter::from_fn(|| queue.next())
            .map(|test| test.path)
            .collect();
        // Two unknown tests among four count as 10.5 s / 4 each.
        assert_eq!(order, ["a::slow", "a::new", "a::other", "a::medium"]);
    }

    #[test]
    fn exclusive_tests_run_one_at_a_time() {
        let relay = binary("relay");
        let tests = ["exclusive::first", "noise::exclusive::second", "plain"];
        let tests = tests.map(|path| test(&relay, path)).into();
        let mut queue = Queue::new(tests, &Times::default());
        let first = queue.next().unwrap();
        assert_eq!(first.path, "exclusive::first");
        assert_eq!(queue.next().unwrap().path, "plain");
        assert!(queue.next().is_none());
        queue.end(&first);
        assert_eq!(queue.next().unwrap().path, "noise::exclusive::second");
    }
}
