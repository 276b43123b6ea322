//! The memory and the CPU time that a model may take. A small file can describe any amount of work, so the
//! kernel ends this process where it takes more, and the program that started it names the budget.

use std::io;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::{TimeVal, TimeValLike};
use onnx_protocol::budget;

/// Limits the memory of a process that loads a file of this size.
pub(crate) fn limit_memory(file: u64) -> io::Result<()> {
    limit(Resource::RLIMIT_DATA, budget::memory(file))
}

/// Limits the CPU time from now on to load a file of this size.
pub(crate) fn limit_loading(file: u64) -> io::Result<()> {
    limit_time(budget::loading(file))
}

/// Limits the CPU time from now on to score so many rows.
pub(crate) fn limit_scoring(rows: usize) -> io::Result<()> {
    limit_time(budget::scoring(rows))
}

/// A process that was ended leaves no dump of its memory behind.
pub(crate) fn dump_nothing() -> io::Result<()> {
    limit(Resource::RLIMIT_CORE, 0)
}

fn limit_time(more: Duration) -> io::Result<()> {
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = used.user_time() + used.system_time();
    // The limit counts whole seconds.
    let until = whole_seconds(used).saturating_add(more.as_secs());
    limit(Resource::RLIMIT_CPU, until)
}

fn whole_seconds(time: TimeVal) -> u64 {
    u64::try_from(time.num_seconds()).unwrap_or(0) + 1
}

/// Sets the soft limit, which a later call may raise again.
fn limit(resource: Resource, wanted: u64) -> io::Result<()> {
    let (_, most) = getrlimit(resource)?;
    Ok(setrlimit(resource, wanted.min(most), most)?)
}
