//! Debian's 6.1 kernel, the oldest we support, booted by QEMU with our test programs.
//!
//! `select` decides which tests run there; `boot` gets the kernel, `image` fills the file system, `console`
//! boots it and talks to its shell.

mod console;
mod image;
pub(crate) mod select;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use boot::{Flavour, Kernel};

use crate::run;
use crate::tally::{Outcome, Skip, Tally};
use crate::test::{self, Scope, Suite};
use console::{Accelerator, CommandResult, Console};
use select::Selection;

/// How many guests share the programs of `--full`, since one thread emulates all CPUs of a guest.
const FULL_GUESTS: usize = 2;
/// How long one test program may take in the guest, which is some ten times slower, and slower still where others
/// have the CPUs.
const DEADLINE: Duration = Duration::from_secs(1800);

/// `cargo xtask guest`: builds the scope's tests and runs those of the guest.
pub(crate) fn run(scope: &Scope, full: bool) -> Result<Tally> {
    let mut tally = Tally::default();
    let suites = test::build(scope)?;
    let start = Instant::now();
    test(&suites, scope, full, &Mutex::new(&mut tally))?;
    tally.stage("Linux 6.1 guest", start.elapsed());
    tally.close();
    Ok(tally)
}

/// `cargo xtask guest COMMAND`: prints what the command prints there.
pub(crate) fn shell(command: &str) -> Result<Tally> {
    if let Some(skip) = missing() {
        bail!("cannot run here: {}", skip.reason);
    }
    let guest = Guest::pack(&[])?;
    let result = guest.boot()?.run(command, DEADLINE)?;
    print!("{}", result.output);
    let mut tally = Tally::default();
    tally.add(command, judge(&result));
    Ok(tally)
}

/// Runs the guest's part of a whole run; what keeps it from running is a failure of its own.
pub(crate) fn run_and_report(suites: &[Suite], full: bool, tally: &Mutex<&mut Tally>) {
    if let Err(error) = test(suites, &Scope::Workspace, full, tally) {
        let outcome = Outcome::Failed(format!("{error:#}"));
        locked(tally).add("Linux 6.1 guest", outcome);
    }
}

/// Runs the tests that meet the kernel, and `lowroad doctor`, in guests.
fn test(suites: &[Suite], scope: &Scope, full: bool, tally: &Mutex<&mut Tally>) -> Result<()> {
    if let Some(skip) = missing() {
        locked(tally).add("Linux 6.1 guest", Outcome::Skipped(skip));
        return Ok(());
    }
    let selections = select::selections(suites, scope, full)?;
    let guest = Guest::pack(&selections)?;
    let waiting = Mutex::new(selections.iter().enumerate());
    let guests = if full { FULL_GUESTS } else { 1 };
    thread::scope(|scope| {
        let guests: Vec<_> = (0..guests)
            .map(|_| scope.spawn(|| work(&guest, &waiting, tally)))
            .collect();
        guests.into_iter().try_for_each(|guest| {
            guest
                .join()
                .map_err(|_| anyhow!("a guest's thread panicked"))?
        })
    })
}

/// Runs the programs that wait, one after the other, until there are none.
fn work<'a>(
    guest: &Guest,
    waiting: &Mutex<impl Iterator<Item = (usize, &'a Selection<'a>)>>,
    tally: &Mutex<&mut Tally>,
) -> Result<()> {
    let mut console = guest.boot()?;
    loop {
        // The lock is held for this line only.
        let next = locked(waiting).next();
        let Some((number, selection)) = next else {
            return Ok(());
        };
        let start = Instant::now();
        let result = console.run(&script(number), DEADLINE)?;
        let took = start.elapsed().as_secs_f64();
        let name = format!("6.1: {}", selection.name());
        println!("{took:>7.1} s  {name}");
        match selection {
            Selection::Tests { tests, .. } => {
                count(&mut locked(tally), &name, tests.len(), &result);
            }
            Selection::Doctor => {
                print!("{}", result.output);
                locked(tally).add(&name, judge(&result));
            }
        }
        if result.status.is_none() {
            // It still runs, and what came after would wait for it.
            console = guest.boot()?;
        }
    }
}

