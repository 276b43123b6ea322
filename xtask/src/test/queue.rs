//! The order in which tests run: the longest first, as many at once as keep the CPUs busy, and one at a time those that
//! need the machine.
//!
//! Most tests wait more than they compute, some for many seconds. How many CPUs each keeps busy is known from an earlier
//! run, so that CPUs that would wait with one test are given another.

use super::binaries::Binary;
use super::times::{Cost, Times};

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

/// Tests that have not begun, the longest first, and what those that run keep busy.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    /// Each with the CPUs that it keeps busy.
    tests: Vec<(Test<'a>, f64)>,
    exclusive_runs: bool,
    running: usize,
    /// What the tests that run keep busy, in CPUs.
    busy: f64,
}

/// A test that has begun.
#[derive(Debug)]
pub(super) struct Running<'a> {
    pub(super) test: Test<'a>,
    cpus: f64,
}

/// What a worker without a test does.
#[derive(Debug)]
pub(super) enum Next<'a> {
    Begin(Running<'a>),
    /// The CPUs are busy, or only exclusive tests are left and one of them runs.
    Wait,
    /// Every test has begun.
    End,
}

/// What a test counts for that was not measured, as a short one: as much as the average of those that were.
const UNKNOWN_CPUS: f64 = 0.5;
/// The least that a test counts for: one that waits starts processes and has them scheduled all the same.
const MIN_CPUS: f64 = 0.25;
/// How many tests may run for each CPU, whatever they compute: each takes memory as well.
const MAX_TESTS_PER_CPU: usize = 3;

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
    pub(super) fn new(tests: Vec<Test<'a>>, times: &Times) -> Self {
        let average = times.average(tests.len());
        let with_cost = |test: Test<'a>| {
            let cost = times.cost(&test.binary.canonical(&test.path));
            let seconds = cost.map_or(average, |cost| cost.seconds);
            let cpus = cost.and_then(Cost::cpus).unwrap_or(UNKNOWN_CPUS);
            let cpus = cpus.max(MIN_CPUS);
            (seconds, (test, cpus))
        };
        let mut tests: Vec<_> = tests.into_iter().map(with_cost).collect();
        // The order of equals stays, so that tests of one program follow each other.
        tests.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self {
            tests: tests.into_iter().map(|(_, test)| test).collect(),
            exclusive_runs: false,
            running: 0,
            busy: 0.0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tests.len()
    }

    /// How many tests may run at once on so many CPUs.
    pub(super) fn most_at_once(cpus: usize) -> usize {
        cpus.saturating_mul(MAX_TESTS_PER_CPU)
    }

    /// Takes an exclusive test if none runs, since those that are left follow each other; else the longest of the
    /// others. It begins unless those that run keep `cpus` CPUs busy: the last one to begin may exceed them, for a CPU
    /// that waits is worse than one that is shared. One test runs always.
    pub(super) fn next(&mut self, cpus: f64) -> Next<'a> {
        if self.tests.is_empty() {
            return Next::End;
        }
        if self.running > 0 && self.busy >= cpus {
            return Next::Wait;
        }
        let mut tests = self.tests.iter();
        let next = if self.exclusive_runs {
            tests.position(|(test, _)| !test.is_exclusive())
        } else {
            let exclusive = tests.position(|(test, _)| test.is_exclusive());
            exclusive.or(Some(0))
        };
        let Some(next) = next else {
            return Next::Wait;
        };
        let (test, cpus) = self.tests.remove(next);
        self.exclusive_runs |= test.is_exclusive();
        self.running += 1;
        self.busy += cpus;
        Next::Begin(Running { test, cpus })
    }

    pub(super) fn end(&mut self, ended: &Running<'_>) {
        self.exclusive_runs &= !ended.test.is_exclusive();
        self.running -= 1;
        self.busy -= ended.cpus;
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

    fn begun(next: Next<'_>) -> Option<Running<'_>> {
        match next {
            Next::Begin(running) => Some(running),
            Next::Wait | Next::End => None,
        }
    }

    #[test]
    fn longest_tests_begin_first() {
        let relay = binary("relay");
        let times = "9.0\t9.0\trelay it a::slow\n1.5\t1.5\trelay it a::medium\n";
        let times = Times::parse(times).unwrap();
        let tests = ["a::new", "a::medium", "a::slow", "a::other"];
        let tests = tests.map(|path| test(&relay, path)).into();
        let mut queue = Queue::new(tests, &times);
        let order: Vec<_> = std::iter::from_fn(|| begun(queue.next(9.0)))
            .map(|running| running.test.path)
            .collect();
        // Two unknown tests among four count as 10.5 s / 4 each.
        assert_eq!(order, ["a::slow", "a::new", "a::other", "a::medium"]);
        assert!(matches!(queue.next(9.0), Next::End));
    }

    #[test]
    fn tests_that_wait_leave_cpus_to_others() {
        let relay = binary("relay");
        let times =
            "9.0\t2.7\trelay it waits\n8.0\t0.0\trelay it sleeps\n7.0\t7.0\trelay it computes\n";
        let times = Times::parse(times).unwrap();
        let tests = ["new", "computes", "sleeps", "waits"];
        let tests = tests.map(|path| test(&relay, path)).into();
        let mut queue = Queue::new(tests, &times);
        // 0.3 and 0.1 CPUs leave room, the third test exceeds the one there is.
        let running: Vec<_> = std::iter::from_fn(|| begun(queue.next(1.0))).collect();
        let paths: Vec<&str> = running.iter().map(|one| one.test.path.as_str()).collect();
        assert_eq!(paths, ["waits", "sleeps", "computes"]);
        assert!(matches!(queue.next(1.0), Next::Wait));
        queue.end(&running[2]);
        assert!(begun(queue.next(1.0)).is_some());
    }

    #[test]
    fn one_test_runs_where_nothing_is_free() {
        let relay = binary("relay");
        let tests = ["one", "other"].map(|path| test(&relay, path)).into();
        let mut queue = Queue::new(tests, &Times::default());
        let first = begun(queue.next(0.0)).unwrap();
        assert!(matches!(queue.next(0.0), Next::Wait));
        queue.end(&first);
        assert!(begun(queue.next(0.0)).is_some());
    }

    #[test]
    fn exclusive_tests_run_one_at_a_time() {
        let relay = binary("relay");
        let tests = ["exclusive::first", "noise::exclusive::second", "plain"];
        let tests = tests.map(|path| test(&relay, path)).into();
        let mut queue = Queue::new(tests, &Times::default());
        let first = begun(queue.next(9.0)).unwrap();
        assert_eq!(first.test.path, "exclusive::first");
        assert_eq!(begun(queue.next(9.0)).unwrap().test.path, "plain");
        assert!(matches!(queue.next(9.0), Next::Wait));
        queue.end(&first);
        let second = begun(queue.next(9.0)).unwrap();
        assert_eq!(second.test.path, "noise::exclusive::second");
    }
}
