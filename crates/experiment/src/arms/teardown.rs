//! The tear-down of a program's arm, which runs once, however the program ends: by itself, with its trial, or with
//! `lowroad compare`.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::netns::Namespace;
use testbed::Child;

use super::process::{MARK, Output, Place, processes_with, wait_end};
use super::program::ProgramArm;
use super::template::Values;

type SharedTeardown = Mutex<Option<Teardown>>;

/// The tear-downs that are due in this process.
static DUE: Mutex<Vec<Weak<SharedTeardown>>> = Mutex::new(Vec::new());

/// Dropping it runs the tear-down, unless that has run.
#[derive(Debug)]
pub(super) struct TeardownGuard(Arc<SharedTeardown>);

#[derive(Debug)]
struct Teardown {
    /// The arm's name.
    name: String,
    /// The mark of the arm's processes in their environment.
    mark: String,
    command: std::process::Command,
    network: Option<Network>,
    timeout: Duration,
    output: Output,
}

/// The place of a command that does not run in a host.
#[derive(Debug)]
struct Network {
    namespace: Namespace,
    /// Any where there is none.
    cpus: Vec<usize>,
}

impl TeardownGuard {
    /// None for an arm without a tear-down.
    pub(super) fn new(
        arm: &ProgramArm,
        place: Place<'_>,
        (mark, values): (&str, &Values),
        output: &Output,
    ) -> Result<Option<Self>> {
        let Some(teardown) = &arm.teardown else {
            return Ok(None);
        };
        let mut command = teardown.command(values)?;
        command.env(MARK, mark);
        let network = match place {
            Place::Host(host) => Some(Network {
                namespace: host.namespace().try_clone()?,
                cpus: host.cpus(),
            }),
            Place::Machine => None,
        };
        let due = Arc::new(Mutex::new(Some(Teardown {
            name: arm.name.clone(),
            mark: mark.to_owned(),
            command,
            network,
            timeout: arm.timeout,
            output: output.clone(),
        })));
        let mut all = DUE.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|due| due.strong_count() > 0);
        all.push(Arc::downgrade(&due));
        Ok(Some(Self(due)))
    }

    /// Runs the tear-down, unless that has run.
    pub(super) fn run(&self) -> Result<()> {
        run(&self.0)
    }
}

impl Drop for TeardownGuard {
    fn drop(&mut self) {
        if let Err(error) = self.run() {
            tracing::warn!("{error:#}");
        }
    }
}

/// Ends the external programs of this process, and runs their tear-downs, each for as long as its arm allows. It is for a
/// process that is about to exit in the middle of a trial.
pub fn tear_down_programs() {
    let all = DUE.lock().unwrap_or_else(PoisonError::into_inner);
    let due: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    drop(all);
    for teardown in due {
        if let Err(error) = run(&teardown) {
            tracing::warn!("{error:#}");
        }
    }
}

/// Whoever comes second waits until it has run.
fn run(due: &SharedTeardown) -> Result<()> {
    let mut due = due.lock().unwrap_or_else(PoisonError::into_inner);
    match due.take() {
        Some(teardown) => teardown.run(),
        None => Ok(()),
    }
}

impl Teardown {
    fn run(mut self) -> Result<()> {
        self.kill_processes();
        let ended = match self.network.take() {
            Some(Network { namespace, cpus }) => namespace.run(|| {
                confine(&cpus)?;
                self.execute()
            })?,
            None => self.execute(),
        };
        self.kill_processes();
        ended
    }

    fn execute(&mut self) -> Result<()> {
        let mut command = std::mem::replace(&mut self.command, std::process::Command::new(""));
        self.output.connect(&mut command, None)?;
        let mut child = Child::start(command).with_context(|| self.name.clone())?;
        let what = (self.name.as_str(), "teardown");
        wait_end(&mut child, self.timeout, what, &self.output)?;
        Ok(())
    }

    fn kill_processes(&self) {
        for pid in processes_with(&self.mark) {
            // It may have ended meanwhile.
            let _gone = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
}

/// Confines the calling thread and its children to the CPUs.
fn confine(cpus: &[usize]) -> Result<()> {
    let mut allowed = CpuSet::new();
    for &cpu in cpus {
        allowed.set(cpu)?;
    }
    if !cpus.is_empty() {
        sched_setaffinity(Pid::from_raw(0), &allowed)?;
    }
    Ok(())
}
