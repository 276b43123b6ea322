//! What a program does to have something on the disk is an epoch at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod bed;
mod follow;

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bed::file_system::{Format, within};
use follow::Following;
use replicate::capture::Options;

type Barrier = fn(&Path);

/// What a program does to have something on the disk.
const BARRIERS: &[(&str, Barrier)] = &[
    ("fsync", |tree| open(tree).sync_all().unwrap()),
    ("fdatasync", |tree| open(tree).sync_data().unwrap()),
    ("syncfs", |tree| rustix::fs::syncfs(open(tree)).unwrap()),
    ("O_DSYNC", |tree| {
        let flags = rustix::fs::OFlags::DSYNC.bits().cast_signed();
        let mut options = fs::OpenOptions::new();
        let file = options
            .append(true)
            .custom_flags(flags)
            .open(tree.join("a"));
        file.unwrap().write_all(b"synchronous").unwrap();
    }),
    ("rename", |tree| {
        fs::rename(tree.join("a"), tree.join("b")).unwrap();
    }),
];

fn open(tree: &Path) -> fs::File {
    fs::File::open(tree.join("a")).unwrap()
}

#[test]
fn a_barrier_is_an_epoch_at_once() {
    within(|bed| {
        let Some(tree) = bed.mount(Format::Ext4, "ext4") else {
            return;
        };
        let tree = tree.as_path();
        let mut following = Following::start(tree, Options::default());
        for (name, barrier) in BARRIERS {
            fs::write(tree.join("a"), name).unwrap();
            let before = following.check(tree).epoch;
            barrier(tree);
            // Its events are taken by this one call: nothing has been still since.
            let after = following.poll().epoch;
            assert!(after > before, "{name}");
            following.mirror.compare(tree);
        }
    });
}
