//! A capture follows a tree while a program changes it, and a replica follows the log. At each
//! barrier the replica equals the tree.

use std::path::Path;
use std::thread;
use std::time::Duration;

use replicate::apply::{self, Replica};
use replicate::capture::{Capture, INTERVAL, Options};
use replicate::log::{self, Writer};
use replicate::record::Entry;

use crate::bed::file_system::{Format, within};
use crate::bed::trees::{What, differences};
use crate::bed::workload::Workload;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn at_each_barrier_the_replica_is_the_tree() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "ext4") else {
            return;
        };
        for seed in 1..=3 {
            let place = disk.join(format!("seed {seed}"));
            std::fs::create_dir(&place).unwrap();
            one(&place, seed);
        }
    });
}

fn append(writer: &mut Writer, entry: Entry) {
    writer.append(0, entry).unwrap();
}

fn one(disk: &Path, seed: u64) {
    let (tree, log, to) = (disk.join("tree"), disk.join("log"), disk.join("replica"));
    std::fs::create_dir(&tree).unwrap();
    let mut capture = Capture::start(&tree, Options::default()).unwrap();
    let mut writer = Writer::open(&log, log::Options::default()).unwrap();
    let options = apply::Options {
        privileged: true,
        ..apply::Options::default()
    };
    let mut replica = Replica::open(&log, &to, options).unwrap();
    let mut workload = Workload::start(&tree, seed, 200, 25);
    let mut barriers = 0;
    loop {
        let steps = thread::scope(|scope| {
            let working = scope.spawn(|| workload.next());
            while !working.is_finished() {
                capture
                    .poll(&mut |entry| append(&mut writer, entry))
                    .unwrap();
                replica.apply(None).unwrap();
                thread::sleep(INTERVAL);
            }
            working.join().unwrap()
        });
        let Some(steps) = steps else { break };
        barriers += 1;
        let caught = capture.catch_up(LIMIT, &mut |entry| append(&mut writer, entry));
        assert!(caught.unwrap());
        replica.apply(None).unwrap();
        assert_eq!(replica.reached().0, writer.epoch());
        let mut differ = differences(&tree, &to.join("tree"));
        // The file system chooses where blocks are allocated.
        differ.retain(|one| one.what != What::Holes);
        assert!(
            differ.is_empty(),
            "seed {seed} after {steps:#?}: {differ:#?}"
        );
    }
    assert_eq!(barriers, 8);
    replica.end().unwrap();
}
