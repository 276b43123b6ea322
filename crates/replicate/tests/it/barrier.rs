//! Each operation that syncs data to the disk leads to an epoch at once. A program that never syncs
//! gets epochs as well.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use replicate::capture::{Capture, Options};

use crate::bed::file_system::{Format, within};
use crate::follow::{Ends, Following};

/// Far more than needed.
const LIMIT: Duration = Duration::from_secs(60);

type Barrier = fn(&Path);

/// Operations that sync data to the disk.
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

#[test]
fn who_follows_is_woken_for_what_is_synced_and_before_much_waits() {
    within(|bed| {
        let Some(tree) = bed.mount(Format::Ext4, "ext4") else {
            return;
        };
        fs::write(tree.join("b"), b"before").unwrap();
        let mut capture = followed(&tree, Options::default());
        for (name, barrier) in BARRIERS {
            fs::rename(tree.join("b"), tree.join("a")).unwrap();
            rest(&mut capture);
            barrier(&tree);
            assert!(capture.wait(LIMIT, None).unwrap(), "{name}");
            if *name != "rename" {
                fs::rename(tree.join("a"), tree.join("b")).unwrap();
            }
        }
        // A few events fill half of this ring.
        let ring_bytes = 64 << 10;
        let small = Options {
            ring_bytes,
            ..Options::default()
        };
        let mut capture = followed(&tree, small);
        rest(&mut capture);
        fs::write(tree.join("b"), b"not synced").unwrap();
        assert!(capture.wait(LIMIT, None).unwrap());
    });
}

fn followed(tree: &Path, options: Options) -> Capture {
    let mut capture = Capture::start(tree, options).unwrap();
    assert!(capture.catch_up(LIMIT, &mut |_| {}).unwrap());
    capture
}

/// Waits until no program has called for a whole pause.
fn rest(capture: &mut Capture) {
    loop {
        capture.poll(&mut |_| {}).unwrap();
        if !capture.wait(LIMIT, None).unwrap() {
            break;
        }
    }
}

#[test]
fn a_program_that_never_pauses_and_never_syncs_has_epochs() {
    within(|bed| {
        let Some(tree) = bed.mount(Format::Ext4, "ext4") else {
            return;
        };
        let mut following = Following::start(&tree, Options::default());
        let before = following.check(&tree).epoch;
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = fs::File::create(tree.join("a")).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    file.write_all(b"!").unwrap();
                }
            });
            let _ends_the_writer = Ends(&ended);
            let begun = Instant::now();
            while following.poll().epoch < before + 3 {
                assert!(begun.elapsed() < LIMIT, "{:?}", following.poll());
            }
        });
        following.check(&tree);
    });
}

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
            fs::write(tree.join("a"), "again").unwrap();
            barrier(tree);
            // This one call takes its events, and there was no quiet moment since.
            let after = following.poll().epoch;
            assert!(after > before, "{name}");
            following.mirror.compare(tree);
        }
    });
}
