//! Captures operations of programs on ext4, and compares the records with the tree.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, Permissions};
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::OFlag;
use replicate::capture::{Options, Progress};
use sys::file_mapping::FileMapping;
use sys::require::Class;

use crate::bed::file_system::{Format, within};
use crate::bed::workload::Workload;
use crate::follow::{Ends, Following, shell};

fn on_ext4(work: impl FnOnce(&Path) + Send) {
    within(|bed| {
        if let Some(tree) = bed.mount(Format::Ext4, "ext4") {
            work(&tree);
        }
    });
}

#[test]
fn a_tree_that_is_there_is_said() {
    on_ext4(|tree| {
        shell(
            tree,
            "mkdir -p a/b; echo one >a/one; ln a/one a/b/two; ln -s nowhere a/link; mkfifo a/pipe
             truncate -s 1M a/hole; printf x | dd of=a/hole bs=1 seek=500000 conv=notrunc status=none
             head -c 3000000 /dev/urandom >a/large; mknod a/device c 1 3",
        );
        let mut following = Following::start(tree, Options::default());
        let progress = following.check(tree);
        assert_eq!((progress.dropped, progress.epoch), (0, 1));
    });
}

#[test]
fn writes_creates_renames_and_unlinks_are_said() {
    on_ext4(|tree| {
        let mut following = Following::start(tree, Options::default());
        following.check(tree);
        let before = following.capture.progress();
        shell(
            tree,
            "echo one >one; echo more >>one; mkdir d; mv one d/two; echo three >three; mv three d/two
             head -c 300000 /dev/urandom >d/large; rm d/two; echo x >d/x; mkdir e; mv d e/f; rm e/f/x",
        );
        let progress = following.check(tree);
        assert_eq!(progress.read_back, before.read_back, "all of it was seen");
    });
}

#[test]
fn what_finds_no_room_is_read() {
    on_ext4(|tree| {
        // Seed 67 loses a name in a directory that is not known yet.
        let all: BTreeSet<_> = seeds(4..=5).into_iter().chain([67]).collect();
        for seed in all {
            let small = Options {
                ring_bytes: 64 << 10,
                ..Options::default()
            };
            let progress = follow_workload(tree, seed, small);
            assert!(progress.dropped > 0, "{progress:?}");
            assert!(progress.read_back > 0, "{progress:?}");
        }
    });
}

#[test]
fn writes_that_find_no_room_are_read() {
    on_ext4(|tree| {
        let small = Options {
            ring_bytes: 64 << 10,
            ..Options::default()
        };
        let mut following = Following::start(tree, small);
        following.check(tree);
        shell(
            tree,
            "for i in $(seq 50); do head -c 100000 /dev/urandom >f$i; mv f$i g$i; done; rm g1*
             mkdir -p a/b/c; for i in $(seq 20); do echo $i >a/b/c/$i; done; mv a/b x; rmdir a",
        );
        let progress = following.check(tree);
        assert!(progress.dropped > 100, "{progress:?}");
    });
}

#[test]
fn a_call_of_which_only_the_beginning_finds_room_is_read() {
    on_ext4(|tree| {
        // There is room for 182 states. The call produces three of them: both directories, and the
        // file by a name that it keeps.
        let mut dropped = Vec::new();
        for before in 172..=183 {
            let place = tree.join(before.to_string());
            shell(
                tree,
                &format!(
                    "mkdir -p {before}/from {before}/to; cd {before}; touch filler from/a; ln from/a to/b"
                ),
            );
            let small = Options {
                ring_bytes: 64 << 10,
                ..Options::default()
            };
            let mut following = Following::start(&place, small);
            following.check(&place);
            for round in 0..before {
                let mode = Permissions::from_mode(0o600 + round % 2);
                fs::set_permissions(place.join("filler"), mode).unwrap();
            }
            fs::rename(place.join("from/a"), place.join("to/c")).unwrap();
            dropped.push(following.check(&place).dropped);
        }
        // Some calls found room, and some none at all.
        assert!(
            dropped[0] == 0 && dropped[dropped.len() - 1] > 2,
            "{dropped:?}"
        );
    });
}

#[test]
fn what_a_journal_tells_of_is_read() {
    on_ext4(|tree| {
        for seed in seeds(6..=8) {
            let journal = Options {
                journal: true,
                ..Options::default()
            };
            let progress = follow_workload(tree, seed, journal);
            assert!(progress.read_back > 0, "{progress:?}");
        }
    });
}

#[test]
fn what_is_written_again_is_told_once_and_read_after_each_pause() {
    on_ext4(|tree| {
        let journal = Options {
            journal: true,
            ..Options::default()
        };
        let mut following = Following::start(tree, journal);
        following.check(tree);
        let file = File::create(tree.join("again")).unwrap();
        for round in 0..5_u8 {
            let before = following.capture.progress().events;
            for write in 0..10_000_u64 {
                let byte = [round.wrapping_add(u8::try_from(write % 251).unwrap()); 100];
                file.write_all_at(&byte, write % 50 * 4096).unwrap();
            }
            let progress = following.check(tree);
            let told = progress.events - before;
            assert!(told < 5_000, "{told} events of 10000 writes");
        }
    });
}

