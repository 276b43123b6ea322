//! Names of everything that outlives a killed process: each tells its [`Owner`], by which [`crate::clean`] finds it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use sys::owner::Owner;
use tempfile::TempDir;

/// The prefix of names of namespaces, containers and folders.
pub(crate) const PREFIX: &str = "lr-bed-";
/// Letters that tell one process's temporary folders apart.
pub(crate) const RANDOM_LETTERS: usize = 6;

/// A folder for temporary files, removed when dropped, and by [`crate::clean`] when its maker was killed.
pub fn folder() -> io::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-", Owner::current());
    tempfile::Builder::new()
        .prefix(&prefix)
        .rand_bytes(RANDOM_LETTERS)
        .tempdir()
}

/// The namespace's name of a bed's host or switch.
pub(crate) fn namespace(owner: Owner, run: &str, host: &str) -> String {
    format!("{PREFIX}{owner}-{run}-{host}")
}

/// A name of the same kind that nothing else of this process has.
pub(crate) fn unique(of: &str) -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    namespace(Owner::current(), of, &number.to_string())
}

/// A device's name that no other of this process has.
pub(crate) fn device() -> String {
    static DEVICES: AtomicU32 = AtomicU32::new(0);
    // With the longest process id it has room for five digits.
    let number = DEVICES.fetch_add(1, Ordering::Relaxed) % 100_000;
    format!("lr{}n{number}", std::process::id())
}
