//! Helpers to apply and compare replicas.

use std::path::Path;

use replicate::apply::{Error, Gate, Options, Replica};
use replicate::restore::{self, restore};
use tempfile::TempDir;

use crate::bed::trees::{Difference, What, differences};

/// In memory, so that tests do not wait for other programs' writes.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

pub(crate) fn differ(log: &Path, epoch: u64, tree: &Path) -> Vec<Difference> {
    let folder = folder();
    let made = folder.path().join("made");
    restore(log, Some(epoch), &made, restore::Options::default()).unwrap();
    let mut all = differences(&made, tree);
    all.retain(|one| one.what != What::Holes);
    all
}

/// Applies all, and compares.
pub(crate) fn check(log: &Path, to: &Path, options: Options) {
    let mut replica = Replica::open(log, to, options).unwrap();
    replica.apply(None).unwrap();
    let all = differ(log, replica.reached().0, &to.join("tree"));
    assert!(all.is_empty(), "{all:#?}");
    replica.end().unwrap();
}

pub(crate) fn closing(calls: u64) -> Options {
    Options {
        gate: Gate::closing_after(calls),
        ..Options::default()
    }
}

/// Applies until the gate closes. Returns whether everything was done before.
pub(crate) fn stopped(log: &Path, to: &Path, calls: u64) -> bool {
    let done = Replica::open(log, to, closing(calls)).and_then(|mut replica| {
        replica.apply(None)?;
        replica.end()
    });
    match done {
        Ok(()) => true,
        Err(Error::Io { cause, .. }) => {
            assert_eq!(cause.raw_os_error(), Some(nix::libc::EIO));
            false
        }
        Err(other) => panic!("{other}"),
    }
}
