//! A ring that has room for the smaller part of what happens, and a capture that stands still or is killed: nothing is
//! lost, nobody waits, and nothing stays attached.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::query::MapInfoIter;
use replicate::capture::{Capture, INTERVAL, Options};

use crate::bed::file_system::{Format, within};
use crate::bed::workload::Workload;
use crate::follow::{Following, shell};

const STEPS: u32 = 400;
/// More than the ring has room for.
const BARRIER: u32 = 200;
const SMALL: u32 = 32 << 10;
/// That of no other test, by which its map is known.
const UNUSUAL: u32 = 2 << 20;
/// What makes this program a capture.
const TREE: &str = "LOSSY_TREE";

/// Nobody takes events until a barrier.
fn one(tree: &Path, format: Format, seed: u64) {
    let options = Options {
        ring_bytes: SMALL,
        look: true,
        ..Options::default()
    };
    let mut following = Following::start(tree, options);
    following.check(tree);
    let before = following.capture.progress().events;
    let mut workload = Workload::start(tree, seed, STEPS, BARRIER);
    let mut progress = following.capture.progress();
    while workload.next().is_some() {
        progress = following.check(tree);
    }
    let taken = progress.events - before;
    println!(
        "{format:?} {seed}: {} lost, {taken} taken",
        progress.dropped
    );
    // What it reads makes events as well, where data goes through the journal: those find room.
    let least = if format == Format::Ext4Journal {
        0
    } else {
        taken
    };
    assert!(progress.dropped > least, "{seed}: {progress:?}");
}

fn seeds(of: std::ops::RangeInclusive<u64>) {
    for format in Format::ALL {
        within(|bed| {
            let Some(tree) = bed.follow(format, "tree") else {
                return;
            };
            for seed in of.clone() {
                let tree = tree.join(format!("seed {seed}"));
                std::fs::create_dir(&tree).unwrap();
                one(&tree, format, seed);
            }
        });
    }
}

#[test]
fn most_of_what_happens_finds_no_room_and_is_read() {
    seeds(1..=2);
}

#[test]
fn fifty_seeds_of_which_most_finds_no_room() {
    if sys::require::requested("follows 50 seeds on each file system") {
        seeds(1..=50);
    }
}

#[test]
fn who_writes_does_not_wait_for_a_capture_that_stands_still() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        let options = Options {
            ring_bytes: SMALL,
            ..Options::default()
        };
        let mut following = Following::start(&tree, options);
        following.check(&tree);
        // All of it is done while nobody reads.
        shell(
            &tree,
            "for i in $(seq 300); do head -c 5000 /dev/zero | tr '\\0' $((i % 10)) >f$((i % 50)); done",
        );
        let waited = following.capture.progress().events;
        let progress = following.check(&tree);
        assert!(progress.dropped > progress.events - waited, "{progress:?}");
    });
}

/// No test of its own: the program that is killed.
#[test]
fn a_capture() {
    let Some(tree) = std::env::var_os(TREE) else {
        return;
    };
    let options = Options {
        ring_bytes: UNUSUAL,
        ..Options::default()
    };
    let mut capture = Capture::start(Path::new(&tree), options).unwrap();
    while capture.poll(&mut |_| ()).unwrap().epoch == 0 {
        thread::sleep(INTERVAL);
    }
    println!("ready");
    loop {
        capture.poll(&mut |_| ()).unwrap();
        thread::sleep(INTERVAL);
    }
}

/// How many captures of this test have their programs in the kernel: those have the ring.
fn attached() -> usize {
    let rings = MapInfoIter::default().filter(|map| map.name == "ring");
    rings.filter(|map| map.max_entries == UNUSUAL).count()
}

#[test]
fn one_that_is_killed_leaves_nothing_attached() {
    within(|bed| {
        let Some(tree) = bed.follow(Format::Ext4, "tree") else {
            return;
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture", "lossy::a_capture"])
            .env(TREE, &tree)
            .stdout(Stdio::piped());
        let mut capture = sys::child::die_with_parent(&mut command).spawn().unwrap();
        let said = BufReader::new(capture.stdout.take().unwrap());
        let mut lines = said.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("ready")));
        assert_eq!(attached(), 1);
        capture.kill().unwrap();
        capture.wait().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while attached() > 0 {
            assert!(Instant::now() < until, "its programs stay");
            thread::sleep(INTERVAL);
        }
    });
}
