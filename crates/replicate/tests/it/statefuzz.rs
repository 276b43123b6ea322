//! Whatever a program does to a tree, the records agree with the tree at each barrier.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;

use replicate::capture::{INTERVAL, Options};

use crate::bed::file_system::{Bed, Format, within};
use crate::bed::workload::Workload;
use crate::follow::Following;

/// The seeds of every run of the tests.
const USUAL: u64 = 10;
/// On each file system where most data has to be read back.
const SEEDS: u64 = 2;
const USUAL_STEPS: u32 = 150;
/// Of a complete one.
const ALL: u64 = 200;
const ALL_STEPS: u32 = 500;
/// Steps to a barrier.
const BARRIER: u32 = 25;

#[test]
fn ten_seeds_on_ext4_are_said() {
    within(|bed| seeds(bed, Format::Ext4, USUAL, USUAL_STEPS));
}

/// Data that goes through the journal, and small files that lie in their inodes.
const KINDS: [Format; 2] = [Format::Ext4Journal, Format::Ext4Inline];

#[test]
fn seeds_on_other_kinds_of_ext4_are_said() {
    for format in KINDS {
        within(|bed| seeds(bed, format, SEEDS, USUAL_STEPS));
    }
}

#[test]
fn two_hundred_seeds_on_ext4_whose_journal_has_data_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Ext4Journal, ALL, ALL_STEPS));
    }
}

#[test]
fn two_hundred_seeds_on_ext4_with_inline_data_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Ext4Inline, ALL, ALL_STEPS));
    }
}

#[test]
fn seeds_on_xfs_are_said() {
    within(|bed| seeds(bed, Format::Xfs, SEEDS, USUAL_STEPS));
}

#[test]
fn seeds_on_btrfs_are_said() {
    within(|bed| seeds(bed, Format::Btrfs, SEEDS, USUAL_STEPS));
}

#[test]
fn seeds_on_tmpfs_are_said() {
    within(|bed| seeds(bed, Format::Tmpfs, SEEDS, USUAL_STEPS));
}

#[test]
fn ten_seeds_on_overlay_are_said() {
    within(|bed| seeds(bed, Format::Overlay, USUAL, USUAL_STEPS));
}

#[test]
fn two_hundred_seeds_on_ext4_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Ext4, ALL, ALL_STEPS));
    }
}

#[test]
fn two_hundred_seeds_on_xfs_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Xfs, ALL, ALL_STEPS));
    }
}

#[test]
fn two_hundred_seeds_on_btrfs_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Btrfs, ALL, ALL_STEPS));
    }
}

#[test]
fn two_hundred_seeds_on_tmpfs_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Tmpfs, ALL, ALL_STEPS));
    }
}

#[test]
fn two_hundred_seeds_on_overlay_are_said() {
    if sys::require::requested("follows 200 seeds of 500 steps") {
        within(|bed| seeds(bed, Format::Overlay, ALL, ALL_STEPS));
    }
}

/// Tries every seed, even after one has failed.
fn seeds(bed: &Bed, format: Format, seeds: u64, steps: u32) {
    let Some(tree) = bed.follow(format, "source") else {
        return;
    };
    let failed: Vec<u64> = (1..=seeds)
        .filter(|seed| {
            let tree = tree.join(format!("seed {seed}"));
            std::fs::create_dir(&tree).unwrap();
            let tried = panic::catch_unwind(AssertUnwindSafe(|| one(&tree, *seed, steps)));
            std::fs::remove_dir_all(&tree).unwrap();
            tried.is_err()
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {seeds} seeds: {failed:?}",
        failed.len()
    );
}

fn one(tree: &Path, seed: u64, steps: u32) {
    let look = Options {
        look: true,
        ..Options::default()
    };
    let mut following = Following::start(tree, look);
    let mut workload = Workload::start(tree, seed, steps, BARRIER);
    let mut said = Vec::new();
    let tried = panic::catch_unwind(AssertUnwindSafe(|| {
        while let Some(steps) = meanwhile(&mut workload, &mut following) {
            said.extend(steps);
            following.check(tree);
        }
    }));
    // The differences have been printed by then.
    if tried.is_err() {
        let last = said.len().saturating_sub(BARRIER as usize);
        panic!("seed {seed} after\n{}", said[last..].join("\n"));
    }
}

/// Follows until the next barrier.
fn meanwhile(workload: &mut Workload, following: &mut Following) -> Option<Vec<String>> {
    thread::scope(|scope| {
        let working = scope.spawn(|| workload.next());
        while !working.is_finished() {
            following.poll();
            thread::sleep(INTERVAL);
        }
        working.join().unwrap()
    })
}