#[test]
fn what_is_written_while_its_file_is_found_is_read() {
    on_ext4(|tree| {
        let journal = Options {
            journal: true,
            ..Options::default()
        };
        let (outside, inside) = (tree.join("outside"), tree.join("inside"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir(&inside).unwrap();
        let mut following = Following::start(&inside, journal);
        following.check(&inside);
        for number in 0..20 {
            let (from, to) = (outside.join("busy"), inside.join(number.to_string()));
            let file = File::create(&from).unwrap();
            // Writes to the same place before the file belongs to the tree, while that is
            // determined, and after it.
            following.during(|| {
                for write in 0..100_000_u64 {
                    file.write_all_at(&write.to_le_bytes(), 0).unwrap();
                    if write == 20_000 {
                        fs::rename(&from, &to).unwrap();
                    }
                }
            });
            following.check(&inside);
        }
    });
}

#[test]
fn databases_are_said() {
    on_ext4(|tree| {
        for mode in ["wal", "delete", "truncate", "persist"] {
            let place = tree.join(mode);
            fs::create_dir(&place).unwrap();
            let mut following = Following::start(&place, Options::default());
            following.check(&place);
            for round in 0..3 {
                following.during(|| {
                    shell(
                        &place,
                        &format!(
                            "sqlite3 db \"pragma journal_mode={mode}; create table if not exists t(a, b);
                             with recursive n(i) as (select 1 union all select i + 1 from n where i < 300)
                             insert into t select i, randomblob(i * {round}) from n;
                             delete from t where a % 3 = {round}; vacuum\""
                        ),
                    )
                });
                following.check(&place);
            }
        }
    });
}

#[test]
fn what_was_dirty_or_busy_at_the_start_is_said() {
    on_ext4(|tree| {
        let mut workload = Workload::start(tree, 7, 400, 100);
        workload.next();
        let mut following = Following::start(tree, Options::default());
        while following.during(|| workload.next()).is_some() {
            following.check(tree);
        }
    });
}

#[test]
fn moves_across_the_border_of_the_tree_are_said() {
    on_ext4(|folder| {
        shell(
            folder,
            "mkdir -p tree/a outside/b/c; echo in >tree/a/one; echo out >outside/b/c/two",
        );
        let tree = folder.join("tree");
        let mut following = Following::start(&tree, Options::default());
        following.check(&tree);
        shell(
            folder,
            "mv outside/b tree/b; echo more >>tree/b/c/two; mv tree/a outside/a; echo x >outside/a/three
             ln outside/a/one tree/again; echo again >>outside/a/one",
        );
        following.check(&tree);
        shell(
            folder,
            "mv outside/a tree/a; echo back >>tree/a/three; mkdir outside/d; echo 1 >outside/d/1",
        );
        following.check(&tree);
        assert!(following.mirror.tree.files().count() <= 8);
    });
}

/// The buffer for `O_DIRECT`, aligned to the page size.
#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn direct_writes_that_meet_mapped_pages_are_said() {
    on_ext4(|tree| {
        let path = tree.join("shared");
        fs::write(&path, [1; 4096]).unwrap();
        let mut following = Following::start(tree, Options::default());
        following.check(tree);
        let opened = || File::options().read(true).write(true).open(&path).unwrap();
        let (file, mapping) = (opened(), FileMapping::new(opened(), 4096, 0).unwrap());
        let mut direct = File::options();
        let direct = direct
            .write(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(&path);
        let (direct, page) = (direct.unwrap(), Box::new(Page([2; 4096])));
        for round in 0..100 {
            let ended = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        mapping.store(100, &[round]);
                    }
                });
                let _ends_the_stores = Ends(&ended);
                for _ in 0..50 {
                    direct.write_all_at(&page.0, 0).unwrap();
                }
            });
            following.check(tree);
            // The kernel reports it to the program as a failed write back.
            if file.sync_all().is_err() {
                return;
            }
        }
        sys::require::skip(Class::Hardware, "no direct write met a mapped page");
    });
}

#[test]
fn stores_to_a_folio_that_a_write_made_dirty_are_said() {
    on_ext4(|tree| {
        for journal in [false, true] {
            let place = tree.join(if journal { "journal" } else { "data" });
            let path = place.join("mapped");
            fs::create_dir(&place).unwrap();
            // In one write, which becomes one large folio if the file system supports them.
            fs::write(&path, [1; 64 << 10]).unwrap();
            let options = Options {
                journal,
                ..Options::default()
            };
            let mut following = Following::start(&place, options);
            let opened = || File::options().read(true).write(true).open(&path).unwrap();
            let (file, mapping) = (opened(), FileMapping::new(opened(), 64 << 10, 0).unwrap());
            following.check(&place);
            for round in 2..5 {
                file.write_all_at(&[round; 50], 40_960).unwrap();
                mapping.store(9_719, &[round; 3_215]);
                following.check(&place);
            }
        }
    });
}

/// Follows a workload while it runs, and compares at each of its barriers.
fn follow_workload(tree: &Path, seed: u64, options: Options) -> Progress {
    let place = tree.join(format!("seed{seed}"));
    fs::create_dir(&place).unwrap();
    let mut following = Following::start(&place, options);
    let mut progress = following.check(&place);
    let mut workload = Workload::start(&place, seed, 500, 25);
    while let Some(steps) = following.during(|| workload.next()) {
        println!("{seed}: {steps:#?}");
        progress = following.check(&place);
    }
    println!("{seed}: {progress:?}");
    progress
}

/// The seed from the environment, or the usual ones.
fn seeds(usual: RangeInclusive<u64>) -> Vec<u64> {
    match env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (*usual.start()..usual.end() + u64::from(sys::require::fuzz())).collect(),
    }
}
