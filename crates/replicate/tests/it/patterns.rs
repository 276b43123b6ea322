//! A log has of its tree what patterns leave in, whatever crosses that border while it is followed.
#![allow(
    clippy::print_stdout,
    reason = "which script it was, of a test that fails"
)]

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;

use replicate::capture::{INTERVAL, Options};
use replicate::patterns::Patterns;
use replicate::record::{Change, Entry};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::bed::file_system::{Bed, Format, within};
use crate::bed::workload::Workload;
use crate::follow::{Following, Naive, shell};

const STEPS: u32 = 150;
/// Steps to a barrier.
const BARRIER: u32 = 25;
/// The seeds of every run of the tests, and of a complete one.
const USUAL: u64 = 6;
const SEEDS: u64 = 2;
const ALL: u64 = 200;
const ALL_STEPS: u32 = 500;

fn patterns(include: &[&str], exclude: &[&str]) -> Patterns {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Patterns::new(owned(include), owned(exclude))
}

/// By the names that the workload gives: by name, by place, by kind, and by all of these.
fn several() -> [Patterns; 4] {
    [
        patterns(&[], &["n1", "n3/", "n1?", "*a"]),
        patterns(&[], &["/n2", "n4/n*", "/*/n5/", "...", "n6/**/n7"]),
        patterns(&["n?", "l*"], &[]),
        patterns(
            &["/n1*", "/n2/n*", "n3/**/n4", "n5/"],
            &["n0", "/n5/n6", "n1?/"],
        ),
    ]
}

fn narrowed(patterns: Patterns) -> Options {
    Options {
        look: true,
        patterns,
        ..Options::default()
    }
}

#[test]
fn seeds_on_ext4_are_said_in_part() {
    within(|bed| seeds(bed, Format::Ext4, USUAL, STEPS));
}

#[test]
fn seeds_on_xfs_are_said_in_part() {
    within(|bed| seeds(bed, Format::Xfs, SEEDS, STEPS));
}

#[test]
fn seeds_on_btrfs_are_said_in_part() {
    within(|bed| seeds(bed, Format::Btrfs, SEEDS, STEPS));
}

#[test]
fn seeds_on_tmpfs_are_said_in_part() {
    within(|bed| seeds(bed, Format::Tmpfs, SEEDS, STEPS));
}

#[test]
fn seeds_on_overlay_are_said_in_part() {
    within(|bed| seeds(bed, Format::Overlay, SEEDS, STEPS));
}

#[test]
fn two_hundred_seeds_on_ext4_are_said_in_part() {
    two_hundred(Format::Ext4);
}

#[test]
fn two_hundred_seeds_on_xfs_are_said_in_part() {
    two_hundred(Format::Xfs);
}

#[test]
fn two_hundred_seeds_on_btrfs_are_said_in_part() {
    two_hundred(Format::Btrfs);
}

#[test]
fn two_hundred_seeds_on_tmpfs_are_said_in_part() {
    two_hundred(Format::Tmpfs);
}

#[test]
fn two_hundred_seeds_on_overlay_are_said_in_part() {
    two_hundred(Format::Overlay);
}

fn two_hundred(format: Format) {
    if sys::require::requested("follows 200 seeds of 500 steps in part") {
        within(|bed| seeds(bed, format, ALL, ALL_STEPS));
    }
}