/// Where a selection's commands are in the guest: a line of its serial port is shorter than they are.
fn script(number: usize) -> String {
    format!("/selections/{number}")
}

/// The commands that run a selection.
fn commands(selection: &Selection<'_>) -> String {
    match selection {
        Selection::Tests { binary, tests } => format!(
            "#!/bin/sh\ncd {} && LOWROAD_REQUIRE=core exec {} --nocapture --test-threads 2 --exact {}\n",
            binary.folder.display(),
            binary.program.display(),
            tests.join(" ")
        ),
        Selection::Doctor => format!("#!/bin/sh\nexec {} doctor\n", image::lowroad().display()),
    }
}

/// A thread that panicked fails the run by itself.
fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the tests of one command: each that passed, each that was skipped, or its failure.
fn count(tally: &mut Tally, name: &str, tests: usize, result: &CommandResult) {
    let passed: usize = result.output.lines().filter_map(test::passed).sum();
    if result.status != Some(0) {
        return tally.add(name, judge(result));
    }
    if passed != tests {
        let why = format!("{passed} of {tests} tests passed\n{}", result.output);
        return tally.add(name, Outcome::Failed(why));
    }
    let skips: Vec<Skip> = result.output.lines().filter_map(Skip::parse).collect();
    tally.add_passed(passed.saturating_sub(skips.len()));
    for skip in skips {
        tally.add(name, Outcome::Skipped(skip));
    }
}

fn judge(result: &CommandResult) -> Outcome {
    match result.status {
        Some(0) => Outcome::Passed,
        Some(status) => Outcome::Failed(format!("exit {status}\n{}", result.output)),
        None => Outcome::Failed(format!("no end in {DEADLINE:?}\n{}", result.output)),
    }
}

fn missing() -> Option<Skip> {
    ["qemu-system-x86_64", "dpkg-deb", "ldd"]
        .iter()
        .find(|program| !run::exists(program))
        .map(|program| Skip::new("core", format!("needs {program} (apt-get install)")))
        .or_else(|| {
            (!std::path::Path::new(image::BUSYBOX).exists())
                .then(|| Skip::new("core", "needs apt-get install busybox-static"))
        })
        .or_else(|| {
            Kernel::available(Flavour::Cloud)
                .err()
                .map(|error| Skip::new("core", format!("no guest kernel: {error}")))
        })
}

/// The files that guests boot from.
#[derive(Debug)]
struct Guest {
    kernel: Kernel,
    initrd: PathBuf,
    accelerator: Accelerator,
}

impl Guest {
    /// Puts the selected programs into a file system and tries how it boots.
    fn pack(selections: &[Selection<'_>]) -> Result<Self> {
        let kernel = Kernel::available(Flavour::Cloud)?;
        let mut image = image::base(&kernel)?;
        for (number, selection) in selections.iter().enumerate() {
            image.text(script(number), commands(selection));
            for program in programs(selection) {
                image.program(&program, &program);
            }
            if let Selection::Tests { binary, .. } = selection {
                image.folder(&binary.folder);
            }
        }
        let initrd = PathBuf::from(".cache/guest/initrd");
        std::fs::create_dir_all(".cache/guest").context(".cache/guest")?;
        image.write(&initrd, image::stripped)?;
        let accelerator = Accelerator::choose(&kernel.image, &initrd);
        Ok(Self {
            kernel,
            initrd,
            accelerator,
        })
    }

    fn boot(&self) -> Result<Console> {
        Console::boot(&self.kernel.image, &self.initrd, self.accelerator)
    }
}

/// The programs that a selection needs: tests also start those that are built beside them.
fn programs(selection: &Selection<'_>) -> Vec<PathBuf> {
    let (test, started) = match selection {
        Selection::Doctor => (None, Some(image::lowroad())),
        Selection::Tests { binary, .. } => {
            let started = match binary.package.as_str() {
                "lowroad" => Some(image::lowroad()),
                "replicate" => Some(image::built("statefuzz")),
                _ => None,
            };
            (Some(binary.program.clone()), started)
        }
    };
    let started = started.filter(|program| program.is_file());
    test.into_iter().chain(started).collect()
}
