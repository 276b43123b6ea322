//! Runs each test in a process of its own under a deadline, as many at a time as keep the CPUs busy.
//!
//! A test that says it needs root is run again through sudo, where that is allowed: tests name
//! their needs themselves, and everything else stays the user's.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::binaries::Suite;
use super::child;
use super::queue::{Next, Queue, Running, Test};
use super::times::{Cost, Times};
use super::{Options, Tests};
use crate::tally::{Outcome, Skip, Tally};

/// A test that has not ended by then never will.
const DEADLINE_S: u32 = 400;
/// Tests of `--full` may take this long.
const FULL_DEADLINE_S: u32 = 3600;
/// The variables that `--full` sets: tests that run on request, and longer fuzzing. Fuzzing once takes 18 s
/// of CPU time: a hundred times, a quarter of an hour on two cores.
const FULL: [(&str, &str); 2] = [("LOWROAD_OPT_IN", "1"), ("LOWROAD_FUZZ", "100")];
/// How many of the slowest tests are named.
const REPORTED_TESTS: usize = 10;
/// A test that took longer is named as it ends, with how far all are.
const LONG: Duration = Duration::from_secs(60);

/// How many CPUs the guest keeps busy: one thread emulates all of its own.
const GUEST_CPUS: f64 = 1.0;
/// How often a worker that waits looks whether the guest has ended.
const GUEST_POLL: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Run {
    /// The name for the reader.
    name: String,
    /// The name in the repository's lists.
    canonical: String,
    took: Duration,
    cpu: Duration,
}

/// Runs the tests. Until `guest_ended` is set, the guest has one of the CPUs.
pub(super) fn run(
    suites: &[Suite],
    options: &Options,
    tally: &Mutex<&mut Tally>,
    guest_ended: &AtomicBool,
) -> Result<()> {
    let mut times = Times::load()?;
    let tests = suites.iter().flat_map(|suite| tests(suite, options));
    let queue = Queue::new(tests.collect(), &times);
    let cpus = thread::available_parallelism().map_or(2, |cpus| cpus.get().max(2));
    let all = queue.len();
    let turns = Turns {
        queue: Mutex::new(queue),
        changed: Condvar::new(),
        cpus: u32::try_from(cpus).map_or(f64::INFINITY, f64::from),
        guest_ended,
    };
    let runs = Mutex::new(Vec::new());
    let terminal = io::stderr().is_terminal();
    let work = || {
        while let Some(running) = turns.begin() {
            let test = &running.test;
            let start = Instant::now();
            let (outcome, cpu) = run_one(test, options);
            let took = start.elapsed();
            turns.end(&running);
            let run = Run {
                name: test.name(),
                canonical: test.binary.canonical(&test.path),
                took,
                cpu,
            };
            let mut runs = locked(&runs);
            report(&run, runs.len() + 1, all, terminal);
            // A failure is printed at once: the rest may take an hour.
            locked(tally).add(&run.name, outcome);
            runs.push(run);
        }
    };
    thread::scope(|scope| {
        for _ in 0..Queue::most_at_once(cpus) {
            scope.spawn(work);
        }
    });
    if terminal {
        eprint!("\r\x1b[K");
    }
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|run| std::cmp::Reverse(run.took));
    let slowest = runs.iter().take(REPORTED_TESTS);
    let slowest = slowest.map(|run| (run.name.clone(), run.took)).collect();
    locked(tally).set_slowest(slowest);
    if options.remember {
        let costs = runs
            .into_iter()
            .map(|run| (run.canonical, Cost::new(run.took, run.cpu)));
        times.update(costs);
        if matches!(options.tests, Tests::All) {
            let names: std::collections::HashSet<String> =
                suites.iter().flat_map(Suite::canonical).collect();
            times.retain(|name| names.contains(name));
        }
        times.save()?;
    }
    Ok(())
}

/// Hands the tests to the workers.
struct Turns<'a> {
    queue: Mutex<Queue<'a>>,
    /// A test has ended.
    changed: Condvar,
    cpus: f64,
    guest_ended: &'a AtomicBool,
}

