//! A replica that is kept up to date is the tree that a restore of its epoch makes.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod bed;
mod histories;

use std::path::Path;

use bed::trees::{Difference, What, differences};
use histories::History;
use replicate::apply::{Options, Replica};
use replicate::restore::{self, restore};
use tempfile::TempDir;

/// In memory: other programs' writes are not waited for.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// What differs from a restore of that epoch; where blocks lie is the file system's to choose.
fn differ(log: &Path, epoch: u64, tree: &Path) -> Vec<Difference> {
    let folder = folder();
    let made = folder.path().join("made");
    restore(log, Some(epoch), &made, restore::Options::default()).unwrap();
    let mut all = differences(&made, tree);
    all.retain(|one| one.what != What::Holes);
    all
}

#[test]
fn any_history_in_any_steps_ends_where_a_restore_does() {
    if !sys::require::root() {
        return;
    }
    for seed in 0..150 {
        let folder = folder();
        let (log, to) = (folder.path().join("log"), folder.path().join("replica"));
        let mut history = History::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let options = Options {
            in_place: (seed % 3 == 0).then_some(3000),
            ..Options::default()
        };
        let mut open: Option<Replica> = None;
        let mut written = 0;
        for _ in 0..12 {
            history.go_on(rng.usize(1..40));
            histories::write(&log, &history.entries[written..]);
            written = history.entries.len();
            let mut replica = open
                .take()
                .unwrap_or_else(|| Replica::open(&log, &to, options.clone()).unwrap());
            let applied = replica.apply(None).unwrap().unwrap();
            assert_eq!(applied.epoch, history.tree.epoch());
            let all = differ(&log, applied.epoch, &to.join("tree"));
            let epoch = applied.epoch;
            assert!(all.is_empty(), "seed {seed} epoch {epoch}: {all:#?}");
            assert!(replica.apply(None).unwrap().is_none());
            match rng.u8(..3) {
                0 => replica.end().unwrap(),
                1 => drop(replica),
                _ => open = Some(replica),
            }
        }
    }
}
