//! A capture is killed while a program runs, and another one continues its log. At each barrier the
//! log agrees with the tree.
#![allow(clippy::print_stdout, reason = "how the captures and the test speak")]

mod narrowing;
mod other_tree;
mod pinned;
mod running;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;
use std::time::Duration;

use replicate::patterns::Patterns;
pub(crate) use running::data_of;
use running::{BARRIER, Place, Running, shell, starts};
use rustix::fs::{XattrFlags, removexattr, setxattr};

use crate::bed::file_system::{Bed, Format, within};
use crate::bed::workload::Workload;

/// The seeds of every run of the tests.
const USUAL: u64 = 10;
/// On file systems where most data has to be read back.
const SEEDS: u64 = 2;
const USUAL_STEPS: u32 = 100;
/// Of a complete one.
const ALL: u64 = 200;
/// With a journal, which takes twice as long.
const HALF: u64 = 100;
const ALL_STEPS: u32 = 300;
#[test]
fn ten_seeds_are_taken_up_after_kills() {
    within(|bed| seeds(bed, Format::Ext4, (None, &[]), USUAL, USUAL_STEPS));
}

#[test]
fn seeds_on_overlay_are_taken_up_after_kills() {
    within(|bed| seeds(bed, Format::Overlay, (None, &[]), SEEDS, USUAL_STEPS));
}

#[test]
fn two_hundred_seeds_are_taken_up_after_kills() {
    if sys::require::requested("takes up the logs of 200 seeds of 300 steps") {
        within(|bed| seeds(bed, Format::Ext4, (None, &[]), ALL, ALL_STEPS));
    }
}

/// Runs the seeds, and returns how many times a journal was used.
fn seeds(
    bed: &Bed,
    format: Format,
    (pin, turns): (Option<&Path>, &[Patterns]),
    seeds: u64,
    steps: u32,
) -> u32 {
    let Some(disk) = bed.follow(format, &format!("source {format:?}")) else {
        return 0;
    };
    let by_journal = Cell::new(0);
    let one_of: Option<u64> = env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let failed: Vec<u64> = (1..=seeds)
        .filter(|seed| one_of.is_none_or(|one| one == *seed))
        .filter(|seed| {
            let mut place = Place::new(&disk, bed.scratch(), *seed);
            place.pin = pin.map(Path::to_owned);
            place.turns = turns.to_vec();
            let tried = panic::catch_unwind(AssertUnwindSafe(|| one(&place, *seed, steps)));
            by_journal.set(by_journal.get() + place.by_journal.get());
            place.clean();
            tried.is_err()
        })
        .collect();
    assert!(failed.is_empty(), "of {seeds} seeds: {failed:?}");
    by_journal.get()
}

fn one(place: &Place, seed: u64, steps: u32) {
    let mut random = seed;
    if place.pin.is_some() {
        pinned::pinned_capture(place).kill();
    }
    let mut workload = Workload::start(&place.tree, seed, steps, BARRIER);
    let mut said = Vec::new();
    loop {
        let mut running: Option<Running> = None;
        let next = thread::scope(|scope| {
            let working = scope.spawn(|| workload.next());
            // Some captures are killed before they are ready, and changes between two captures are
            // seen by none.
            while !working.is_finished() {
                let started = running.is_none();
                let now = running.get_or_insert_with(|| Running::start(place));
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if started && random >> 63 == 0 {
                    now.wait("ready");
                }
                thread::sleep(Duration::from_millis(random >> 40 & 127));
                if random >> 62 & 1 == 0
                    && let Some(running) = running.take()
                {
                    running.kill();
                    thread::sleep(Duration::from_millis(random >> 33 & 63));
                }
            }
            working.join().unwrap()
        });
        let Some(steps) = next else {
            return;
        };
        said.extend(steps);
        // Whether it is ready or not: it catches up once it is.
        let mut running = running.unwrap_or_else(|| Running::start(place));
        let found = running.catch_up();
        place
            .by_journal
            .set(place.by_journal.get() + u32::from(found["journal"] == 1));
        running.kill();
        place.check(&said);
    }
}