impl<'a> Turns<'a> {
    /// The next test, once it may begin; none where all have begun.
    fn begin(&self) -> Option<Running<'a>> {
        let mut queue = locked(&self.queue);
        loop {
            let guest = match self.guest_ended.load(Ordering::Relaxed) {
                true => 0.0,
                false => GUEST_CPUS,
            };
            match queue.next(self.cpus - guest) {
                Next::Begin(running) => return Some(running),
                Next::End => return None,
                Next::Wait => {}
            }
            let waited = self.changed.wait_timeout(queue, GUEST_POLL);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn end(&self, ended: &Running<'_>) {
        locked(&self.queue).end(ended);
        self.changed.notify_all();
    }
}

/// Shows how far the run is: on a terminal always, in a log after long tests.
fn report(run: &Run, done: usize, all: usize, terminal: bool) {
    let name = &run.name;
    if terminal {
        eprint!("\r\x1b[K{done}/{all}  {name}");
    } else if run.took > LONG {
        let seconds = run.took.as_secs_f64();
        println!("{seconds:>7.1} s  {name} ({done}/{all})");
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tests of one program that match the filter.
fn tests<'a>(suite: &'a Suite, options: &Options) -> Vec<Test<'a>> {
    let test = |path: &String| Test {
        binary: &suite.binary,
        opt_in: suite.ignored.contains(path),
        path: path.clone(),
    };
    let tests = suite.tests.iter().map(test);
    match &options.tests {
        Tests::Named(word) => tests.filter(|test| test.name().contains(word)).collect(),
        Tests::All | Tests::Package(_) => tests.collect(),
    }
}

/// What becomes of a test, and the CPU time of that.
fn run_one(test: &Test<'_>, options: &Options) -> (Outcome, Duration) {
    if test.opt_in && !options.full {
        let skip = Skip::new("opt-in", "run by `./test --full`");
        return (Outcome::Skipped(skip), Duration::ZERO);
    }
    match attempt(test, options, false) {
        (Outcome::Skipped(skip), _) if skip.reason == "needs root" && options.sudo => {
            attempt(test, options, true)
        }
        (Outcome::Skipped(skip), cpu) if skip.class == "opt-in" && options.full => {
            let why = format!("--full runs what is opt-in: {}", skip.reason);
            (Outcome::Failed(why), cpu)
        }
        attempted => attempted,
    }
}

/// Runs a test once. `timeout` ends it and everything it started in its process group.
fn attempt(test: &Test<'_>, options: &Options, sudo: bool) -> (Outcome, Duration) {
    let deadline = if options.full {
        FULL_DEADLINE_S
    } else {
        DEADLINE_S
    };
    let mut words: Vec<String> = Vec::new();
    if sudo {
        words.extend(["sudo", "-n", "--preserve-env"].map(str::to_owned));
    }
    words.extend(["timeout", "--kill-after=5"].map(str::to_owned));
    words.push(deadline.to_string());
    words.push(test.binary.program.display().to_string());
    words.extend(["--exact", "--nocapture", "--include-ignored"].map(str::to_owned));
    words.push(test.path.clone());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(&test.binary.folder)
        .env("CARGO_MANIFEST_DIR", &test.binary.folder)
        // The tally decides what a core skip means, after sudo had its turn.
        .env_remove("LOWROAD_REQUIRE")
        .envs(FULL.into_iter().filter(|_| options.full))
        .stdin(Stdio::null());
    match child::run(&mut command) {
        Ok((output, cpu)) => (judge(&output, deadline), cpu),
        Err(error) => {
            let why = format!("{} does not start: {error}", words[0]);
            (Outcome::Failed(why), Duration::ZERO)
        }
    }
}

fn judge(output: &std::process::Output, deadline: u32) -> Outcome {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    match output.status.code() {
        Some(0) => text
            .lines()
            .find_map(Skip::parse)
            .map_or(Outcome::Passed, Outcome::Skipped),
        Some(124 | 137) => Outcome::Failed(format!("not ended after {deadline} s\n{text}")),
        _ => Outcome::Failed(text),
    }
}
