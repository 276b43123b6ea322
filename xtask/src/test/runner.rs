//! Runs each test in a process of its own under a deadline, two or more at a time.
//!
//! A test that says it needs root is run again through sudo, where that is allowed: tests name
//! their needs themselves, and everything else stays the user's.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Binary, Options};
use crate::tally::{Outcome, Skip, Tally};

/// A test that has not ended by then never will.
const DEADLINE_S: u32 = 400;
/// Tests of `--full` may take this long.
const FULL_DEADLINE_S: u32 = 3600;
/// What `--full` sets: everything that runs on request, and longer fuzzing. Once through, that takes 18 s
/// of CPU time: a hundred times, a quarter of an hour on two cores.
const FULL: [(&str, &str); 2] = [("LOWROAD_OPT_IN", "1"), ("LOWROAD_FUZZ", "100")];
/// The crate of which one test runs at a time: experiments refuse to run beside one another.
const EXPERIMENTS: &str = "compare";
/// How many of the slowest tests are named.
const SLOWEST: usize = 8;
/// A test that took longer is named as it ends, with how far all are.
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Test<'a> {
    binary: &'a Binary,
    name: String,
    /// Marked `#[ignore]`: run by `--full` only.
    opt_in: bool,
}

/// Tests that have not begun.
#[derive(Debug, Default)]
struct Queue<'a> {
    tests: VecDeque<Test<'a>>,
    experiment_runs: bool,
}

#[derive(Debug)]
struct Run {
    test: String,
    took: Duration,
}

pub(super) fn run(binaries: &[Binary], options: &Options, tally: &mut Tally) -> Result<()> {
    let mut queue = Queue::default();
    for binary in binaries {
        queue.tests.extend(list(binary, options)?);
    }
    let workers = thread::available_parallelism().map_or(2, |cpus| cpus.get().max(2));
    let all = queue.tests.len();
    let queue = Mutex::new(queue);
    let runs = Mutex::new(Vec::new());
    let tally = Mutex::new(tally);
    let terminal = io::stderr().is_terminal();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(test) = locked(&queue).next() else {
                        break;
                    };
                    let start = Instant::now();
                    let outcome = run_one(&test, options);
                    let took = start.elapsed();
                    locked(&queue).ended(&test);
                    let test = format!("{} {}", test.binary.name, test.name);
                    let mut runs = locked(&runs);
                    if terminal {
                        eprint!("\r\x1b[K{}/{all}  {test}", runs.len() + 1);
                    } else if took > LONG {
                        println!(
                            "{:>7.1} s  {test} ({}/{all})",
                            took.as_secs_f64(),
                            runs.len() + 1
                        );
                    }
                    // What fails is said at once: the rest may take an hour.
                    locked(&tally).add(&test, outcome);
                    runs.push(Run { test, took });
                }
            });
        }
    });
    if terminal {
        eprint!("\r\x1b[K");
    }
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|run| std::cmp::Reverse(run.took));
    for slow in runs.iter().take(SLOWEST) {
        println!("{:>7.1} s  {}", slow.took.as_secs_f64(), slow.test);
    }
    Ok(())
}

impl<'a> Queue<'a> {
    /// The first test that may run now. None: those that are left are for whoever runs an experiment.
    fn next(&mut self) -> Option<Test<'a>> {
        let mut tests = self.tests.iter();
        let next = tests.position(|test| !(self.experiment_runs && test.is_experiment()))?;
        let test = self.tests.remove(next)?;
        self.experiment_runs |= test.is_experiment();
        Some(test)
    }

    fn ended(&mut self, test: &Test<'_>) {
        self.experiment_runs &= !test.is_experiment();
    }
}

impl Test<'_> {
    fn is_experiment(&self) -> bool {
        self.binary.folder.ends_with(EXPERIMENTS)
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tests of one program that match the filter.
fn list<'a>(binary: &'a Binary, options: &Options) -> Result<Vec<Test<'a>>> {
    let all = names(binary, &[])?;
    let opt_in = names(binary, &["--ignored"])?;
    Ok(all
        .into_iter()
        .filter(|name| {
            let filter = options.filter.as_deref().unwrap_or_default();
            format!("{} {name}", binary.name).contains(filter)
        })
        .map(|name| Test {
            binary,
            opt_in: opt_in.contains(&name),
            name,
        })
        .collect())
}

fn names(binary: &Binary, more: &[&str]) -> Result<Vec<String>> {
    let output = Command::new(&binary.program)
        .args(["--list", "--format", "terse"])
        .args(more)
        .output()
        .with_context(|| format!("{} does not start", binary.program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_suffix(": test").map(str::to_owned))
        .collect())
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
    words.push(test.name.clone());
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