#[test]
fn an_unchanged_tree_adds_no_bytes_and_a_changed_one_those_that_changed() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "source") else {
            return;
        };
        let place = Place::new(&disk, bed.scratch(), 0);
        shell(
            &place.tree,
            "mkdir -p many/deep; for i in $(seq 500); do echo $i >many/$i; done
             head -c 3000000 /dev/urandom >large; truncate -s 1G hole
             printf x | dd of=hole bs=1 seek=500000000 conv=notrunc status=none
             fallocate -l 100000 reserved; ln -s nowhere link; ln large many/deep/again
             mkfifo pipe; mknod null c 1 3",
        );
        let large = place.tree.join("large");
        setxattr(&large, "user.a", b"b", XattrFlags::CREATE).unwrap();
        let mut first = Running::start(&place);
        let said = first.wait("ready");
        assert_eq!(said["files"], 0, "{said:?}");
        // Bytes that were captured at the write are compared as well.
        shell(
            &place.tree,
            "printf y | dd of=hole bs=1 seek=7000 conv=notrunc status=none
             echo seen >seen; truncate -s 2 seen; truncate -s 5000 seen",
        );
        first.catch_up();
        first.kill();
        let before = data_of(&place.log);
        let mut second = Running::start(&place);
        let said = second.wait("ready");
        assert_eq!(said["differed"], 0, "{said:?}");
        assert!(said["files"] > 500 && said["bytes"] > 3_000_000, "{said:?}");
        assert_eq!((said["new"], said["gone"]), (0, 0), "{said:?}");
        second.kill();
        assert_eq!(data_of(&place.log), before);
        shell(
            &place.tree,
            "printf zzzzzzzz | dd of=large bs=1 seek=1000000 conv=notrunc status=none
             rm many/7; mv many/8 eight; mkdir many/9.d; mv many/9 many/9.d; echo new >new
             chmod 600 many/10; touch -d 2001-02-03 many/11
             rm link; mkfifo link; rm pipe; ln -s elsewhere pipe; mv many/deep shallow
             fallocate -p -o 0 -l 8192 hole; truncate -s 10 many/12; mkdir -p a/b; mv many/13 a/b",
        );
        removexattr(&large, "user.a").unwrap();
        let mut third = Running::start(&place);
        let said = third.wait("ready");
        // The block of `large`, `new`, and the zeros that make many/12 longer.
        let expected = (64 << 10) + 4;
        let range = expected..=expected + 20;
        assert!(range.contains(&said["differed"]), "{said:?}");
        third.kill();
        place.check(&[]);
        assert_eq!(starts(&place.log), 1);
    });
}

/// On an overlay only its kind distinguishes a file from an earlier one with the same inode number.
#[test]
fn a_number_that_another_file_has_by_now_is_taken_up() {
    within(|bed| {
        let Some(disk) = bed.follow(Format::Overlay, "source") else {
            return;
        };
        let place = Place::new(&disk, bed.scratch(), 0);
        shell(
            &place.tree,
            "for i in $(seq 9); do echo $i >file$i; ln -s $i link$i; mkdir folder$i; touch folder$i/in; done",
        );
        let numbers = || -> BTreeMap<u64, fs::FileType> {
            let entries = fs::read_dir(&place.tree).unwrap();
            let each = entries.map(|entry| entry.unwrap());
            each.map(|entry| (entry.ino(), entry.file_type().unwrap()))
                .collect()
        };
        let before = numbers();
        let mut first = Running::start(&place);
        first.wait("ready");
        first.kill();
        shell(
            &place.tree,
            "rm -r file* link* folder*
             for i in $(seq 9); do mkdir file$i; touch file$i/in; echo anew $i >link$i; ln -s $i folder$i; done",
        );
        let after = numbers();
        let another = |(number, kind): (&u64, &fs::FileType)| {
            before.get(number).is_some_and(|before| before != kind)
        };
        assert!(after.iter().any(another), "{before:?} {after:?}");
        let mut second = Running::start(&place);
        second.wait("ready");
        second.kill();
        place.check(&[]);
    });
}