/// Each seed with one of the sets of patterns.
fn seeds(bed: &Bed, format: Format, seeds: u64, steps: u32) {
    let Some(tree) = bed.follow(format, "source") else {
        return;
    };
    let runs = several().into_iter().cycle().zip(1..=seeds.max(4));
    let failed: Vec<u64> = runs
        .filter(|(patterns, seed)| {
            let tree = tree.join(format!("seed {seed}"));
            fs::create_dir(&tree).unwrap();
            let one = || one(&tree, patterns, *seed, steps);
            let tried = panic::catch_unwind(AssertUnwindSafe(one));
            fs::remove_dir_all(&tree).unwrap();
            tried.is_err()
        })
        .map(|(_, seed)| seed)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn one(tree: &Path, patterns: &Patterns, seed: u64, steps: u32) {
    let mut following = Following::start(tree, narrowed(patterns.clone()));
    let mut workload = Workload::start(tree, seed, steps, BARRIER);
    let mut said = Vec::new();
    let tried = panic::catch_unwind(AssertUnwindSafe(|| {
        while let Some(steps) = meanwhile(&mut workload, &mut following) {
            said.extend(steps);
            following.check(tree);
        }
    }));
    if tried.is_err() {
        let last = said.len().saturating_sub(BARRIER as usize);
        panic!(
            "seed {seed} of {patterns:?} after\n{}",
            said[last..].join("\n")
        );
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

const FORMATS: [Format; 5] = [
    Format::Ext4,
    Format::Xfs,
    Format::Btrfs,
    Format::Tmpfs,
    Format::Overlay,
];

/// On every file system, what each of these scripts leaves.
fn each(patterns: &Patterns, scripts: &[&str]) {
    within(|bed| {
        for format in FORMATS {
            let Some(tree) = bed.follow(format, &format!("{format:?}")) else {
                continue;
            };
            let mut following = Following::start(&tree, narrowed(patterns.clone()));
            for script in scripts {
                println!("{format:?}: {script}");
                following.during(|| shell(&tree, script));
                following.check(&tree);
            }
        }
    });
}

#[test]
fn a_file_is_there_once_it_has_a_name_that_belongs() {
    each(
        &patterns(&[], &["*.tmp", "/out"]),
        &[
            "echo 1 >a.tmp; echo 2 >b; mkdir out; echo 3 >out/c",
            "mv a.tmp a; echo more >>a",
            "mv b b.tmp; echo more >>b.tmp",
            "mv out/c c; mv a out/a; echo more >>out/a",
            "mv out in; echo more >>in/a; mv in out; mv b.tmp b; echo 4 >in.tmp",
            "mv -T --exchange in.tmp b 2>&1 || mv b b2",
            "rm -r out; rm -f *.tmp",
        ],
    );
}

#[test]
fn a_file_of_several_names_is_there_while_one_of_them_belongs() {
    each(
        &patterns(&[], &["*.tmp", "/out/"]),
        &[
            "echo 1 >a.tmp; ln a.tmp a; mkdir out; ln a out/a; echo more >>out/a",
            "rm a; echo unseen >>a.tmp",
            "ln out/a again; ln out/a again2; echo seen >>a.tmp",
            "mv again again.tmp; rm again2; echo unseen >>out/a",
            "mv again.tmp back; rm a.tmp out/a; echo more >>back",
            "ln back x.tmp; mv x.tmp y.tmp; mv back z.tmp; mv y.tmp y",
        ],
    );
}

#[test]
fn what_is_in_a_directory_belongs_by_where_that_lies() {
    each(
        &patterns(&[], &["/a/*.db", "b/c"]),
        &[
            "mkdir -p a/d b/c z; echo 1 >a/x.db; echo 2 >a/d/x.db; echo 3 >b/c/in; echo 4 >a/y",
            "mv a e; echo more >>e/x.db",
            "mv e a; echo more >>a/x.db",
            "mv b a/b; mv a/b/c a/c; echo more >>a/c/in",
            "mkdir -p z/b; mv a z/b/c; mkdir a",
            "mv z/b/c a/c2; mv a/c2/x.db a/c2/d a/; rm -r z",
        ],
    );
}

#[test]
fn what_is_included_is_found_wherever_it_comes_to_lie() {
    each(
        &patterns(&["/data", "*.db", "srv/*/keep/**"], &["*.old"]),
        &[
            "mkdir -p data/a x/y srv/one/keep srv/two/lose; echo 1 >data/a/f; echo 2 >x/y/f; echo 3 >x/y/f.db
             echo 4 >srv/one/keep/f; echo 5 >srv/two/lose/f; mkdir x/some.db; echo 6 >x/some.db/f",
            "mv x/y data/y; mv data/a x/a",
            "mv x/some.db x/some.old; mv srv/two/lose srv/two/keep",
            "mv x/some.old x/other.db; mv data data2; mv x data",
            "mv srv/one elsewhere; echo more >>elsewhere/keep/f",
            "rm -r data data2 srv elsewhere; mkdir data; echo 7 >data/f",
        ],
    );
}

#[test]
fn a_tree_of_which_nothing_belongs_is_its_root() {
    each(
        &patterns(&[], &["*"]),
        &[
            "mkdir a; echo 1 >b; echo 2 >a/b",
            "chmod 700 .; touch -d 2001-02-03 .; rm -r a b",
        ],
    );
}

/// Names and bytes that are left out are nowhere in the log, not even for a while.
#[test]
fn what_is_left_out_is_in_no_record() {
    within(|bed| {
        for format in FORMATS {
            let Some(tree) = bed.follow(format, &format!("{format:?}")) else {
                continue;
            };
            let patterns = patterns(&[], &["secret*"]);
            let mut following = Following::start(&tree, narrowed(patterns));
            following.catch_up();
            following.entries.clear();
            following.during(|| {
                shell(
                    &tree,
                    "mkdir secret.d; for i in $(seq 20); do echo HUSH >secret$i; echo HUSH >>secret$i
                     echo HUSH >secret.d/$i; done; echo aloud >other; ln secret1 secret1.again
                     mv secret2 secret2.again; chmod 600 secret3; rm secret4; sync",
                );
            });
            let seen = std::mem::take(&mut following.entries);
            following.check(&tree);
            let mut aloud = false;
            for entry in seen.iter().chain(&following.entries) {
                match entry {
                    Entry::Change(Change::Data { bytes, .. }) => {
                        assert!(!bytes.windows(4).any(|four| four == b"HUSH"), "{format:?}");
                        aloud |= bytes.starts_with(b"aloud");
                    }
                    Entry::Change(Change::Link { name, .. } | Change::Unlink { name, .. }) => {
                        assert!(
                            !name.as_bytes().starts_with(b"secret"),
                            "{format:?}: {name:?}"
                        );
                    }
                    _ => {}
                }
            }
            assert!(aloud, "{format:?}");
        }
    });
}

#[test]
fn what_a_rename_leaves_behind_is_said_too() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        shell(&tree, "mkdir d; touch d/a");
        let mut following = Following::start(&tree, narrowed(patterns(&[], &["*.tmp"])));
        following.check(&tree);
        let [from, to] = ["d/a", "d/b"].map(|name| tree.join(name));
        renameat_with(CWD, from, CWD, to, RenameFlags::WHITEOUT).unwrap();
        following.check(&tree);
    });
}

#[test]
fn the_plain_meaning_of_patterns_is_theirs() {
    // What the other tests hold the log against, tried by itself.
    let naive = Naive::of(&patterns(&["a/**/c", "*.db"], &["x/", "/y/z"]));
    for (path, directory, belongs) in [
        ("a", true, true),
        ("a/b", false, false),
        ("a/b/c", false, true),
        ("q", true, true),
        ("q/1.db", false, true),
        ("x/1.db", false, false),
        ("x", false, false),
        ("x.db", false, true),
        ("y/z", true, false),
        ("p/y/z", true, true),
    ] {
        assert_eq!(naive.admits(Path::new(path), directory), belongs, "{path}");
    }
}
