//! Runs each test in a process of its own under a deadline, two or more at a time.
//!
//! A test that says it needs root is run again through sudo, where that is allowed: tests name
//! their needs themselves, and everything else stays the user's.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::binaries::Suite;
use super::queue::{Queue, Test};
use super::times::Times;
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

/// How often the spare worker looks whether it may begin.
const SPARE_POLL: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Run {
    /// The name for the reader.
    name: String,
    /// The name in the repository's lists.
    canonical: String,
    took: Duration,
}

/// Runs the tests. One more worker joins when `spare` is set: the CPU that the guest has used is free then.
pub(super) fn run(
    suites: &[Suite],
    options: &Options,
    tally: &Mutex<&mut Tally>,
    spare: &AtomicBool,
) -> Result<()> {
    let mut times = Times::load()?;
    let tests = suites.iter().flat_map(|suite| tests(suite, options));
    let queue = Queue::new(tests.collect(), &times);
    let workers = thread::available_parallelism().map_or(2, |cpus| cpus.get().max(2));
    let all = queue.len();
    let queue = Mutex::new(queue);
    let runs = Mutex::new(Vec::new());
    let terminal = io::stderr().is_terminal();
    let work = || {
        loop {
            let Some(test) = locked(&queue).next() else {
                break;
            };
            let start = Instant::now();
            let outcome = run_one(&test, options);
            let took = start.elapsed();
            locked(&queue).end(&test);
            let run = Run {
                name: test.name(),
                canonical: test.binary.canonical(&test.path),
                took,
            };
            let mut runs = locked(&runs);
            report(&run, runs.len() + 1, all, terminal);
            // A failure is printed at once: the rest may take an hour.
            locked(tally).add(&run.name, outcome);
            runs.push(run);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
        scope.spawn(|| {
            while !spare.load(Ordering::Relaxed) {
                if locked(&queue).len() == 0 {
                    return;
                }
                thread::sleep(SPARE_POLL);
            }
            work();
        });
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
        times.update(runs.into_iter().map(|run| (run.canonical, run.took)));
        if matches!(options.tests, Tests::All) {
            let names: std::collections::HashSet<String> =
                suites.iter().flat_map(Suite::canonical).collect();
            times.retain(|name| names.contains(name));
        }
        times.save()?;
    }
    Ok(())
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

fn run_one(test: &Test<'_>, options: &Options) -> Outcome {
    if test.opt_in && !options.full {
        Outcome::Skipped(Skip::new("opt-in", "run by `./test --full`"))
    } else {
        match attempt(test, options, false) {
            Outcome::Skipped(skip) if skip.reason == "needs root" && options.sudo => {
                attempt(test, options, true)
            }
            Outcome::Skipped(skip) if skip.class == "opt-in" && options.full => {
                Outcome::Failed(format!("--full runs what is opt-in: {}", skip.reason))
            }
            outcome => outcome,
        }
    }
}

/// Runs a test once. `timeout` ends it and everything it started in its process group.
fn attempt(test: &Test<'_>, options: &Options, sudo: bool) -> Outcome {
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
    let output = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(&test.binary.folder)
        .env("CARGO_MANIFEST_DIR", &test.binary.folder)
        // The tally decides what a core skip means, after sudo had its turn.
        .env_remove("LOWROAD_REQUIRE")
        .envs(FULL.into_iter().filter(|_| options.full))
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => judge(&output, deadline),
        Err(error) => Outcome::Failed(format!("{} does not start: {error}", words[0])),
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
