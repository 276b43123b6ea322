//! Changes that leave few traces: by an address instead of a descriptor, by a call that fails half
//! way, or of a file without a name in the kernel's cache.
#![allow(clippy::print_stdout, reason = "a failed test shows what was done")]

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::libc;
use replicate::capture::Options;
use sys::file_mapping::FileMapping;
use sys::require::{Class, skip};

use crate::bed::file_system::{Format, within};
use crate::follow::{Following, shell};

/// Runs the script on each of these file systems, once the prepared files are in the log.
fn followed(formats: &[Format], prepared: &str, script: &str) {
    followed_by(formats, prepared, &|tree| run(tree, script));
}

/// As [`followed`], of this.
fn followed_by(formats: &[Format], prepared: &str, work: &(dyn Fn(&Path) + Sync)) {
    for format in formats {
        within(|bed| {
            let Some(tree) = bed.follow(*format, "tree") else {
                return;
            };
            println!("{format:?}");
            shell(&tree, prepared);
            let options = Options {
                look: true,
                ..Options::default()
            };
            let mut following = Following::start(&tree, options);
            following.check(&tree);
            following.during(|| work(&tree));
            following.check(&tree);
        });
    }
}

/// A shell's, or Python's.
fn run(tree: &Path, script: &str) {
    match script.strip_prefix("python ") {
        Some(script) => shell(tree, &format!("python3 -c '{script}'")),
        None => shell(tree, script),
    };
}

const ALL: [Format; 5] = [
    Format::Ext4,
    Format::Xfs,
    Format::Btrfs,
    Format::Tmpfs,
    Format::Overlay,
];

#[test]
fn pages_that_are_taken_away_where_they_are_mapped() {
    // After a store, the file system need not change its times once more.
    for store in ["", "memory[0] = 1"] {
        let script = format!(
            "python import mmap, os, time
fd = os.open(\"f\", os.O_RDWR)
memory = mmap.mmap(fd, 16 << 20)
# Who follows it has read the file by then.
time.sleep(1)
{store}
memory.madvise(mmap.MADV_REMOVE, 8 << 20, 4 << 20)"
        );
        followed(&ALL, "head -c 16M /dev/urandom >f", &script);
    }
}

#[test]
fn pages_that_a_ring_takes_away_where_they_are_mapped() {
    for store in [false, true] {
        followed_by(&ALL, "head -c 16M /dev/urandom >f", &|tree| {
            let file = File::options().read(true).write(true).open(tree.join("f"));
            let map = FileMapping::new(file.unwrap(), 16 << 20, 0).unwrap();
            // The capture has read the file by then.
            thread::sleep(Duration::from_secs(1));
            if store {
                map.store(0, &[1]);
            }
            match map.remove_by_ring(8 << 20..12 << 20) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                    skip(Class::Hardware, "io_uring is switched off");
                }
                done => done.unwrap(),
            }
        });
    }
}

#[test]
fn what_a_call_has_done_that_failed_in_the_end() {
    // It takes away what there is, and then finds no room.
    let script = "printf x | dd of=f conv=notrunc status=none
        ! fallocate --zero-range --offset 65536 --length 1T f 2>/dev/null";
    followed(
        &[Format::Ext4, Format::Xfs, Format::Btrfs],
        "head -c 1M /dev/urandom >f",
        script,
    );
}

#[test]
fn a_file_that_is_moved_and_of_which_no_name_is_found() {
    // Names that were removed and stay cached because they are open come before the remaining one.
    let script = "python import os
held = []
for number in range(9):
    name = \"t%d\" % number
    os.link(\"f\", name)
    held.append(os.open(name, os.O_RDONLY))
    os.unlink(name)
os.sync()
os.rename(\"f\", \"sub/g\")
os.rename(\"sub/h\", \"h\")";
    followed(&ALL, "echo x >f; mkdir sub; echo y >sub/h", script);
}

#[test]
fn inodes_that_are_numbered_otherwise_after_a_remount() {
    let prepared = "mount -o remount,inode32 ..; mkdir d; echo x >d/f; ln d/f d/g";
    let script = "mount -o remount,inode64 ..; echo y >d/h; rm d/g; echo more >>d/f";
    followed(&[Format::Xfs], prepared, script);
}
