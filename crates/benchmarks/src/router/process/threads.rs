//! The CPUs of threads.

use std::num::NonZeroUsize;

use crate::Error;

/// A CPU for each thread.
pub(super) fn cpus(threads: NonZeroUsize) -> Result<Vec<usize>, Error> {
    let cpus = sys::sched::allowed_cpus().map_err(|error| Error::attempt("CPUs", error))?;
    let (wanted, has) = (threads.get(), cpus.len());
    if wanted > has {
        return Err(Error::Input(format!(
            "--threads {wanted}: each has a CPU of its own, and this process may use {has}"
        )));
    }
    Ok(cpus.into_iter().take(wanted).collect())
}

pub(super) fn pin(cpu: usize) {
    if let Err(error) = sys::sched::pin(cpu) {
        tracing::warn!(cpu, %error, "runs unpinned");
    }
}
