//! A ring that holds only a small part of the events, and a capture that is stopped or killed:
//! nothing is lost, no program waits, and nothing stays attached.
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
/// More than the ring can hold.
const BARRIER: u32 = 200;
const SMALL: u32 = 32 << 10;
/// A size that no other test uses, so that its map can be found.
const UNUSUAL: u32 = 2 << 20;
/// The environment variable that makes this program a capture.
const TREE: &str = "LOSSY_TREE";

/// No events are taken until a barrier.
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
    // With data in the journal, the readback produces events as well, and those find room.
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
        // All of it is done while no events are read.
        shell(
            &tree,
            "for i in $(seq 300); do head -c 5000 /dev/zero | tr '\\0' $((i % 10)) >f$((i % 50)); done",
        );
        let waited = following.capture.progress().events;
        let progress = following.check(&tree);
        assert!(progress.dropped > progress.events - waited, "{progress:?}");
    });
}

/// Not a test: the program that is killed.
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

/// The number of captures of this test in the kernel, found by their rings.
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
